"""The processes of `Grid.local`: they start together, and all are gone at the end, however the program ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deskgrid.client import local
from deskgrid.errors import GridUnreachable
from tests.architecture.reading import ROOT
from tests.waiting import eventually

FAKE = Path(__file__).with_name("fakeprogram.py")
# A program that starts a local grid, says where it is, and then does nothing until it is killed.
PROGRAM = """
import sys
from deskgrid.client import local
keeper = local.start(2, sys.argv[1:])
print(keeper.home, flush=True)
sys.stdin.read()
"""
EVERYONE = ["broker", "local-1", "local-2"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ours can be imported wherever a process is started; homes are made in the test's own folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TEMP", str(tmp_path))


def program(folder: Path) -> list[str]:
    return [sys.executable, str(FAKE), str(folder)]


def told(folder: Path, what: str) -> list[str]:
    """Who has started, or ended."""
    return sorted(path.name.removeprefix(f"{what}-") for path in folder.glob(f"{what}-*"))


def homes(folder: Path) -> list[Path]:
    return list(folder.glob("deskgrid-local-*"))


def test_a_grid_starts_with_its_workers_and_ends_without_a_trace(tmp_path: Path) -> None:
    keeper = local.start(2, program(tmp_path))
    try:
        assert keeper.join == "client@127.0.0.1:1/insecure"
        assert homes(tmp_path) == [keeper.home]
        assert eventually(lambda: told(tmp_path, "started") == EVERYONE)
        assert told(tmp_path, "ended") == []
        # Anybody on this machine can see what a process was started with: no join line is there, but where it lies.
        for name in EVERYONE:
            options = (tmp_path / f"started-{name}").read_text()
            assert "/insecure" not in options
            assert (f"--join @{keeper.home / 'worker.join'}" in options) == name.startswith("local")
    finally:
        keeper.stop()
    assert told(tmp_path, "ended") == EVERYONE
    assert homes(tmp_path) == []


def test_the_broker_ends_after_its_workers(tmp_path: Path) -> None:
    local.start(2, program(tmp_path)).stop()
    assert (tmp_path / "ended-broker").read_text() == "ended-local-1 ended-local-2"


def test_each_worker_joins_by_the_brokers_line_with_one_slot_of_speed_1(tmp_path: Path) -> None:
    keeper = local.start(1, program(tmp_path))
    keeper.stop()
    options = (tmp_path / "started-local-1").read_text()
    own = f"--home {keeper.home} --name local-1 --slots 1 --speed 1 --nice 0 --owner ignore"
    assert options == f"--join @{keeper.home / 'worker.join'} {own} --until-stdin-closes"


@pytest.mark.skipif(sys.platform == "win32", reason="no such sockets there")
def test_the_broker_listens_on_a_socket_in_a_folder_that_only_this_user_can_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory(dir="/tmp") as short:  # the path of a socket has a limit
        monkeypatch.setenv("TMPDIR", short)
        keeper = local.start(1, program(tmp_path))
        assert keeper.home.stat().st_mode & 0o777 == 0o700
        keeper.stop()
    assert f"--listen ipc:{keeper.home}/socket --insecure" in (tmp_path / "started-broker").read_text()


@pytest.mark.parametrize(("platform", "longest"), [("win32", 100), ("linux", 10)])
def test_without_such_a_socket_the_broker_listens_on_this_machine_with_keys(
    monkeypatch: pytest.MonkeyPatch, platform: str, longest: int
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(local, "SOCKET_PATH", longest)
    assert local._listen(Path("/tmp/deskgrid-local-x")) == ["--listen", "127.0.0.1:0"]


def test_a_program_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *program(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline()
        assert eventually(lambda: told(tmp_path, "started") == EVERYONE)
        killed.kill()
    assert eventually(lambda: told(tmp_path, "ended") == EVERYONE)
    assert eventually(lambda: homes(tmp_path) == [])


@pytest.mark.skipif(sys.platform == "win32", reason="there no signal lets a process clean up: its folder stays")
def test_a_keeper_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    keeper = local.start(2, program(tmp_path))
    assert eventually(lambda: told(tmp_path, "started") == EVERYONE)
    os.kill(keeper.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
    assert eventually(lambda: told(tmp_path, "ended") == EVERYONE)
    keeper.stop()
    assert homes(tmp_path) == []


def test_a_program_that_is_gone_before_its_grid_has_started_is_told_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "deskgrid.client.local", "2", "[]", *program(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        assert keeper.stderr is not None
        keeper.stdout.close()
        assert keeper.stderr.read() == b""
    assert told(tmp_path, "ended") == told(tmp_path, "started")
    assert homes(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there no signal lets a process clean up: it starts its grid first")
def test_a_program_that_is_interrupted_while_its_grid_starts_waits_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *program(tmp_path)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as interrupted:
        assert eventually(lambda: told(tmp_path, "started") == EVERYONE)
        interrupted.send_signal(signal.SIGINT)
        assert interrupted.wait(local.KEEPER_STOP_S) == -signal.SIGINT
    assert told(tmp_path, "ended") == []  # they were killed
    assert homes(tmp_path) == []


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    with pytest.raises(GridUnreachable, match="the local grid did not start: the home is of a newer version"):
        local.start(2, program(tmp_path))
    assert homes(tmp_path) == []


def test_a_program_that_is_not_there_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GridUnreachable, match="the local grid did not start"):
        local.start(1, [str(tmp_path / "nothing")])
    assert homes(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="process groups of POSIX; Windows has a flag for it")
def test_the_terminals_interrupt_does_not_reach_the_grid(tmp_path: Path) -> None:
    keeper = local.start(1, program(tmp_path))
    try:
        assert os.getsid(keeper.pid) != os.getsid(0)
    finally:
        keeper.stop()


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_an_impossible_number_of_workers_is_refused(workers: int) -> None:
    with pytest.raises(ValueError, match="a local grid has 1 worker or more"):
        local.start(workers)
    with pytest.raises(ValueError, match="a local grid has 1 slot per worker or more"):
        local.start(1, slots=workers)
