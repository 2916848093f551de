"""A kit: what is in it, what it refuses, and that its script installs without an index."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from deskgrid.client.environments.asked import AskedEnvironment
from deskgrid.client.environments.store import Wheel
from deskgrid.errors import BagRejected
from deskgrid.kit import make
from deskgrid.wire import System
from tests.cli.fakes import deskgrid
from tests.wheels import installed_wheel, make_wheel

HERE = f"3.{sys.version_info.minor}"
UNIX = pytest.mark.skipif(sys.platform == "win32", reason="a script of the shell")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[System, Sequence[str]]]:
    """What is asked for, for which sorts of PCs. Each gets a wheel for all, and one of its own."""
    found: list[tuple[System, Sequence[str]]] = []

    def wheels_for(wanted: AskedEnvironment, system: System, store: object) -> list[Wheel]:
        found.append((system, wanted.lines))
        tag = f"cp{system.python.replace('.', '')}-none-{system.platform}"
        paths = [make_wheel(tmp_path / "got", "plain"), make_wheel(tmp_path / "got", "built", tag=tag)]
        return [Wheel(path.name, "", str(path), 0, 0) for path in paths]

    monkeypatch.setattr(make, "wheels_for", wheels_for)
    own = make_wheel(tmp_path / "own", "deskgrid", "7.0+wire9", requires=["plain>=1", "built", 'x; extra == "plot"'])
    monkeypatch.setattr(make, "own_wheel", lambda folder: own)
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    return found


def test_it_has_the_wheels_of_all_sorts_of_pcs_once_and_the_scripts(
    asked: list[tuple[System, Sequence[str]]], tmp_path: Path
) -> None:
    out = tmp_path / "lab.zip"
    result = deskgrid("kit", "--python", "3.11,3.12", "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, f"wrote {out}\n")
    assert [(system.python, system.platform) for system, _ in asked] == [
        ("3.11", "linux_x86_64"),
        ("3.12", "linux_x86_64"),
        ("3.11", "win_amd64"),
        ("3.12", "win_amd64"),
    ]
    assert asked[0][1] == ("pip", "plain>=1", "built")
    with zipfile.ZipFile(out) as archive:
        names = [name.removeprefix("deskgrid-kit/") for name in archive.namelist()]
        assert archive.read("deskgrid-kit/VERSION") == b"7.0+wire9\n"
        assert archive.read("deskgrid-kit/PYTHONS") == b"3.11\n3.12\n"
        assert b"\r" not in archive.read("deskgrid-kit/install.sh")
        assert b"\r\n" in archive.read("deskgrid-kit/install.ps1")
    assert names[:6] == ["README.txt", "install.sh", "deskgrid.yml", "install.ps1", "VERSION", "PYTHONS"]
    assert len(names) == len(set(names)) == 6 + 1 + 1 + 4
    assert os.listdir(tmp_path / "own") == ["deskgrid-7.0+wire9-py3-none-any.whl"]


def test_a_kit_for_one_platform_has_only_its_script(asked: list[tuple[System, Sequence[str]]], tmp_path: Path) -> None:
    out = tmp_path / "lab.zip"
    assert deskgrid("kit", "--platform", "windows", "--python", "3.13", "--out", str(out)).exit_code == 0
    with zipfile.ZipFile(out) as archive:
        assert {"install.sh", "deskgrid.yml"}.isdisjoint(Path(name).name for name in archive.namelist())
    assert [system.platform for system, _ in asked] == ["win_amd64"]


@pytest.mark.usefixtures("asked")
def test_what_cannot_be_made_is_one_line_and_leaves_the_kit_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "lab.zip"
    out.write_text("the last one")

    def none(*args: object) -> list[Wheel]:
        raise BagRejected("pyzmq has no wheel for Python 3.99")

    monkeypatch.setattr(make, "wheels_for", none)
    result = deskgrid("kit", "--out", str(out))
    assert (result.exit_code, result.stderr) == (2, "deskgrid: pyzmq has no wheel for Python 3.99\n")
    assert out.read_text() == "the last one"
    assert "is not a version such as 3.12" in deskgrid("kit", "--python", "python3").stderr
    assert "needs a version such as 3.12" in deskgrid("kit", "--python", ",").stderr
    assert "needs Python 3.11 or later, not 3.9" in deskgrid("kit", "--python", "3.12,3.9").stderr


def test_a_folder_that_is_not_there_is_named_before_anything_is_fetched(
    asked: list[tuple[System, Sequence[str]]], tmp_path: Path
) -> None:
    result = deskgrid("kit", "--python", "3.12", "--out", str(tmp_path / "none" / "lab.zip"))
    assert (result.exit_code, result.stderr) == (2, f"deskgrid: there is no folder {tmp_path / 'none'}\n")
    assert asked == []


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such files")
def test_what_is_no_file_is_not_replaced_and_what_cannot_be_written_is_known_at_once(
    asked: list[tuple[System, Sequence[str]]], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert deskgrid("kit", "--out", str(pipe)).stderr == f"deskgrid: {pipe} is not a file: it is not replaced\n"
    assert pipe.is_fifo()
    assert deskgrid("kit", "--out", "").stderr == "deskgrid: . is not a file: it is not replaced\n"
    long = tmp_path / ("x" * 300)
    assert deskgrid("kit", "--out", str(long)).stderr == f"deskgrid: {long} cannot be written: File name too long\n"
    assert asked == []


@pytest.mark.usefixtures("asked")
def test_a_link_stays_and_the_kit_is_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    link, place = tmp_path / "lab.zip", tmp_path / "share" / "kit.zip"
    link.symlink_to(place)
    assert deskgrid("kit", "--python", "3.12", "--out", str(link)).exit_code == 0
    assert link.is_symlink()
    assert zipfile.is_zipfile(place)
    assert os.listdir(place.parent) == ["kit.zip"]


# --- the script ------------------------------------------------------------------------------------------------------


def unpacked(tmp_path: Path, version: str = "1.0", pythons: str = HERE) -> Path:
    """A kit with a program that says its version, and the pip of this Python."""
    kit, modules = tmp_path / f"kit-{version}", {"deskgrid/__init__.py": "", "deskgrid/cli.py": ""}
    wheels = kit / "wheels"
    make_wheel(wheels, "deskgrid", version, modules)
    installed_wheel(wheels, "pip")
    source = Path(make.__file__).parent
    shutil.copy(source / "install.sh", kit)
    (kit / "VERSION").write_text(f"{version}\n")
    (kit / "PYTHONS").write_text(f"{pythons}\n")
    return kit


def run(kit: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(kit / "install.sh"), *options], capture_output=True, text=True, timeout=120, check=False
    )


@UNIX
@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="the script is for root")
def test_the_script_installs_and_a_newer_kit_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    prefix = tmp_path / "opt" / "grid"
    prefix.parent.mkdir()
    how = ["--no-service", "--prefix", str(prefix), "--python", sys.executable]
    for version in ("1.0", "1.1"):
        done = run(unpacked(tmp_path, version), *how)
        assert (done.returncode, done.stdout) == (0, f"deskgrid {version} is in {prefix}\n"), done.stderr
        assert os.readlink(prefix) == f"{prefix}-{version}"
        asked = [str(prefix / "bin/python"), "-c", "from importlib.metadata import version as v; print(v('deskgrid'))"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == f"{version}\n"
    again = run(tmp_path / "kit-1.1", *how).stdout
    assert again.splitlines()[0] == f"deskgrid 1.1 is in {prefix}-1.1 already"
    assert (prefix.parent / "grid-1.0").is_dir(), "it may run: only the restart of the service ends it"


@UNIX
@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="the script is for root")
def test_the_script_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    kit = unpacked(tmp_path, pythons="3.99")
    mine = tmp_path / "mine"
    mine.mkdir()
    for options, said in (
        (["--nothing"], "there is no option --nothing: see sh install.sh --help"),
        (["--join"], "--join needs a value"),
        (["--join", "/no/such"], "/no/such cannot be read"),
        (["--accounts", "many"], "--accounts needs a number, not many"),
        (["--prefix", "here"], "--prefix needs a whole path, such as /opt/deskgrid, not here"),
        (["--prefix", str(mine)], f"{mine} is there, and not made by this script: move it away, or give --prefix"),
        (["--python", "/no/such"], "/no/such is no Python that starts"),
        (["--python", sys.executable], f"{sys.executable} is Python {HERE}, and this kit is for 3.99"),
        ([], "there is no Python here of the versions of this kit: 3.99"),
    ):
        done = run(kit, "--no-service", *options)
        assert (done.returncode, done.stderr) == (1, f"install.sh: {said}\n")
    assert not list(tmp_path.glob("mine-*"))
