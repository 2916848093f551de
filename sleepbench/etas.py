"""How well it is told when bags will be done: real bags are replayed, and estimated while they run.

Each bag runs alone, by the real scheduler under its default policy on a virtual clock, on PCs that are there at nights
and on weekends. The estimates see what a broker sees: what has ended, how long the others have run, and the windows
that are announced. They are made when 5, 25, 50 and 75 % of the tasks have ended.

Rule 1: a bag is predicted from its own tasks, and from bags that were played before. The same bag is never among these:
when all bags of a log have been played and more are wanted, what was learned about runtimes is forgotten.
Rule 2: every method sees the same runs. An interval is corrected by bags that ended before.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median
from time import process_time

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.forecast.ahead import CERTAIN, forecast
from deskgrid.scheduler.forecast.correction import Correction, Estimate, estimate, score, stage_of
from deskgrid.scheduler.forecast.look import Look
from deskgrid.scheduler.forecast.picture import Durations
from deskgrid.scheduler.model import AttemptOutcome
from deskgrid.scheduler.policies import DEFAULT, make_policy
from deskgrid.scheduler.prediction.runtimes import Features, Runtimes
from deskgrid.scheduler.simulation.simulator import Arrival, RealWindow, SimulatedPC, Simulator, Stalled
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.sleepbench.workloads.fits import DAY_S, HOUR_S, WEEK_S
from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.task_log import LoggedTask, LoggedTasks

# When bags are estimated: the fraction of their tasks that has ended.
STAGES = (0.05, 0.25, 0.5, 0.75)
# Bags with fewer tasks than this are also counted apart, at all stages together.
SMALL = 60
SMALL_NAME = "small"
# Sizes of bags that are played. Larger ones are cut.
LEAST, MOST = 20, 2_000
# Slots of a grid, and of one PC.
SLOTS_LEAST, SLOTS_MOST, OF_A_PC = 4, 64, 4
# What the broker assumes of a bag of which it knows nothing. Seconds.
ASSUMED_S = 60.0
# PCs are there in the night from Monday to Friday, and on weekends. Hours of the day.
EVENING, MORNING = 18, 8
# This fraction of windows ends early, by up to so many seconds, because somebody needs the PC.
EARLY, EARLY_S = 0.05, HOUR_S

LIST_NAME, OWN_NAME = METHODS = ("list-schedule", "deskgrid")


@dataclass(frozen=True, slots=True)
class EtaRow:
    """One method at one stage. The JSON has exactly these fields.

    ``stage``: percent of the tasks that had ended, or "small". ``coverage90``: the fraction of ``bags`` that ended
    within their interval. ``width_median``: of the interval, as a multiple of the time that was really left;
    ``point_error_median``: how far the point was off, as a fraction of that; medians over bags. ``cost_ms``: of one
    estimate, the median, in milliseconds of processor time.
    """

    method: str
    stage: str
    bags: int
    coverage90: float
    width_median: float
    point_error_median: float
    cost_ms: float


@dataclass(frozen=True, slots=True)
class Told:
    """An estimate of one bag, and what was true. ``left_s``: how long it really took from then on."""

    method: str
    stage: float
    tasks: int
    estimate: Estimate
    cost_s: float
    left_s: float

    @property
    def covers(self) -> bool:
        """Whether the bag ended within the interval."""
        return self.estimate.low <= self.left_s <= self.estimate.high

    @property
    def width(self) -> float:
        """Of the interval, to the time that was left; infinity if it has no end."""
        if self.estimate.high == math.inf:
            return math.inf
        return (self.estimate.high - self.estimate.low) / max(self.left_s, 1e-9)

    @property
    def error(self) -> float:
        """How far the point was off, to the time that was left."""
        return abs(self.estimate.median - self.left_s) / max(self.left_s, 1e-9)


def rows(told: Sequence[Told]) -> Iterator[EtaRow]:
    """The rows of all methods at all stages."""
    for method in METHODS:
        mine = [each for each in told if each.method == method]
        for stage in STAGES:
            yield from _row(method, f"{stage:.0%}", [each for each in mine if each.stage == stage])
        yield from _row(method, SMALL_NAME, [each for each in mine if each.tasks < SMALL])


def _row(method: str, stage: str, told: Sequence[Told]) -> Iterator[EtaRow]:
    if told:
        yield EtaRow(
            method,
            stage,
            len(told),
            sum(each.covers for each in told) / len(told),
            median(each.width for each in told),
            median(each.error for each in told),
            1e3 * median(each.cost_s for each in told),
        )


def bags_of(log: LoggedTasks, chance: Random, count: int) -> Iterator[tuple[LoggedTask, ...] | None]:
    """So many bags of a log, in random order, each once; None when all have been played, and they begin anew."""
    tasks: defaultdict[str, list[LoggedTask]] = defaultdict(list)
    for stream in log.streams:
        for task in stream:
            tasks[task.bag].append(task)
    bags = [tuple(its[:MOST]) for its in tasks.values() if len(its) >= LEAST]
    if not bags:
        raise WorkloadError(f"no bag has {LEAST} tasks")
    while True:
        chance.shuffle(bags)
        yield from bags[:count]
        count -= len(bags)
        if count <= 0:
            return
        yield None


def nights_and_weekends(pc: int, seed: int, begins: float) -> Iterator[RealWindow]:
    """The windows of a PC from ``begins`` seconds after Monday 0:00 on."""
    chance = Random(f"{seed} {pc}")
    for day in range(10_000):
        weekend = day % 7 >= 5
        opens = day * DAY_S + (0.0 if weekend else EVENING * HOUR_S)
        # Until the weekend begins, or goes on; otherwise into the next morning.
        closes = (day + 1) * DAY_S + (0.0 if day % 7 in (4, 5) else MORNING * HOUR_S)
        early = chance.random() * EARLY_S if chance.random() < EARLY else 0.0
        if closes - early > begins:
            yield RealWindow(max(0.0, opens - begins), closes - early - begins, closes - begins)


class Estimator:
    """Estimates bags by all methods, and learns from them."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.correction = Correction()
        self.runtimes = Runtimes()

    def play(self, tasks: Sequence[LoggedTask]) -> Iterator[Told]:
        """Play a bag, and yield what was told of it. Yields nothing of a bag that cannot end."""
        slots = round(SLOTS_LEAST * (SLOTS_MOST / SLOTS_LEAST) ** self._chance.random())
        begins, seed = self._chance.random() * WEEK_S, self._chance.randrange(2**32)
        pcs = [
            SimulatedPC(f"pc{pc}", partial(nights_and_weekends, pc, seed, begins), min(OF_A_PC, slots - first))
            for pc, first in enumerate(range(0, slots, OF_A_PC))
        ]
        observed = _Observed(self, tasks, Random(seed))
        first = [observed.expected()] * len(tasks)
        actual = [max(task.seconds, 1e-3) for task in tasks]
        simulator = Simulator(make_policy(DEFAULT), pcs, [Arrival(first, actual)])
        observed.simulator, simulator.beside = simulator, observed.beside
        try:
            end = simulator.run().makespan_s
        except Stalled:
            return
        self.runtimes.end(tasks[0].bag)
        for each in observed.told:
            yield Told(each.method, each.stage, len(tasks), each.estimate, each.cost_s, end - each.at)
        for at, stage, raw in observed.raw:
            if raw.median == math.inf:
                continue  # nobody would have been told that: the broker says why it does not know
            self.correction.learn("", score(stage, raw, end - at))


@dataclass(frozen=True, slots=True)
class _ToldInterval:
    method: str
    stage: float
    at: float
    estimate: Estimate
    cost_s: float


class _Observed:
    """One run of a bag: learns from what ends, as the broker does, and estimates at the stages."""

    simulator: Simulator

    def __init__(self, estimator: Estimator, tasks: Sequence[LoggedTask], chance: Random) -> None:
        self._estimator, self._runtimes, self._chance = estimator, estimator.runtimes, chance
        self._features = Features(tasks[0].bag, tasks[0].function, tasks[0].program)
        self._total = len(tasks)
        self._ended = 0
        self._learn_at = 1
        self._stages = list(STAGES)
        self.told: list[_ToldInterval] = []
        # When an interval was made, at which stage, and how it was before it was corrected.
        self.raw: list[tuple[float, int, Estimate]] = []

    def expected(self) -> float:
        """The runtime that the broker predicts."""
        known = self._ended or self._runtimes.knows(self._features)
        found = self._runtimes.predict(self._features) if known else None
        return ASSUMED_S if found is None else found.highest

    def beside(self, event: ev.Event, now: float) -> Iterable[ev.Event]:
        """Learn from an event; see `Simulator`."""
        if not isinstance(event, ev.AttemptsEnded):
            return
        for each in event.ended:
            if each.outcome == AttemptOutcome.DONE:
                self._ended += 1
                self._runtimes.observe(self._features._replace(pc=event.worker), each.elapsed)
        if self._ended >= self._learn_at and self._ended < self._total:
            self._learn_at = 2 * self._ended
            yield ev.BagPredicted(0, self.expected())
        if self._stages and self._stages[0] * self._total <= self._ended < self._total:
            self._tell(self._stages.pop(0), now)
            while self._stages and self._stages[0] * self._total <= self._ended:
                self._stages.pop(0)

    def _tell(self, stage: float, now: float) -> None:
        grid, correction = self.simulator.scheduler.grid, self._estimator.correction
        begun = process_time()
        look = Look(grid, now, self._learned)
        for _ in look.pieces():
            pass
        cost_s = process_time() - begun
        begun = process_time()
        plain = estimate(forecast(look.picture, self._chance, uncertainty=CERTAIN)[0])
        self._add(LIST_NAME, stage, now, plain, cost_s + process_time() - begun)
        begun = process_time()
        raw, place = estimate(forecast(look.picture, self._chance)[0]), stage_of(self._ended / self._total)
        own = correction.corrected("", place, raw)
        self._add(OWN_NAME, stage, now, own, cost_s + process_time() - begun)
        self.raw.append((now, place, raw))

    def _learned(self, bag: ScheduledBag, running: list[float]) -> Durations | None:
        found = self._runtimes.spread(self._features, running)
        return None if found is None else Durations(found.points, found.own, found.wide)

    def _add(self, method: str, stage: float, now: float, told: Estimate, cost_s: float) -> None:
        self.told.append(_ToldInterval(method, stage, now, told, cost_s))


def measure(log: LoggedTasks, count: int, seed: int, progress: Callable[[int], None] = lambda done: None) -> list[Told]:
    """Play so many bags of a log; returns all that was told of them. Raises `WorkloadError` if none can be."""
    estimator, told, done = Estimator(seed), list[Told](), 0
    for tasks in bags_of(log, Random(seed), count):
        if tasks is None:
            estimator.runtimes = Runtimes()
            continue
        told += estimator.play(tasks)
        done += 1
        progress(done)
    if not told:
        raise WorkloadError("no bag ends: its tasks have to fit into a night or a weekend")
    return told
