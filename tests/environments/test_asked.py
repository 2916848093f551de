"""What users may ask for, and what is made of it."""

from pathlib import Path
from typing import Any

import pytest

from deskgrid.client.environments.asked import AskedEnvironment, asked_by, asked_in, checked_env, name_in
from deskgrid.errors import BagRejected


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        ("mine", ("mine",)),
        ("script", ("script",)),
        (Path("x.txt"), (Path("x.txt"),)),
        (["a", Path("b")], ("a", Path("b"))),
        (("mine", "a"), ("mine", "a")),
    ],
)
def test_an_environment_has_parts(env: Any, parts: Any) -> None:
    assert checked_env(env) == parts


@pytest.mark.parametrize("env", ["numpy", 1, [], [1], [""], b"mine"])
def test_what_is_no_environment_is_refused_with_what_is(env: Any) -> None:
    with pytest.raises(BagRejected, match=r"env is|list of requirements"):
        checked_env(env)


def test_requirements_keep_what_pip_understands(tmp_path: Path) -> None:
    written(tmp_path, "more/base.txt", "gamma\n-c ../pins.txt\n")
    written(tmp_path, "pins.txt", "delta==4")
    (tmp_path / "project").mkdir()
    path = written(
        tmp_path,
        "requirements.txt",
        "# for the lab\nAlpha>=1 ; sys_platform == 'win32'  # why\nbeta[x]==2 \\\n  ,!=3\n-r more/base.txt\n"
        "-e ./project\n--pre\nname @ https://example.invalid/x.tar.gz\n",
    )
    assert asked_in(path) == AskedEnvironment(
        "requirements.txt",
        (
            "Alpha>=1 ; sys_platform == 'win32'",
            "beta[x]==2    ,!=3",
            "gamma",
            "--pre",
            "name @ https://example.invalid/x.tar.gz",
        ),
        ("delta==4",),
        (str(tmp_path / "project"),),
    )
    assert asked_in(path).names == {"alpha", "beta", "gamma", "name"}


def test_a_list_is_named_by_its_first_requirement_and_how_many_follow() -> None:
    assert asked_by(["numpy==2.4.6"]).label == "numpy==2.4.6"
    assert asked_by(["numpy", "scipy", "pandas"]).label == "numpy +2"
    both = AskedEnvironment("mine", ("a",), ("b==1",), (), ">=3.11").and_also(asked_by(["c", "d"]))
    assert both == AskedEnvironment("mine +2", ("a", "c", "d"), ("b==1",), (), ">=3.11")


SCRIPT = """#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "numpy<3",
#   "rich",
# ]
# ///
print("hello")
"""


def test_a_script_says_what_it_needs(tmp_path: Path) -> None:
    assert asked_in(written(tmp_path, "run.py", SCRIPT)) == AskedEnvironment(
        "run.py", ("numpy<3", "rich"), python=">=3.11"
    )


LOCK = """
lock-version = "1.0"
requires-python = ">=3.11"
[[packages]]
name = "Alpha"
version = "1.0"
marker = "sys_platform == 'win32'"
wheels = [{ name = "a.whl", url = "https://example.invalid/a.whl", hashes = { sha256 = "aa" } },
          { name = "b.whl", url = "https://example.invalid/b.whl", hashes = { sha256 = "bb" } }]
[[packages]]
name = "mine"
directory = { path = "project", editable = true }
"""


def test_a_lock_becomes_versions_with_hashes(tmp_path: Path) -> None:
    asked = asked_in(written(tmp_path, "pylock.toml", LOCK))
    line = "Alpha==1.0 ; sys_platform == 'win32' --hash=sha256:aa --hash=sha256:bb"
    assert asked == AskedEnvironment("pylock.toml", (line,), (), (str(tmp_path / "project"),), ">=3.11")
    assert asked.pinned == (line,)
    assert asked.names == {"alpha"}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("run.py", "print()", r'no comment "# /// script"'),
        ("run.py", "# /// script\n# dependencies = 1\n# ///\n", "not a list of strings"),
        ("run.py", "# /// script\n# dependencies = [\n# ///\n", "is not valid TOML"),
        ("pylock.toml", "x", "is not valid TOML"),
        ("pylock.toml", "lock-version = '2.0'", "lock of version 2.0; deskgrid reads version 1.0"),
        ("pylock.dev.toml", "", r"lock of version \(none\)"),
        (
            "pylock.toml",
            "lock-version = '1.0'\n[[packages]]\nname = 'old'\nversion = '1'\nsdist = {}",
            "old 1 has no wheel with a SHA-256",
        ),
        ("pylock.toml", "lock-version = '1.0'\npackages = 3", "its packages are not as in a lock"),
        ("pylock.toml", "lock-version = '1.0'\npackages = ['numpy']", "its packages are not as in a lock"),
        ("pylock.toml", "lock-version = '1.0'\n[[packages]]\ndirectory = {}", "its packages are not as in a lock"),
        (
            "pylock.toml",
            "lock-version = '1.0'\n[[packages]]\nname = 'a'\nversion = '1'\nwheels = ['a.whl']",
            "its packages are not as in a lock",
        ),
        ("requirements.txt", "numpy\n-r ./requirements.txt", "requirements.txt includes itself"),
        ("requirements.txt", "-e ./gone", "no project or wheel at .*gone"),
        ("requirements.txt", "-r gone.txt", "gone.txt cannot be read: No such file"),
        ("requirements.txt", "\udc80", "it is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, name: str, text: str, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BagRejected, match=reason):
        asked_in(path)


def test_two_files_that_include_each_other_are_refused_and_one_that_is_included_twice_is_not(tmp_path: Path) -> None:
    written(tmp_path, "a.txt", "-r b.txt")
    with pytest.raises(BagRejected, match=r"b\.txt includes itself"):
        asked_in(written(tmp_path, "b.txt", "-r a.txt"))
    written(tmp_path, "b.txt", "numpy")
    assert asked_in(written(tmp_path, "c.txt", "-r a.txt\n-r b.txt")).lines == ("numpy", "numpy")


def test_a_path_where_nothing_is_is_named(tmp_path: Path) -> None:
    for name in ("gone.whl", "gone.txt"):
        with pytest.raises(BagRejected, match=name):
            asked_in(tmp_path / name)


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("Num_Py[x]>=1", "num-py"), ("a.b ; x", "a-b"), ("a@file:///x", "a"), ("--pre", ""), ("", "")],
)
def test_names_are_compared_as_indexes_do(requirement: str, name: str) -> None:
    assert name_in(requirement) == name
