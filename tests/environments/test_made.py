"""From what is asked for to wheels for each sort of PC, with pip and without an index."""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deskgrid.client.environments import made as module
from deskgrid.client.environments import mine, resolve, store
from deskgrid.client.environments.asked import AskedEnvironment
from deskgrid.client.environments.made import Made, made
from deskgrid.client.environments.reasons import reason
from deskgrid.client.environments.store import WheelFolder
from deskgrid.errors import BagRejected
from deskgrid.wire import System, read_tree
from tests.wheels import make_wheel

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
LINUX = System(PYTHON, "linux_x86_64", 2, 35)
OLD_LINUX = System(PYTHON, "linux_x86_64", 2, 17)
WINDOWS = System(PYTHON, "win_amd64", 0, 0)
MAC = System(PYTHON, "macosx_arm64", 14, 5)
OURS = {"cloudpickle-99.0-py3-none-any.whl", "msgpack-99.0-py3-none-any.whl"}


def wheels(found: Made, system: System) -> set[str]:
    """The names of the wheels for a sort of PC, but those that every environment has."""
    build = found.environment.build_for(system)
    assert build is not None
    (tree,) = {tree.digest: tree for tree in found.trees if tree.digest == build.tree}.values()
    assert build.size == tree.size
    names = {entry.path for entry in read_tree(bytes(tree.parts[tree.digest].read())).entries}
    assert names >= OURS
    return names - OURS


def asked(*parts: str | Path, systems: Iterable[System] = (LINUX,), script: str = "") -> Made:
    return made(tuple(parts), (), script, systems)


def test_what_is_required_brings_what_it_requires(index: Path) -> None:
    for version in ("1.0", "2.0"):
        make_wheel(index, "alpha", version, requires=["beta<2"])
        make_wheel(index, "beta", version)
    found = asked("alpha")
    assert wheels(found, LINUX) == {"alpha-2.0-py3-none-any.whl", "beta-1.0-py3-none-any.whl"}
    assert found.environment.label == "alpha"
    (build,) = found.environment.builds
    assert build.unpacked > 0


def test_each_sort_of_pc_gets_its_own_wheels(index: Path) -> None:
    for tag in (f"{TAG}-{TAG}-manylinux_2_28_x86_64", f"{TAG}-{TAG}-win_amd64", f"{TAG}-abi3-macosx_11_0_arm64"):
        make_wheel(index, "alpha", tag=tag, requires=["coloured; sys_platform == 'win32'", "gnu; os_name == 'posix'"])
    make_wheel(index, "alpha", "0.9", tag=f"{TAG}-{TAG}-manylinux2014_x86_64")
    make_wheel(index, "coloured")
    make_wheel(index, "gnu")
    found = asked("alpha", systems=[LINUX, OLD_LINUX, WINDOWS, MAC])
    gnu = "gnu-1.0-py3-none-any.whl"
    assert wheels(found, LINUX) == {f"alpha-1.0-{TAG}-{TAG}-manylinux_2_28_x86_64.whl", gnu}
    assert wheels(found, OLD_LINUX) == {f"alpha-0.9-{TAG}-{TAG}-manylinux2014_x86_64.whl"}
    assert wheels(found, WINDOWS) == {f"alpha-1.0-{TAG}-{TAG}-win_amd64.whl", "coloured-1.0-py3-none-any.whl"}
    assert wheels(found, MAC) == {f"alpha-1.0-{TAG}-abi3-macosx_11_0_arm64.whl", gnu}


def test_pcs_that_get_the_same_wheels_share_a_build(index: Path) -> None:
    make_wheel(index, "alpha")
    found = asked("alpha", systems=[LINUX, OLD_LINUX])
    assert [build.system for build in found.environment.builds] == [OLD_LINUX]
    assert wheels(found, LINUX) == wheels(found, OLD_LINUX)


def test_the_second_time_nothing_is_resolved(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_wheel(index, "alpha")
    first = asked("alpha").environment
    path.unlink()
    monkeypatch.setattr(resolve, "run_pip", None)
    assert asked("alpha").environment == first


def test_after_a_week_it_is_resolved_again(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(index, "alpha")
    asked("alpha")
    make_wheel(index, "alpha", "2.0")
    assert wheels(asked("alpha"), LINUX) == {"alpha-1.0-py3-none-any.whl"}
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + store.RESOLVED_S + 1)
    assert wheels(asked("alpha"), LINUX) == {"alpha-2.0-py3-none-any.whl"}


def test_a_store_that_lost_a_wheel_or_is_damaged_gets_it_again(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    first = asked("alpha").environment
    (wheel,) = (tmp_path / "cache").rglob("alpha*.whl")
    wheel.write_bytes(b"damaged")
    assert asked("alpha").environment == first
    for note in (tmp_path / "cache" / "deskgrid" / "resolved").iterdir():
        note.write_text("{")
    assert asked("alpha").environment == first


def test_what_was_not_used_for_long_goes(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(index, "alpha")
    make_wheel(index, "beta")
    asked("alpha")
    folder = tmp_path / "cache" / "deskgrid"
    for place in (folder / "wheels").iterdir():
        os.utime(place, (1.0, 1.0))
    (folder / "new-left").mkdir()
    os.utime(folder / "new-left", (1.0, 1.0))
    asked("beta")
    assert {path.name for path in folder.rglob("*.whl")} == {"beta-1.0-py3-none-any.whl", *OURS}
    assert not (folder / "new-left").exists()
    monkeypatch.setattr(store, "KEPT_BYTES", 0)
    WheelFolder().note("x", [])
    assert not [*folder.rglob("*.whl")]


def test_a_forgotten_environment_is_resolved_again(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    make_wheel(index, "beta")
    asked("alpha")
    asked("beta")
    WheelFolder().forget({"alpha-1.0-py3-none-any.whl", *OURS})
    assert {path.name for path in (tmp_path / "cache").rglob("*.whl")} == {"beta-1.0-py3-none-any.whl", *OURS}
    make_wheel(index, "alpha", "2.0")
    assert wheels(asked("alpha"), LINUX) == {"alpha-2.0-py3-none-any.whl"}


def test_a_cache_that_cannot_be_written_is_named(index: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BagRejected, match=r"no wheels can be kept in .*cache"):
        asked("cloudpickle")


# --- what cannot be had ----------------------------------------------------------------------------------------------


def test_a_requirement_that_does_not_exist_is_named(index: Path) -> None:
    with pytest.raises(BagRejected, match="no package index has nowhere for these PCs: is its name right"):
        asked("nowhere")


def test_a_version_that_does_not_exist_is_named_with_those_that_do(index: Path) -> None:
    make_wheel(index, "alpha", "1.0")
    make_wheel(index, "alpha", "1.5")
    with pytest.raises(
        BagRejected, match=r"'alpha==2' for Python .*: there is no wheel of alpha==2; there are 1.0, 1.5"
    ):
        asked("alpha==2")


def test_a_platform_without_a_wheel_is_named_and_others_are_served(
    index: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_wheel(index, "alpha", tag=f"{TAG}-{TAG}-win_amd64")
    make_wheel(index, "alpha", tag="py3-none-linux_x86_64")
    with pytest.raises(BagRejected, match=r"macosx_arm64 \(macOS 14.5\): alpha exists, but no wheel of it fits"):
        asked("alpha", systems=[MAC])
    found = asked("alpha", systems=[MAC, WINDOWS])
    assert [build.system for build in found.environment.builds] == [WINDOWS]
    assert "no task of the bag can run on some PCs: the environment 'alpha' for Python" in caplog.text


def test_what_a_program_said_that_pip_ran_is_told() -> None:
    said = "fatal: unable to access 'https://x/': no host\nerror: failed\n\n× git clone did not run\n\nnote: not pip."
    for text, why in ((said, "unable to access 'https://x/': no host"), (said[50:], "git clone did not run")):
        assert reason(text, AskedEnvironment("z"), LINUX, lambda name: "").endswith(f": {why}")


def test_requirements_that_contradict_each_other_are_named(index: Path) -> None:
    make_wheel(index, "alpha", requires=["gamma==1.0"])
    make_wheel(index, "beta", requires=["gamma==2.0"])
    make_wheel(index, "gamma", "1.0")
    make_wheel(index, "gamma", "2.0")
    with pytest.raises(BagRejected, match=r"contradict each other: .*alpha 1.0 depends on gamma==1.0"):
        asked("alpha", "beta")


def test_requirements_that_contradict_each_other_directly_are_yours(index: Path) -> None:
    make_wheel(index, "alpha", "1.0")
    make_wheel(index, "alpha", "2.0")
    with pytest.raises(BagRejected, match=r"contradict each other: you ask for alpha==1.0; you ask for alpha==2.0$"):
        asked("alpha==1.0", "alpha==2.0")


@pytest.mark.parametrize("line", ["num py", "alpha=2", "alpha @ nowhere", "--nonsense"])
def test_what_is_no_requirement_is_named_without_the_file_that_pip_read(index: Path, line: str) -> None:
    with pytest.raises(BagRejected, match=f": '{line}' is not a requirement: give a name such as numpy") as refused:
        asked(line)
    assert "requirements.txt" not in str(refused.value)


def test_what_is_no_condition_is_named(index: Path) -> None:
    with pytest.raises(BagRejected, match=r"'python' after the semicolon is not a condition|is no requirement"):
        asked("alpha; python")


def test_a_wheel_for_a_later_python_is_named(index: Path) -> None:
    make_wheel(index, "alpha", python=">=3.99")
    with pytest.raises(BagRejected, match=r"alpha is for Python '>=3.99'"):
        asked("alpha")


def test_a_wheel_that_was_made_for_other_pcs_is_named(index: Path, tmp_path: Path) -> None:
    path = make_wheel(tmp_path, "alpha", tag=f"{TAG}-{TAG}-win_amd64")
    with pytest.raises(BagRejected, match=r"alpha.*win_amd64.whl was made for other PCs"):
        asked(path)
    assert wheels(asked(path, systems=[WINDOWS]), WINDOWS) == {path.name}


def test_without_pip_it_says_how_to_get_it(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BagRejected, match=r"needs pip .* run .* -m ensurepip, or install uv or, .* python3-pip"):
        asked("alpha")


def test_a_grid_whose_workers_say_nothing_is_named(index: Path) -> None:
    with pytest.raises(BagRejected, match="no worker of this grid says what it runs on"):
        asked("alpha", systems=[])


# --- files, locks and projects ---------------------------------------------------------------------------------------


def lock(path: Path, *found: Path, python: str = ">=3.11") -> Path:
    text = f'lock-version = "1.0"\nrequires-python = "{python}"\n'
    for wheel in found:
        name, version, *_ = wheel.name.split("-")
        digest = sha256(wheel.read_bytes()).hexdigest()
        text += f'[[packages]]\nname = "{name}"\nversion = "{version}"\n'
        text += f'wheels = [{{ hashes = {{ sha256 = "{digest}" }} }}]\n'
    path.write_text(text)
    return path


def test_a_lock_is_what_it_says_and_nothing_else(index: Path, tmp_path: Path) -> None:
    old = make_wheel(index, "alpha", "1.0", requires=["missing"])
    make_wheel(index, "alpha", "2.0")
    found = asked(lock(tmp_path / "pylock.toml", old), systems=[LINUX, WINDOWS])
    assert wheels(found, LINUX) == wheels(found, WINDOWS) == {old.name}
    assert found.environment.label == "pylock.toml"


def test_a_wheel_that_is_not_what_the_lock_says_is_refused(index: Path, tmp_path: Path) -> None:
    locked = lock(tmp_path / "pylock.toml", make_wheel(index, "alpha"))
    make_wheel(index, "alpha", files={"alpha.py": "raise SystemExit"})
    with pytest.raises(BagRejected, match="a wheel is not what its hash says: lock it again"):
        asked(locked)


def test_a_lock_for_another_python_says_for_which_and_which_pcs_have_what(index: Path, tmp_path: Path) -> None:
    locked = lock(tmp_path / "pylock.toml", make_wheel(index, "alpha"), python=">=3.99")
    with pytest.raises(
        BagRejected, match=rf"pylock.toml is for Python >=3.99, and the PCs have Python {PYTHON} on linux"
    ):
        asked(locked)


@pytest.mark.parametrize(
    ("clauses", "allows"),
    [
        ("", True),
        (">=3.11", True),
        (">=3.11,<3.12", True),
        (">=3.12", False),
        ("<3.11", False),
        ("<3.11.4", True),
        ("==3.11.*", True),
        ("==3.10.*", False),
        ("!=3.11.3", True),
        ("!=3.11.*", False),
        ("~=3.10", True),
        ("~=3.12", False),
        (">3.10, <4", True),
        ("<=3", True),
        ("==3", True),
        ("odd", True),
    ],
)
def test_versions_of_python_are_compared(clauses: str, allows: bool) -> None:
    assert module._allows(clauses, "3.11") is allows


def test_requirements_with_hashes_and_others_go_together(index: Path, tmp_path: Path) -> None:
    alpha, beta = make_wheel(index, "alpha"), make_wheel(index, "beta")
    make_wheel(index, "beta", "2.0")
    digest = sha256(alpha.read_bytes()).hexdigest()
    path = tmp_path / "requirements.txt"
    path.write_text(f"alpha==1.0 \\\n    --hash=sha256:{digest}\nbeta<2\n")
    assert wheels(asked(path), LINUX) == {alpha.name, beta.name}


def test_a_script_brings_what_its_comment_names(index: Path, tmp_path: Path) -> None:
    make_wheel(index, "alpha")
    script = tmp_path / "run.py"
    script.write_text('# /// script\n# dependencies = ["alpha"]\n# ///\n')
    assert wheels(asked("script", script=str(script)), LINUX) == {"alpha-1.0-py3-none-any.whl"}
    with pytest.raises(BagRejected, match="for a program in a file"):
        asked("script")


BACKEND = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.wheels import make_wheel

def build_wheel(folder, settings=None, metadata=None):
    if "refuse" in Path("lab.py").read_text():
        raise SystemExit("no compiler here")
    return make_wheel(Path(folder), "lab", "0.1", {{"lab.py": Path("lab.py").read_text()}}, requires=["alpha"]).name
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that builds itself."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "lab"\n'
    )
    (folder / "backend.py").write_text(BACKEND.format(root=str(Path(__file__).parents[2])))
    (folder / "lab.py").write_text("x = 1\n")
    return folder


def test_a_project_is_built_once_and_again_when_it_changes(
    index: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(index, "alpha")
    first = asked(project)
    assert wheels(first, LINUX) == {"lab-0.1-py3-none-any.whl", "alpha-1.0-py3-none-any.whl"}
    assert first.environment.label == "project"
    with monkeypatch.context() as patch:
        patch.setattr(resolve, "run_pip", None)
        assert asked(project).environment == first.environment
    (project / "lab.py").write_text("x = 22\n")
    assert asked(project).environment != first.environment
    (project / "lab.py").write_text("refuse")
    with pytest.raises(BagRejected, match=r"project cannot be built into a wheel: .*no compiler here"):
        asked(f"-e {project}")


# --- mine ------------------------------------------------------------------------------------------------------------


def installed(folder: Path, name: str, version: str, requires: str = "", project: str = "") -> None:
    """Install a distribution with one module of its name."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    needed = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
    (info / "RECORD").write_text(f"{name}.py,,\n{info.name}/METADATA,,\n")
    (folder / f"{name}.py").write_text("")
    if project:
        (info / "direct_url.json").write_text(json.dumps({"url": f"file://{project}", "dir_info": {}}))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions."""
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for function in (mine._by_module, mine.project_of):
        function.cache_clear()
    return folder


def test_mine_is_what_is_used_at_the_versions_that_are_installed(index: Path, here: Path) -> None:
    installed(here, "alpha", "1.5", requires="beta>=1; sys_platform != 'win32'")
    installed(here, "beta", "1.2")
    installed(here, "unused", "3.0")
    for version in ("1.5", "2.0"):
        make_wheel(
            index, "alpha", version, requires=["beta>=1; sys_platform != 'win32'", "gone; sys_platform == 'win32'"]
        )
    for version in ("1.2", "2.0"):
        make_wheel(index, "beta", version)
    make_wheel(index, "gone", "0.1")
    found = made(("mine",), ["alpha.inner", "nobodys"], "", [LINUX, WINDOWS])
    assert wheels(found, LINUX) == {"alpha-1.5-py3-none-any.whl", "beta-1.2-py3-none-any.whl"}
    assert wheels(found, WINDOWS) == {"alpha-1.5-py3-none-any.whl", "gone-0.1-py3-none-any.whl"}
    assert found.environment.label == "mine"


def test_a_version_that_only_this_machine_has_is_named_with_advice(index: Path, here: Path) -> None:
    installed(here, "alpha", "1.5")
    make_wheel(index, "alpha", "1.0")
    with pytest.raises(BagRejected, match=r"contradict each other: .*alpha==1.5 \(\"mine\" asks for the versions"):
        made(("mine",), ["alpha"], "", [LINUX])


def test_mine_brings_what_was_installed_from_a_folder_as_a_wheel(index: Path, here: Path, project: Path) -> None:
    installed(here, "lab", "0.1", requires="alpha", project=str(project))
    installed(here, "alpha", "1.0")
    make_wheel(index, "alpha", "1.0")
    make_wheel(index, "alpha", "2.0")
    found = made(("mine",), ["lab"], "", [LINUX])
    assert wheels(found, LINUX) == {"lab-0.1-py3-none-any.whl", "alpha-1.0-py3-none-any.whl"}


def test_of_a_namespace_that_several_share_only_those_used_come(here: Path) -> None:
    for name in ("one", "two"):
        installed(here, f"ns_{name}", "1.0")
        (here / f"ns_{name}-1.0.dist-info" / "RECORD").write_text(f"ns/{name}/a.py,,\n")
        (here / "ns" / name).mkdir(parents=True)
        (here / "ns" / name / "a.py").touch()  # Python 3.13 leaves out files that are not there
        (here / f"ns_{name}-1.0.dist-info" / "top_level.txt").write_text("ns\n")
    assert mine.asked_of(["ns.two.a"]).lines == ("ns-two",)
    assert mine.asked_of(["ns"]).lines == ("ns-one", "ns-two")


# --- uv --------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for uv is a script")
def test_uv_resolves_where_it_is_and_pip_where_it_cannot(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = sha256(make_wheel(index, "alpha").read_bytes()).hexdigest()
    ours = [sha256((index / name).read_bytes()).hexdigest() for name in sorted(OURS)]
    make_wheel(index, "alpha", "2.0")
    answer = [
        f"alpha==1.0 --hash=sha256:{digest}",
        *(f"{n}==99.0 --hash=sha256:{h}" for n, h in zip(resolve.NEEDS, ours, strict=True)),
    ]
    uv = tmp_path / "uv"
    lines = "\n".join(answer)
    uv.write_text(f'#!/bin/sh\nif [ "$UV_FAILS" ]; then exit 2; fi\necho "$@" > {tmp_path}/asked\necho "{lines}"\n')
    uv.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(uv))
    assert wheels(asked("alpha"), LINUX) == {"alpha-1.0-py3-none-any.whl"}
    said = (tmp_path / "asked").read_text()
    assert f"--python-version {PYTHON} --python-platform x86_64-manylinux_2_35" in said
    monkeypatch.setenv("UV_FAILS", "1")
    assert wheels(asked("alpha"), LINUX) == {"alpha-2.0-py3-none-any.whl"}


@pytest.mark.parametrize(
    ("system", "first", "count"),
    [
        (LINUX, "manylinux_2_35_x86_64", 35),
        (System(PYTHON, "linux_aarch64", 2, 28), "manylinux_2_28_aarch64", 14),
        (System(PYTHON, "musllinux_x86_64", 1, 2), "musllinux_1_2_x86_64", 3),
        (MAC, "macosx_14_5_arm64", 1),
        (WINDOWS, "win_amd64", 1),
        (System(PYTHON, "win32", 0, 0), "win32", 1),
    ],
)
def test_all_wheels_that_a_pc_can_use_are_considered(system: System, first: str, count: int) -> None:
    found = resolve.platforms(system)
    assert (found[0], len(found)) == (first, count)
    assert set(resolve.conditions(system)) >= {"sys_platform", "platform_machine", "python_full_version"}
    assert isinstance(resolve._uv_platform(system), str)


# --- wheels that no PC would unpack -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"leave_out": ["RECORD"]}, "it has no RECORD"),
        ({"files": {"bad.py": "", "Bad.py": ""}}, "is there twice, at least where case does not count"),
        ({"files": {"bad-1.0.data/scripts/python3": ""}}, "would be Python itself in an environment"),
        ({"scripts": {"python": "bad:main"}}, "would be Python itself in an environment"),
    ],
)
def test_a_wheel_that_no_pc_can_unpack_is_refused_before_anything_is_sent(
    index: Path, tmp_path: Path, how: dict[str, Any], why: str
) -> None:
    wheel = make_wheel(tmp_path / "mine", "bad", **how)
    with pytest.raises(BagRejected, match=rf"no PC can unpack bad-1.0-py3-none-any.whl: .*{why}"):
        asked(wheel)
    assert not list((tmp_path / "cache").rglob("bad-*.whl"))
