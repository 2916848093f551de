"""A grid of both systems: broker, client and one worker are here, the other worker is the Python of ``make windows``.

``tests/machines/windows.sh tests`` sets the variable, and runs the tests of Windows itself on that machine.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from deskgrid import File, Grid
from tests.live import ROOT, WORKER, LiveGrid, live_grid
from tests.waiting import eventually
from tests.wheels import installed_wheel, make_wheel

MACHINE = os.environ.get("DESKGRID_TEST_WINDOWS", "")
SCRIPT = ROOT / "tests" / "machines" / "windows.sh"
on_machine = pytest.mark.skipif(not MACHINE, reason="it needs the machine that make windows makes")
# A worker under Wine starts in three seconds on a quiet machine.
START_S = 60.0


@contextmanager
def worker_on_windows(live: LiveGrid, home: Path) -> Iterator[None]:
    """The worker ``win`` has joined; it ends with its stdin."""
    home.mkdir()
    argv = [f"{MACHINE}/python", "-m", "deskgrid.cli", *WORKER, "--join", live.broker.ready.worker_line]
    argv += ["--name", "win", "--slots", "1", "--home", f"Z:{home}/home", "--files", f"Z:{home}/files"]
    # Into a file: Wine's console would keep a pipe open.
    with (
        open(home / "log", "wb") as log,
        subprocess.Popen(
            [*argv, "--until-stdin-closes"], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
        ) as process,
    ):
        try:
            joined = eventually(lambda: "joined" in (home / "log").read_text(errors="replace"), START_S)
            assert joined, (home / "log").read_text(errors="replace")
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(START_S)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Wheels that any system can use: one to ask for, and those that each environment needs."""
    folder = tmp_path / "index"
    make_wheel(folder, "alpha")
    installed_wheel(folder, "cloudpickle")
    told = metadata.distribution("msgpack")
    sources = [file for file in told.files or () if file.suffix == ".py"]  # without its C code, it is slower
    make_wheel(folder, "msgpack", told.version, {str(file): file.read_text() for file in sources})
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    return folder


@on_machine
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the PC with Windows has 3.11, and calls need ours")
@pytest.mark.timeout(240)
def test_one_bag_with_a_file_and_an_environment_runs_on_both_systems(tmp_path: Path, index: Path) -> None:
    def met(item: tuple[str, File]) -> tuple[str, str, str]:
        """Wait until this has begun on both systems, so that neither runs both tasks."""
        import alpha  # type: ignore[import-not-found]

        meeting, given = item
        (Path(meeting) / sys.platform).touch()
        deadline = time.monotonic() + 60
        while len(os.listdir(meeting)) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {os.listdir(meeting)}")
        return sys.platform, Path(given).read_text(), alpha.VERSION

    given, meeting = tmp_path / "given", tmp_path / "meeting"
    given.write_text("1\n2\n", newline="")
    meeting.mkdir()
    with (
        live_grid(tmp_path / "home", workers=1, lease_s=20.0) as live,
        worker_on_windows(live, tmp_path / "win"),
        Grid(live.broker.ready.client_line) as grid,
    ):
        bag = grid.bag(met, [(str(meeting), File(given))] * 2, runtime=1, env=["alpha"])
        assert sorted(bag.results()) == [(name, "1\n2\n", "1.0") for name in ("linux", "win32")]


@pytest.mark.skipif(sys.platform == "win32", reason="it makes a Windows on Linux")
def test_what_is_missing_to_make_a_windows_is_named(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "env"):
        (programs / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [str(SCRIPT), "make", str(tmp_path / "machine")],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": str(programs)},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "wine is missing: apt install wine64 wine gcc-mingw-w64-x86-64-win32\n"
    assert not (tmp_path / "machine").exists()
