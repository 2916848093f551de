"""Wheels that nobody should use: each is refused with its reason, and nothing outside its folder changes."""

import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.worker.environments import install
from deskgrid.worker.environments.install import Refused, Trouble, unpack
from tests.wheels import make_wheel


def refused(wheel: Path) -> str:
    """Why a wheel is refused; nothing appears beside its folder."""
    place = wheel.parent / "place"
    place.mkdir()
    with pytest.raises(Refused) as caught:
        unpack(str(wheel), str(place / "unpacked"))
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
    with pytest.raises(Refused, match=r"0 folders \.dist-info"):
        unpack(str(wheel), str(tmp_path / "place" / "unpacked"))


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
    with pytest.raises(Trouble, match=r"it takes 0\.0 MB, [\d,]+ MB have to stay free, and the disk has [\d,]+ MB$"):
        unpack(str(make_wheel(tmp_path, "good")), str(tmp_path / "unpacked"))


@pytest.mark.skipif(sys.platform == "win32", reason="environments have no such programs on Windows")
def test_a_wheel_can_put_no_program_in_the_place_of_python(tmp_path: Path) -> None:
    files = {"bad-1.0.data/scripts/python": "#!python\n", "bad-1.0.data/data/pyvenv.cfg": "home = /evil\n"}
    wheel = make_wheel(tmp_path, "bad", "1.0", files, scripts={"python3": "bad:main"})
    unpack(str(wheel), str(tmp_path / "unpacked"))
    made = install.make(str(tmp_path / "env"), str(tmp_path / "unpacked"))
    assert (tmp_path / "env" / "bin" / "python").is_symlink()
    assert Path(str(made["python"])).resolve() == Path(sys.executable).resolve()
    assert "evil" not in (tmp_path / "env" / "pyvenv.cfg").read_text()


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
    argv = [sys.executable, "-c", PROMPT, install.__file__, "unpack", str(wheel), str(tmp_path / "out")]
    measured = subprocess.run([sys.executable, "-c", MEASURED, *argv], stdout=subprocess.PIPE, check=True)
    assert int(measured.stdout.split()[-1]) < 1.2 * 2**20
    assert {path.name.split(".")[0] for path in (tmp_path / "out").rglob("*.pyc")} == {"small"}
