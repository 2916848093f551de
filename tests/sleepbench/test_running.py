"""The processes for real: small benchmarks and a small demo, and that nothing is left behind, however they end."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from deskgrid import Grid
from deskgrid.sleepbench import compress, demo
from deskgrid.sleepbench.costs import Costs
from deskgrid.sleepbench.live import run_live
from deskgrid.sleepbench.processes import ProcessError, Processes, snapshot_of
from deskgrid.sleepbench.scenarios import Scenario
from deskgrid.wire.joinline import parse_join_line
from tests.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("places")]

# Of a hundredth of the given seconds: a second of a scenario is 10 ms.
SCALE = 0.01
# By how much a task may end later than predicted on a busy machine, if none is to be lost for it.
BUSY_MARGIN_S = 0.4


# --- the benchmark ---------------------------------------------------------------------------------------------------


def test_under_pgs_pcs_that_come_and_go_lose_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests run beside this one, and then a sleeper may wake late by more than the benchmark's margin.
    scale = 2 * SCALE
    monkeypatch.setattr("deskgrid.sleepbench.live.OPTIONS", {"pgs": {"queue_s": 0, "margin": BUSY_MARGIN_S}})
    tasks = tuple(float(seconds) for seconds in range(2, 50, 2))
    scenario = Scenario(9, tasks, uptimes=(60.0, 90.0, 150.0), restart=2.0)
    told: list[int] = []
    run = run_live(scenario, scale, "pgs", seed=0, progress=told.append)
    measured = run.measured
    assert (measured.kills, measured.planned_kills, measured.wasted_s) == (0, 0, 0.0)
    assert measured.makespan_s >= scenario.lower_bound_s * scale
    assert measured.slept_s >= scenario.work_s * scale
    assert measured.window_s >= measured.slept_s
    # All were up from the start: but for restarts, windows were open for the whole run.
    assert measured.window_s >= 0.8 * len(scenario.uptimes) * measured.makespan_s
    assert told == sorted(told)
    assert told[-1] == len(tasks)
    check_costs(run.costs, scenario, scale)


def check_costs(costs: Costs, scenario: Scenario, scale: float) -> None:
    """What such a run cost is what was to be expected: some of each kind was seen, and all of it was short."""
    assert costs.oversleep.count == len(scenario.tasks)
    for cost in (costs.oversleep, costs.gap, costs.opening, costs.late):
        assert cost.count > 0
        assert 0.0 <= cost.mean <= cost.most < PATIENCE_S
    # A task starts in a window that the broker knows of.
    assert costs.late.mean <= costs.opening.mean
    assert set(costs.first_closings) == {"pc1", "pc2", "pc3"}
    for closes, uptime in zip(sorted(costs.first_closings.values()), scenario.uptimes, strict=True):
        assert 0.0 < closes <= uptime * scale + PATIENCE_S


def test_under_fcfs_a_pc_that_leaves_too_soon_loses_its_tasks() -> None:
    # The first PC never stays as long as a task takes; the second does them all in the end.
    scenario = Scenario(9, tasks=(40.0,) * 6, uptimes=(20.0, 400.0), restart=2.0)
    measured = run_live(scenario, SCALE, "fcfs", seed=0, progress=lambda done: None).measured
    assert measured.kills == measured.planned_kills > 0
    assert measured.wasted_s >= 0.1
    assert measured.makespan_s >= 240.0 * SCALE


def test_pcs_that_stay_are_up_for_the_whole_run() -> None:
    scenario = Scenario(0, tasks=(20.0,) * 8, uptimes=(float("inf"),) * 2, restart=0.0)
    measured = run_live(scenario, SCALE, "pgs", seed=0, progress=lambda done: None).measured
    # Windows are counted from just before the bag is submitted to just after its end.
    assert 0.0 <= measured.window_s - 2 * measured.makespan_s < measured.makespan_s
    assert measured.kills == 0


# --- the demo --------------------------------------------------------------------------------------------------------


def test_the_demo_compresses_what_it_finds_and_says_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = compress.sources(compress.library())[::40]
    monkeypatch.setattr(demo, "sources", lambda root: chosen)
    monkeypatch.setattr(demo, "WINDOWS", {"pc1": (5.0, 0.5), "pc2": (26.0, 0.5)})
    monkeypatch.setattr(demo, "LONG_S", 0.2)
    file = tmp_path / "demo.json"
    result = CliRunner().invoke(demo.demo_command, ["--json", str(file)])
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text(encoding="utf-8"))
    assert list(written) == ["tasks", "done", "attempts", "departures", "planned_kills", "seconds"]
    assert 1 < written["tasks"] == written["done"]
    assert written["attempts"] >= written["done"]
    assert written["planned_kills"] == 0
    assert f"{len(chosen):,} files of {compress.library()}" in result.output
    assert "The most frequent names in its source: " in result.output
    last = result.output.rstrip().splitlines()[-1]
    assert last.startswith(f"{written['done']} of {written['tasks']} tasks done in {written['attempts']} attempts")
    assert last.endswith("tasks killed by a planned departure: 0")


def test_what_no_window_of_the_demo_has_room_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(root: Path, files: Sequence[compress.FileToCompress]) -> dict[tuple[str, str], compress.CompressionCost]:
        largest = max(file.size for file in files)
        return {
            (setting, kind): compress.CompressionCost(0.0, 2 * demo.LONGEST_S / largest)
            for setting in compress.SETTINGS
            for kind in compress.KINDS
        }

    chosen = compress.sources(compress.library())[::40]
    monkeypatch.setattr(demo, "sources", lambda root: chosen)
    monkeypatch.setattr(demo, "measure", slow)
    files, tasks = demo._work(Console(quiet=True))
    largest = max(files, key=lambda file: file.size).path
    assert tasks
    assert all(task.seconds <= demo.LONGEST_S / demo.CAUTION for task in tasks)
    assert largest not in [path for task in tasks for path in task.paths]


def test_a_python_without_the_source_of_its_library_has_no_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = [file for file in compress.sources(compress.library()) if file.kind != "source"]
    monkeypatch.setattr(demo, "sources", lambda root: compiled)
    result = CliRunner().invoke(demo.demo_command)
    assert result.exit_code == 1
    assert f"there is no source of the standard library in {compress.library()}" in result.output


def start_demo() -> "subprocess.Popen[str]":
    """The demo as a process, at work: its first lines have been read."""
    command = [sys.executable, "-P", "-m", "deskgrid.cli", "demo"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "files of" in process.stdout.readline()
    assert "One more task" in process.stdout.readline()
    assert "workers up" in process.stdout.readline()
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="there a signal cannot be sent to one process only")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing_behind(number: signal.Signals) -> None:
    process = start_demo()
    process.send_signal(number)
    _, complaint = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert complaint == "\ndeskgrid: you stopped it; its processes have ended, and it leaves nothing behind\n"


# --- processes -------------------------------------------------------------------------------------------------------


def test_workers_join_and_everything_ends_with_the_block(places: Path) -> None:
    with Processes() as processes:
        processes.start_worker("pc1")
        with Grid(processes.client_line) as grid:
            processes.wait_for(lambda: bool(snapshot_of(grid)["workers"]), "pc1 to join")
            # Not as measured: on a slow machine, tasks that were measured here would fit into no window.
            assert [(worker["name"], worker["speed"]) for worker in snapshot_of(grid)["workers"]] == [("pc1", 1.0)]
        port = parse_join_line(processes.client_line, "client").port
        assert listens(port)
        assert processes.folder.parent == places
    assert not listens(port)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of processes")
def test_no_secret_is_in_the_list_of_processes() -> None:
    with Processes() as processes:
        processes.start_worker("pc1")
        line = (processes.folder / "home" / "worker.join").read_text().strip()
        secret = line.rpartition("/")[2]
        running = list(processes._running.values())
        assert len(running) == 2
        for process in running:
            assert secret not in Path(f"/proc/{process.pid}/cmdline").read_text()


def listens(port: int) -> bool:
    """Whether anything accepts connections at ``port``."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except OSError:
        return False


def test_a_broker_that_refuses_its_options_is_an_error_with_its_own_words() -> None:
    with pytest.raises(ProcessError, match=r"broker ended with code 2: .*no policy 'nonsense'"):
        Processes("nonsense").__enter__()


def test_a_worker_that_ends_is_noticed(tmp_path: Path) -> None:
    malformed = tmp_path / "cycle"
    malformed.write_text("10\n", encoding="utf-8")
    with Processes() as processes:
        processes.start_worker("pc1", malformed)
        with pytest.raises(ProcessError, match=r"pc1 ended with code 2: .*two numbers"):
            processes.wait_for(lambda: False, "what never happens")


# What a process does that is killed with a grid of its own: it says where the broker is, and waits.
HOLDER = """
import sys
from deskgrid.wire.joinline import parse_join_line
from deskgrid.sleepbench.processes import Processes
with Processes() as processes:
    processes.start_worker("pc1")
    print(parse_join_line(processes.client_line, "client").port, processes.folder, flush=True)
    sys.stdin.read()
"""


def test_a_grid_ends_also_when_the_process_that_holds_it_is_killed(places: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ, text=True
    )
    assert process.stdout is not None
    port, folder = process.stdout.readline().split(maxsplit=1)
    assert listens(int(port))
    process.kill()
    process.communicate()
    assert eventually(lambda: not listens(int(port)), PATIENCE_S)
    # A process that is killed cannot remove its folder; but nothing may still be using it. A broker that has ended well
    # leaves no log beside its journal.
    assert eventually(lambda: not list((Path(folder.strip()) / "tmp").iterdir()), PATIENCE_S)
    assert eventually(lambda: not list((Path(folder.strip()) / "home").glob("*-wal")), PATIENCE_S)
    remove(Path(folder.strip()))


def remove(folder: Path) -> None:
    """Remove what a killed process left."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
