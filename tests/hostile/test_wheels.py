"""Wheels that nobody should use: each is refused with its reason, and nothing outside its folder changes."""

import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from deskgrid.worker.environments import install
from deskgrid.worker.environments.install import ABOUT, FILES, Trouble, WheelRefused, about_of
from tests.waiting import PATIENCE_S
from tests.wheels import make_wheel


def unpack(wheel: Path, folder: Path) -> dict[str, object]:
    """Unpack a wheel into a new folder, as a worker does; what was said."""
    (folder / FILES).mkdir(parents=True)
    said = dict[str, object]()
    for more in install.unpack(str(wheel), str(folder / FILES)):
        said |= more
    (folder / ABOUT).write_text(about_of(said).text())
    return said


def refused(wheel: Path) -> str:
    """Why a wheel is refused; nothing appears beside its folder."""
    place = wheel.parent / "place"
    with pytest.raises(WheelRefused) as caught:
        unpack(wheel, place / "unpacked")
    assert {path.name for path in place.iterdir()} == {"unpacked"}
    assert {path.name for path in wheel.parent.iterdir()} == {wheel.name, "place"}
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "../escaped.py",
        "a/../../escaped.py",
        "/tmp/escaped.py",
        "a\\escaped.py",
        "C:escaped.py",
        "a//b.py",
        "a/b./c.py",
        "a/\x00b.py",
        "a/\x1bb.py",
        "x" * 2000,
        "/".join(["a"] * 40),
    ],
)
def test_a_name_that_could_lead_elsewhere_or_that_not_every_system_has(tmp_path: Path, name: str) -> None:
    wheel = tmp_path / "bad-1.0-py3-none-any.whl"
    with zipfile.ZipFile(make_wheel(tmp_path, "bad")) as good, zipfile.ZipFile(tmp_path / "other", "w") as archive:
        for info in good.infolist():
            archive.writestr(info, good.read(info))
        info = zipfile.ZipInfo("placeholder.py")
        info.filename = name
        archive.writestr(info, b"")
    (tmp_path / "other").rename(wheel)
    assert "cannot be the name of a file" in refused(wheel)


def rewritten(tmp_path: Path, change: Callable[[zipfile.ZipFile], None]) -> Path:
    wheel = make_wheel(tmp_path, "bad")
    with zipfile.ZipFile(wheel, "a") as archive:
        change(archive)
    return wheel


def test_a_link(tmp_path: Path) -> None:
    def add(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")

    assert "is a link" in refused(rewritten(tmp_path, add))


@pytest.mark.parametrize(("names", "why"), [(["A.py", "a.PY"], "twice"), (["p/x.py", "P/y.py"], "twice")])
def test_names_that_are_one_where_case_does_not_count(tmp_path: Path, names: list[str], why: str) -> None:
    assert why in refused(make_wheel(tmp_path, "bad", "1.0", dict.fromkeys(names, "")))


def test_a_name_that_is_a_file_and_a_folder(tmp_path: Path) -> None:
    assert "a file and a folder" in refused(make_wheel(tmp_path, "bad", "1.0", {"a": "", "A/b.py": ""}))


@pytest.mark.parametrize(
    ("names", "why"),
    [(["p/x.py", "p/x.py"], "twice"), (["p/X.py", "p/x.py"], "twice"), (["p", "p/x.py"], "a file and a folder")],
)
def test_two_files_for_one_place(tmp_path: Path, names: list[str], why: str) -> None:
    first, second = names
    assert why in refused(make_wheel(tmp_path, "bad", "1.0", {first: "", f"bad-1.0.data/purelib/{second}": ""}))


def test_a_file_that_is_not_what_record_says(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "bad", "1.0", {"bad.py": "x"}, record={"bad.py": "sha256=" + 43 * "A"})
    assert refused(wheel) == "'bad.py' is not what RECORD says"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"bad.py": ""}, "RECORD has no hash of 'bad.py'"),
        ({"bad.py": "md5=AAAA"}, "RECORD has hashes of the kind 'md5'"),
        ({"bad.py": "sha256=A"}, "is not what RECORD says"),
        ({"more.py": "sha256=AAAA"}, "RECORD names 'more.py', which is not in it"),
    ],
)
def test_a_record_that_says_too_little_or_too_much(tmp_path: Path, record: dict[str, str], why: str) -> None:
    said = refused(make_wheel(tmp_path, "bad", "1.0", {"bad.py": "x"}, record=record))
    assert why in said or "its RECORD cannot be read" in said


@pytest.mark.parametrize("name", ["RECORD", "WHEEL"])
def test_a_wheel_without_what_every_wheel_has(tmp_path: Path, name: str) -> None:
    assert refused(make_wheel(tmp_path, "bad", leave_out=(name,))).startswith(("it has no", "RECORD names"))


def test_something_that_is_no_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "bad.whl"
    wheel.write_bytes(b"not a wheel")
    assert "not a whole wheel" in refused(wheel)
    (tmp_path / "place" / "unpacked").rename(tmp_path / "gone")
    with zipfile.ZipFile(wheel, "w"):
        pass
    with pytest.raises(WheelRefused, match=r"0 folders \.dist-info"):
        unpack(wheel, tmp_path / "place" / "unpacked")


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_kind_of_compression_that_not_every_python_has(tmp_path: Path, kind: int) -> None:
    """A damaged one is not the trouble of the PC either."""
    wheel = rewritten(tmp_path, lambda archive: archive.writestr("more.py", "VALUE = 1\n", compress_type=kind))
    assert "'more.py' is compressed in a way that wheels are not" in refused(wheel)


def test_an_archive_that_needs_a_later_version_of_zipfile(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "bad", "1.0", {"a.py": "VALUE = 1\n"})
    data = bytearray(wheel.read_bytes())
    entry = data.index(b"PK\1\2")
    data[entry + 6] = 99  # 9.9
    wheel.write_bytes(data)
    assert "not a whole wheel: zip file version 9.9" in refused(wheel)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "BYTES_LIMIT", 1_000_000)
    wheel = make_wheel(tmp_path, "bad", "1.0", {"zeros.bin": bytes(1_000_001)})
    assert wheel.stat().st_size < 10_000
    assert "more than 1,000,000 bytes" in refused(wheel)


def test_a_file_with_more_bytes_than_the_wheel_says(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "bad", "1.0", {"zeros.bin": bytes(100_000)})
    data = bytearray(wheel.read_bytes())
    for place in range(len(data)):  # its size, wherever the archive says it
        if data[place : place + 4] == (100_000).to_bytes(4, "little"):
            data[place : place + 4] = (10).to_bytes(4, "little")
    wheel.write_bytes(data)
    assert refused(wheel)


def test_more_files_than_any_wheel_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "FILES_LIMIT", 3)
    assert "at most 3" in refused(make_wheel(tmp_path, "bad"))


def test_a_full_disk_is_this_pcs_trouble_and_not_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "FREE_BYTES", 2**60)
    with pytest.raises(Trouble, match=r"it takes 0\.1 MB, [\d,]+ MB have to stay free, and the disk has [\d,]+ MB$"):
        unpack(make_wheel(tmp_path, "good"), tmp_path / "unpacked")


# Runs a command, then prints the most memory that it had, in KiB. That of the tests would have many children.
MEASURED = """
import resource, subprocess, sys
with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as unpacking:  # it ends when its input does
    assert unpacking.wait() == 0
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
# Runs install.py, but not at idle priority: beside other tests it might not get to compile within two minutes.
PROMPT = """
import os, runpy, sys
os.nice = lambda steps: 0
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no process like this")
def test_a_source_that_takes_gigabytes_to_compile_has_no_bytecode(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "huge", files={"huge.py": f"x = [{'1,' * 2**21}]\n", "small.py": "x = 1\n"})
    (tmp_path / "out").mkdir()
    argv = [sys.executable, "-c", PROMPT, install.__file__, "0", "unpack", str(wheel), str(tmp_path / "out")]
    measured = subprocess.run([sys.executable, "-c", MEASURED, *argv], stdout=subprocess.PIPE, check=True)
    assert int(measured.stdout.split()[-1]) < 1.2 * 2**20
    assert {path.name.split(".")[0] for path in (tmp_path / "out").rglob("*.pyc")} == {"small"}


# --- names that mean something else ----------------------------------------------------------------------------------

# What is Python's own in an environment, on any system, by the part of a wheel that would bring it.
PYTHONS_OWN = [
    "data/pyvenv.cfg",
    "data/PyVenv.cfg",
    "data/pyvenv.cfg/x",
    "data/pybuilddir.txt",
    "data/python._pth",
    "data/bin/pyvenv.cfg",
    "data/bin/python",
    "data/bin/python3/x",
    "data/BIN/Python3.11",
    "data/bin/python3.13t",
    "data/bin/python3.11._pth",
    "data/Scripts/python.exe",
    "data/Scripts/pythonw.exe",
    "data/Scripts/python311.dll",
    "data/Scripts/vcruntime140.dll",
    "data/Scripts/pyvenv.cfg",
    "scripts/pyvenv.cfg",
    "scripts/pybuilddir.txt",
    "scripts/python._pth",
    "scripts/PYTHON",
    "scripts/python3.11",
    "headers/../../pyvenv.cfg",
]


@pytest.mark.parametrize("name", PYTHONS_OWN)
def test_a_wheel_cannot_bring_python_or_its_settings(tmp_path: Path, name: str) -> None:
    said = refused(make_wheel(tmp_path, "bad", files={f"bad-1.0.data/{name}": "home = /evil\n"}))
    assert "of Python in an environment" in said or "Python itself" in said or "not a path below the folder" in said


@pytest.mark.parametrize("name", ["python", "python3", "Python3.11", "pyvenv.cfg", "python._pth"])
def test_no_program_of_a_wheel_is_called_like_python_or_its_settings(tmp_path: Path, name: str) -> None:
    assert "would be Python itself" in refused(make_wheel(tmp_path, "bad", scripts={name: "bad:main"}))


def test_programs_that_only_begin_like_python_are_as_good_as_others(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "good", scripts={"python-argcomplete": "good:main", "pythonic": "good:main"})
    assert unpack(wheel, tmp_path / "unpacked")["scripts"] == {
        "python-argcomplete": ("good", "main"),
        "pythonic": ("good", "main"),
    }


@pytest.mark.skipif(sys.platform == "win32", reason="environments have other files on Windows")
def test_what_python_has_in_an_environment_stays_whatever_a_wheel_is_called_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later Python may have files of which `unpack` does not know."""
    files = {"bad-1.0.data/data/pyvenv.cfg": "home = /evil\n"}
    monkeypatch.setattr(install, "_check_python", lambda places, scripts: None)
    unpack(make_wheel(tmp_path, "bad", "1.0", files), tmp_path / "unpacked")
    with pytest.raises(WheelRefused, match=r"'pyvenv\.cfg' is Python's own in an environment"):
        [*install.make(str(tmp_path / "env"), str(tmp_path / "unpacked"))]
    assert "evil" not in (tmp_path / "env" / "pyvenv.cfg").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="environments have no such link on Windows")
@pytest.mark.parametrize(
    "names",
    [
        ("x", "x/y"),
        ("x/y", "x"),
        ("lib", "a"),
        pytest.param(("lib64", "a"), marks=pytest.mark.skipif(sys.version_info >= (3, 15), reason="no such link")),
    ],
)
def test_a_file_where_another_wheel_has_a_folder(tmp_path: Path, names: tuple[str, str]) -> None:
    """It is nobody's trouble but theirs."""
    for name, path in zip(("one", "two"), names, strict=True):
        wheel = make_wheel(tmp_path, name, files={f"{name}.py": "", f"{name}-1.0.data/data/{path}": ""})
        unpack(wheel, tmp_path / name)
    with pytest.raises(WheelRefused, match="is a folder of another wheel, or inside of a file"):
        [*install.make(str(tmp_path / "env"), str(tmp_path / "one"), str(tmp_path / "two"))]


@pytest.mark.parametrize(
    "name",
    ["aux.py", "p/NUL", "com1.tar.gz", "Lpt9", "con .txt", "conin$", "COM\u00b9", "PYVENV~1.CFG", "p/python~12", "a:b"],
)
def test_a_name_by_which_windows_means_something_else(tmp_path: Path, name: str) -> None:
    assert "cannot be the name of a file" in refused(make_wheel(tmp_path, "bad", files={name: ""}))


@pytest.mark.parametrize("name", ["console.py", "com.py", "auxiliary.py", "com10.py", "nul_.py", "a~b.py"])
def test_a_name_that_only_looks_like_that_is_as_good_as_others(tmp_path: Path, name: str) -> None:
    unpack(make_wheel(tmp_path, "good", files={name: ""}), tmp_path / "unpacked")


def test_names_that_are_one_where_it_does_not_count_how_letters_are_composed(tmp_path: Path) -> None:
    assert "twice" in refused(make_wheel(tmp_path, "bad", files={"caf\u00e9.py": "", "cafe\u0301.py": ""}))


@pytest.mark.parametrize("name", ["..", ".", "bad name", "bad\u00e9", "-"])
def test_a_wheel_whose_own_name_is_none(tmp_path: Path, name: str) -> None:
    """Its headers would be in a folder of that name."""
    wheel = make_wheel(tmp_path, name, "1.0", {f"{name}-1.0.data/headers/pyvenv.cfg": ""})
    said = refused(wheel)
    assert "is not a name with a version" in said or "cannot be the name of a file" in said


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such modes on Windows")
def test_files_have_no_rights_that_only_the_archive_gives_them(tmp_path: Path) -> None:
    names = {"bad-1.0.data/scripts/tool": 0o555, "data.bin": 0o555, "plain.bin": 0o444}
    with zipfile.ZipFile(make_wheel(tmp_path, "bad", files=dict.fromkeys(names, "#!python\n"))) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    wheel = tmp_path / "other-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for info, data in entries:
            info.external_attr = (stat.S_IFREG | (0o7666 if info.filename == "plain.bin" else 0o7777)) << 16
            archive.writestr(info, data)
    unpack(wheel, tmp_path / "unpacked")
    files = tmp_path / "unpacked" / FILES
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files.rglob("*") if path.is_file()}
    assert {name: modes[name.rpartition("/")[2]] for name in names} == names


# --- how much there is -----------------------------------------------------------------------------------------------


def test_a_small_wheel_that_would_become_a_large_one_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "bad", files={"zeros.bin": bytes(install.RATIO_FROM_BYTES + 1)})
    said = refused(wheel)
    assert said.startswith("it has 16,777,")
    assert "more than 64 times its" in said


def test_a_little_of_what_can_be_compressed_well_is_no_bomb(tmp_path: Path) -> None:
    unpack(make_wheel(tmp_path, "good", files={"zeros.bin": bytes(2**20)}), tmp_path / "unpacked")


def test_files_of_an_archive_that_share_their_bytes(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "bad", files={"data.bin": Path(sys.executable).read_bytes()[:100_000]})
    with zipfile.ZipFile(wheel, "a") as archive:
        first = archive.getinfo("data.bin")
        for number in range(40):
            again = copy(first)
            again.filename = again.orig_filename = f"data{number}.bin"
            archive.filelist.append(again)
        archive.writestr("more.py", "")  # has the list of files written again
    said = refused(wheel)
    assert "overlap" in said or "is not a whole wheel" in said


def test_what_a_wheel_needs_is_said_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    steps = install.unpack(str(make_wheel(tmp_path, "good", files={"a.py": "x = 1\n" * 1000})), str(tmp_path / "files"))
    needs = next(steps)["needs"]
    assert not [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    said = dict[str, Any]()
    for more in steps:
        said |= more
    assert needs > said["bytes"] + said["compiled"] > 6000


def test_sources_whose_bytecode_is_much_larger_have_only_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "BYTECODE_ANYWAY_BYTES", 0)
    source = "lambda:0\n" * 500
    said = unpack(make_wheel(tmp_path, "bad", files={f"m{number}.py": source for number in range(8)}), tmp_path / "out")
    kept = [path.stat().st_size for path in (tmp_path / "out").rglob("*.pyc")]
    assert 0 < len(kept) < 8
    assert said["compiled"] == sum(kept) <= 8 * install.BYTECODE_RATIO * len(source)


def test_compiling_ends_when_it_has_taken_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "COMPILING_S", 0)
    monkeypatch.setattr(install, "_limit_time", lambda until: None)
    assert unpack(make_wheel(tmp_path, "good"), tmp_path / "unpacked")["compiled"] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no process like this")
def test_a_module_that_takes_forever_to_compile_ends_the_process_and_not_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    wheel = make_wheel(tmp_path, "good", files={"good.py": "x = 1\n"})
    code = (
        "import builtins, itertools, json, time\n"
        f"import sys; sys.path.insert(0, {str(Path(install.__file__).parent)!r})\n"
        "import install\n"
        "install.COMPILING_S = 1\n"
        "builtins.compile = lambda *args, **how: sum(itertools.repeat(0))\n"
        f"for said in install.unpack({str(wheel)!r}, {str(tmp_path / 'out')!r}):\n"
        "    print(json.dumps(said), flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=PATIENCE_S)
    assert ended.returncode == -signal.SIGXCPU
    assert b'"unpacked": true' in ended.stdout
    assert not [*(tmp_path / "out").rglob("*.pyc")]
