"""Processes that are stopped while the owner of the PC uses it: with all that they started, and without losing time."""

import sys
import time
from pathlib import Path

import pytest

from deskgrid.wire import Outcome
from deskgrid.worker.run.scope import with_descendants
from tests.executor.rig import Rig, alive, call, python_template, value, written
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what descends from a process")


def states(pid: int) -> set[str]:
    """In what states a process is, and all that descend from it."""
    rows = [Path(f"/proc/{each}/stat").read_text() for each in with_descendants(pid)]
    return {row.rpartition(")")[2].split()[0] for row in rows}


def family(path: str, stopped: bool = False) -> float:
    """Write this process and a child, which has left its session, to ``path``; go on when ``path``.go is there."""
    import os
    import signal
    import subprocess
    import time

    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if stopped:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)  # until it has stopped
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(path + ".new", path)
    while not os.path.exists(path + ".go"):
        time.sleep(0.005)
    return 7.0


def began(rig: Rig, path: Path, timeout: float | None = None, stopped: bool = False) -> tuple[int, int]:
    """A `family` runs: its process, and the child."""
    digest = rig.know(python_template(family))
    rig.executor.run(0, rig.jobs(digest, call(str(path), stopped), timeout=timeout))
    rig.until_running()
    assert eventually(lambda: bool(rig.poll()) or path.exists())
    process, child = written(path).split()
    return int(process), int(child)


def test_all_that_a_task_has_started_stops_and_goes_on(rig: Rig, tmp_path: Path) -> None:
    process, _ = began(rig, tmp_path / "it")
    rig.executor.pause(time.monotonic())
    assert eventually(lambda: states(process) == {"T"})
    (tmp_path / "it.go").touch()
    assert rig.poll() == []
    rig.executor.go_on(time.monotonic())
    assert value(rig.until(1)[0]) == 7.0


def test_what_a_task_has_stopped_itself_stays_so(rig: Rig, tmp_path: Path) -> None:
    process, child = began(rig, tmp_path / "it", stopped=True)
    rig.executor.pause(time.monotonic())
    assert eventually(lambda: states(process) == {"T"})
    rig.executor.go_on(time.monotonic())
    assert eventually(lambda: "T" not in Path(f"/proc/{process}/stat").read_text().split()[2])
    assert states(child) == {"T"}
    (tmp_path / "it.go").touch()
    rig.until(1)


def test_no_timeout_and_no_runtime_counts_a_pause(rig: Rig, tmp_path: Path) -> None:
    began(rig, tmp_path / "it", timeout=1000.0)
    now = time.monotonic()
    rig.executor.pause(now)
    assert rig.executor.poll(now + 5000.0) == []
    assert rig.executor.next_deadline(now + 5000.0) is None
    ((*_, elapsed),) = rig.executor.running(now + 5000.0)
    assert elapsed < 100.0
    rig.executor.go_on(now + 5000.0)
    assert rig.executor.poll(now + 5001.0) == []
    (ended,) = rig.executor.poll(now + 6001.0)
    assert ended.outcome is Outcome.TIMEOUT


def test_the_elapsed_time_that_a_task_reports_is_without_pauses(rig: Rig, tmp_path: Path) -> None:
    began(rig, tmp_path / "it")
    rig.executor.pause(time.monotonic())
    rig.executor.go_on(time.monotonic() + 3600.0)  # so long as nobody can have waited
    (tmp_path / "it.go").touch()
    (ended,) = rig.until(1)
    assert ended.elapsed == 0.0


def test_a_stopped_task_can_be_killed_with_all_that_it_started(rig: Rig, tmp_path: Path) -> None:
    process, child = began(rig, tmp_path / "it")
    rig.executor.pause(time.monotonic())
    assert eventually(lambda: states(process) == {"T"})
    assert len(rig.executor.stop(0, time.monotonic())) == 1
    assert eventually(lambda: not alive(process) and not alive(child))
