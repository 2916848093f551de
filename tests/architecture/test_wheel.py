"""The wheel installs one name, with everything below it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from deskgrid.wire import VERSION
from tests.architecture.reading import ROOMS, ROOT, files


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a wheel of this checkout installs."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(place)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site-packages")
    return place / "site-packages"


def run(installed: Path, *arguments: str) -> str:
    """What a Python says that finds deskgrid there, and is far from the checkout."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    ran = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=installed.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_one_name_is_installed(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} == {"deskgrid", f"deskgrid-{VERSION}.dist-info"}


def test_all_our_source_is_below_it(installed: Path) -> None:
    expected = {file if file.startswith("deskgrid/") else f"deskgrid/{file}" for file in files("deskgrid", *ROOMS)}
    found = {path.relative_to(installed).as_posix() for path in installed.rglob("*.py")}
    assert found == expected
    others = {PurePosixPath(path).name for path in installed.joinpath("deskgrid").rglob("*.*") if path.suffix != ".py"}
    tables = {"assumptions.toml", "fits.toml", "lublin.toml", "paper.toml"}
    kit = {"install.sh", "install.ps1", "deskgrid.yml", "README.txt"}
    page = {"page.html", "page.css", "page.js", "token.html", "icon.svg"}
    assert others == {"README.md", "py.typed", *tables, *kit, *page}


def test_what_is_installed_works_by_itself(installed: Path) -> None:
    assert "Run a grid:" in run(installed, "-m", "deskgrid.cli", "--help")
    simulate = ["sleepbench", "simulate", "--paper", "--scenario", "1", "--policy", "pgs", "--runs", "1"]
    assert "makespan" in run(installed, "-m", "deskgrid.cli", *simulate)
    sdpn = ["sdpn", "--experiment", "turnaround", "--case", "1/fcfs/normal", "--policy", "sdpn", "--runs", "1"]
    assert "mean deviation" in run(installed, "-m", "deskgrid.cli", "sleepbench", "paper", *sdpn, "--processes", "1")
    program = """
import sys, deskgrid, deskgrid.broker.server, deskgrid.scheduler.core, deskgrid.worker.agent
from deskgrid.scheduler.policies import make_policy
print(deskgrid.Grid, deskgrid.TaskCrashed, make_policy("tla").parallel.where)
print(*deskgrid.__path__)
print(sorted({"broker", "papers", "scheduler", "sleepbench", "worker"} & set(sys.modules)))
"""
    *_, path, old = run(installed, "-c", program).splitlines()
    assert path == str(installed / "deskgrid")
    assert old == "[]"
