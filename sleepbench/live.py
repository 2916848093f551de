"""The paper's Section 4.2 on a real grid: broker, eight PCs and their tasks are processes of this machine.

Rule 1: only the clock is ours. Everything else goes the way of any bag: submitted by the client, placed by the broker,
run by workers that know nothing of the benchmark but the cycle file that says when they are up.
Rule 2: all PCs open their first window together, and time is counted from submitting, which follows at once. To that
end each cycle file begins with a window too short to be noticed, and then with being away until that moment.
Rule 3: sleeping takes no CPU, so that two cores are enough for eight PCs.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskgrid import Bag, Grid
from deskgrid.sleepbench.costs import Costs, Nap, Opened, measure
from deskgrid.sleepbench.history import PastWindow, read_history
from deskgrid.sleepbench.naps import nap
from deskgrid.sleepbench.processes import Processes, snapshot_of, write_cycle
from deskgrid.sleepbench.scenarios import Measured, Scenario
from deskgrid.sleepbench.simulated import with_seed
from deskgrid.wire.status import StatusDocument

# What starting a task costs does not shrink with the scale, so neither does the margin. Measured with eight PCs on two
# cores, between the end of a task and the start of the next: 2 ms, and 9 ms at worst. But a virtual machine that others
# share wakes a sleeper up to 110 ms late, and then a margin of 0.05 s or 0.1 s lost a task now and then. At scale 0.02
# this one is 7.5 of the paper's seconds, and lengthens a run by 3 to 6 %.
MARGIN_S = 0.15

# Options of each policy, by name; the rest are its defaults. Seconds of the broker, so not the paper's.
# queue_s 0: the paper knows no queues measured in seconds, and one of the broker's is 50 of the paper's at scale 0.02.
# fcfs queues nothing: a queue that knows no uptimes only loses its tasks with the PC.
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "packing": {"queue_s": 0, "margin": MARGIN_S},
    "pgs": {"queue_s": 0, "margin": MARGIN_S},
    "longest": {"margin": MARGIN_S},
    "fcfs": {"queue_s": 0, "queue_length": 0},
}

# The window that nobody notices, at the beginning of a cycle file.
UNNOTICED_S = 1e-6
# Starting a PC takes about as long as starting the broker, and PCs start one after the other, so that each takes
# equally long; their first windows open when they have had this many times that long, and at least so many seconds.
LEAD_FACTOR = 2.5
LEAD_LEAST_S = 2.0
# Cycle files are written out for this long, in the paper's seconds: ten times as long as the longest run.
CYCLES_S = 24 * 3600.0
# Between two looks at how far the bag is.
LOOK_S = 0.25

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What a run came to, and what it cost beside the work."""

    measured: Measured
    costs: Costs


def policy_options(policy: str) -> Mapping[str, object]:
    """The options that ``policy`` runs with; an installed one has its defaults."""
    return OPTIONS.get(policy, {})


def run_live(scenario: Scenario, scale: float, policy: str, seed: int, progress: Progress) -> LiveRun:
    """One run of ``scenario`` (in the paper's seconds) with every time multiplied by ``scale``.

    ``seed``: for a policy that draws lots. ``progress`` is told the number of tasks that are done, now and then. Raises
    `ProcessError`, or the client's errors.
    """
    scaled = scenario.scaled(scale)
    before = time.monotonic()
    with Processes(policy, with_seed(policy, policy_options(policy), seed)) as processes:
        start_took = time.monotonic() - before
        with Grid(processes.client_line) as grid:
            _start_pcs(processes, grid, scaled, scale, start_took)
            bag = _run_bag(processes, grid, scaled, progress)
        processes.stop()
        windows = [*_opened(read_history(processes.home).windows, scaled, bag.submitted_at)]
    return LiveRun(bag.measured, measure(bag.naps, windows))


def _start_pcs(processes: Processes, grid: Grid, scenario: Scenario, scale: float, start_took: float) -> None:
    """Start all PCs; returns when all their first windows are open."""
    count = len(scenario.uptimes)
    opening = time.monotonic() + max(LEAD_LEAST_S, LEAD_FACTOR * count * start_took)
    for number, uptime in enumerate(scenario.uptimes, start=1):
        cycle = None
        if uptime != math.inf:
            pairs = cycle_pairs(uptime, scenario.restart, opening - time.monotonic(), CYCLES_S * scale)
            cycle = write_cycle(processes.folder / f"pc{number}.cycle", pairs)
        _start_pc(processes, grid, f"pc{number}", cycle)
    processes.wait_for(lambda: len(_names(snapshot_of(grid), "up")) == count, "all PCs to be up")


def _start_pc(processes: Processes, grid: Grid, name: str, cycle: Path | None) -> None:
    processes.start_worker(name, cycle)
    processes.wait_for(lambda: name in _names(snapshot_of(grid)), f"{name} to join")


def _names(snapshot: StatusDocument, state: str = "") -> set[str]:
    """The workers that the broker knows, or those of them in ``state``."""
    return {worker["name"] for worker in snapshot["workers"] if not state or worker["state"] == state}


def cycle_pairs(uptime: float, restart: float, opens_in: float, length: float) -> Iterator[tuple[float, float]]:
    """Pairs of seconds up and down for ``length`` seconds, of a PC whose first window opens in ``opens_in`` seconds."""
    if opens_in > UNNOTICED_S:
        yield UNNOTICED_S, opens_in - UNNOTICED_S
    for _ in range(math.ceil(length / (uptime + restart))):
        yield uptime, restart


@dataclass(frozen=True, slots=True)
class _Watched:
    """A bag that was run. ``submitted_at``: POSIX seconds."""

    measured: Measured
    naps: Sequence[Nap]
    submitted_at: float


def _run_bag(processes: Processes, grid: Grid, scenario: Scenario, progress: Progress) -> _Watched:
    start = snapshot_of(grid)
    started, submitted_at = time.monotonic(), time.time()
    bag = grid.bag(nap, scenario.tasks, runtime=scenario.tasks, name=f"scenario {scenario.number}")
    _wait(processes, bag, progress)
    makespan = time.monotonic() - started
    end = snapshot_of(grid)
    done = zip(scenario.tasks, bag.results(), strict=True)
    naps = [Nap(pc, asked, began - started, ended - started) for asked, (pc, began, ended) in done]
    measured = Measured(
        makespan_s=makespan,
        window_s=window_s(end) - window_s(start),
        slept_s=math.fsum(one.ended - one.started for one in naps),
        wasted_s=end["counters"]["wasted_s"],
        kills=end["counters"]["kills"],
        planned_kills=end["counters"]["planned_kills"],
    )
    return _Watched(measured, naps, submitted_at)


def _opened(windows: Iterable[PastWindow], scenario: Scenario, submitted_at: float) -> Iterator[Opened]:
    """The windows in the journal, counted from submitting: each was planned to last as long as its PC stays."""
    uptimes = {f"pc{number}": uptime for number, uptime in enumerate(scenario.uptimes, start=1)}
    for window in windows:
        known = window.opened - submitted_at
        if window.planned is None:
            yield Opened(window.worker, known, known, math.inf)
        else:
            closes = window.planned - submitted_at
            yield Opened(window.worker, closes - uptimes[window.worker], known, closes)


def _wait(processes: Processes, bag: Bag[Any, Any], progress: Progress) -> None:
    while not bag.wait(LOOK_S):
        processes.check()
        progress(bag.progress().done)
    progress(len(bag))


def window_s(snapshot: StatusDocument) -> float:
    """Seconds that windows have been open so far, of all slots: those that have closed, and those that are open."""
    open_now = (worker["opened_s"] * len(worker["slots"]) for worker in snapshot["workers"] if worker["state"] == "up")
    return snapshot["counters"]["window_s"] + math.fsum(open_now)
