"""The paper's Section 4.2 on a real grid: broker, eight PCs and their tasks are processes on this machine.

Rule 1: only the time measurement is the benchmark's own. Otherwise this is a normal bag: the client submits it, the
broker places it, and the workers that run it know only the cycle file with their windows.
Rule 2: all PCs open their first window at the same moment. The bag is submitted right after that, and time counts from
then. To make this work, each cycle file begins with an unnoticeably short window, after which the PC is away until
that moment.
Rule 3: sleeping takes no CPU, so two cores are enough for eight PCs.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from deskgrid import Bag, Grid
from deskgrid.scheduler.policies import packs_singles
from deskgrid.sleepbench.costs import Costs, Nap, Opened, measure
from deskgrid.sleepbench.history import PastWindow, read_history
from deskgrid.sleepbench.naps import nap
from deskgrid.sleepbench.processes import Processes, snapshot_of, write_cycle
from deskgrid.sleepbench.scenarios import Measurements, Scenario
from deskgrid.sleepbench.simulated import with_seed
from deskgrid.wire.status import StatusDocument

# The cost of starting a task does not shrink with the scale, so the margin does not either. With eight PCs on two
# cores, the time between the end of a task and the start of the next was 2 ms, and 9 ms at worst. But a shared virtual
# machine wakes a sleeper up to 110 ms late, and then margins of 0.05 s and 0.1 s lost a task now and then. At scale
# 0.02 this margin is 7.5 of the paper's seconds, and lengthens a run by 3 to 6 %.
MARGIN_S = 0.15

# Options of each policy, by name; the other options have their defaults. Times are real seconds, not the paper's.
# queue_s is 0, because the paper has no queues measured in seconds, and one real second is 50 of the paper's seconds at
# scale 0.02. fcfs queues nothing: it ignores uptimes, so its queues would only lose their tasks with the PC.
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "packing": {"queue_s": 0, "margin": MARGIN_S},
    "pgs": {"queue_s": 0, "margin": MARGIN_S},
    "longest": {"margin": MARGIN_S},
    "fcfs": {"queue_s": 0, "queue_length": 0},
}

# The unnoticeable window at the beginning of a cycle file.
UNNOTICED_S = 1e-6
# Starting a PC takes about as long as starting the broker. PCs start one after the other, so that each start takes
# equally long. Their first windows open after this many times the expected duration, but not before LEAD_LEAST_S.
LEAD_FACTOR = 2.5
LEAD_LEAST_S = 2.0
# Cycle files cover this long, in the paper's seconds: ten times as long as the longest run.
CYCLES_S = 24 * 3600.0
# Seconds between two checks of the bag's progress.
LOOK_S = 0.25

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The result of a run, and its overhead."""

    measured: Measurements
    costs: Costs


def policy_options(policy: str) -> Mapping[str, object]:
    """The options with which ``policy`` runs: those of packing if it packs single tasks, none if nothing is known."""
    return OPTIONS["packing"] if packs_singles(policy) else OPTIONS.get(policy, {})


def run_live(scenario: Scenario, scale: float, policy: str, seed: int, progress: Progress) -> LiveRun:
    """One run of ``scenario`` (in the paper's seconds) with every time multiplied by ``scale``.

    ``seed``: for a policy that decides at random. ``progress`` is called now and then with the number of tasks that are
    done. Raises `ProcessError`, or the client's errors.
    """
    scaled = scenario.scaled(scale)
    pcs = [LivePC(f"pc{number}", up, scaled.restart) for number, up in enumerate(scaled.uptimes, start=1)]
    with live_grid(policy, seed) as live:
        live.wait_till_open(pcs, live.start_pcs(pcs, scale))
        bag = _run_bag(live, scaled, progress)
        live.stop()
        windows = [*_opened(read_history(live.processes.home).windows, scaled, bag.submitted_at)]
    return LiveRun(bag.measured, measure(bag.naps, windows))


class LivePC(NamedTuple):
    """A PC to start: how long it stays (infinite: always), and is away then. ``more``: arguments of its worker."""

    name: str
    uptime: float
    restart: float
    speed: float = 1.0
    more: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LiveGrid:
    """The processes of a live run, and a client. ``start_took``: how long the broker took to start, as each PC does."""

    processes: Processes
    grid: Grid
    start_took: float

    def start_pcs(self, pcs: Sequence[LivePC], scale: float) -> float:
        """Start all PCs, one after the other: each takes equally long. Returns when their first windows open."""
        opening = time.monotonic() + max(LEAD_LEAST_S, LEAD_FACTOR * len(pcs) * self.start_took)
        for name, uptime, restart, speed, more in pcs:
            cycle = None
            if uptime < math.inf:
                pairs = cycle_pairs(uptime, restart, opening - time.monotonic(), CYCLES_S * scale)
                cycle = write_cycle(self.processes.folder / f"{name}.cycle", pairs)
            self.processes.start_worker(name, cycle, more, speed)
            self.processes.wait_for(partial(self._knows, name), f"{name} to join")
        return opening if any(pc.uptime < math.inf for pc in pcs) else time.monotonic()

    def wait_till_open(self, pcs: Sequence[LivePC], opening: float) -> None:
        """Wait until all PCs are up."""
        wait_till(opening)
        self.processes.wait_for(lambda: self._up() == len(pcs), "all PCs to be up")

    def wait(self, bags: Collection[Bag[Any, Any]], progress: Progress) -> None:
        """Wait until all tasks of ``bags`` have ended."""
        for bag in bags:
            while not bag.wait(LOOK_S):
                self.processes.check()
                progress(sum(bag.progress().done for bag in bags))
        progress(sum(map(len, bags)))

    def stop(self) -> None:
        """End all processes in order; their files stay for as long as the context."""
        self.grid.shutdown()
        self.processes.stop()

    def _knows(self, name: str) -> bool:
        return any(worker["name"] == name for worker in snapshot_of(self.grid)["workers"])

    def _up(self) -> int:
        return sum(worker["state"] == "up" for worker in snapshot_of(self.grid)["workers"])


@contextmanager
def live_grid(policy: str, seed: int) -> Iterator[LiveGrid]:
    """A broker with this policy. ``seed``: for one that decides at random."""
    before = time.monotonic()
    with Processes(policy, with_seed(policy, policy_options(policy), seed)) as processes:
        took = time.monotonic() - before
        with Grid(processes.client_line) as grid:
            yield LiveGrid(processes, grid, took)


def wait_till(moment: float) -> None:
    """Sleep until then, on the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))


def cycle_pairs(uptime: float, restart: float, opens_in: float, length: float) -> Iterator[tuple[float, float]]:
    """Pairs of seconds up and down, for ``length`` seconds. The PC's first window opens in ``opens_in`` seconds."""
    if opens_in > UNNOTICED_S:
        yield UNNOTICED_S, opens_in - UNNOTICED_S
    for _ in range(math.ceil(length / (uptime + restart))):
        yield uptime, restart


@dataclass(frozen=True, slots=True)
class _WatchedBag:
    """A bag that has run. ``submitted_at``: POSIX seconds."""

    measured: Measurements
    naps: Sequence[Nap]
    submitted_at: float


def _run_bag(live: LiveGrid, scenario: Scenario, progress: Progress) -> _WatchedBag:
    start = snapshot_of(live.grid)
    started, submitted_at = time.monotonic(), time.time()
    bag = live.grid.bag(nap, scenario.tasks, runtime=scenario.tasks, name=f"scenario {scenario.number}")
    live.wait([bag], progress)
    makespan = time.monotonic() - started
    end = snapshot_of(live.grid)
    done = zip(scenario.tasks, bag.results(), strict=True)
    naps = [Nap(pc, asked, began - started, ended - started) for asked, (pc, began, ended) in done]
    measured = Measurements(
        makespan_s=makespan,
        window_s=window_s(end) - window_s(start),
        slept_s=math.fsum(one.ended - one.started for one in naps),
        wasted_s=end["counters"]["wasted_s"],
        kills=end["counters"]["kills"],
        planned_kills=end["counters"]["planned_kills"],
    )
    return _WatchedBag(measured, naps, submitted_at)


def _opened(windows: Iterable[PastWindow], scenario: Scenario, submitted_at: float) -> Iterator[Opened]:
    """The windows in the journal, in seconds since the bag was submitted. Each was planned to last its PC's uptime."""
    uptimes = {f"pc{number}": uptime for number, uptime in enumerate(scenario.uptimes, start=1)}
    for window in windows:
        known = window.opened - submitted_at
        if window.planned is None:
            yield Opened(window.worker, known, known, math.inf)
        else:
            closes = window.planned - submitted_at
            yield Opened(window.worker, closes - uptimes[window.worker], known, closes)


def window_s(snapshot: StatusDocument) -> float:
    """Slot seconds of all windows so far, both closed and still open."""
    open_now = (worker["opened_s"] * len(worker["slots"]) for worker in snapshot["workers"] if worker["state"] == "up")
    return snapshot["counters"]["window_s"] + math.fsum(open_now)
