"""The inputs of a simulated run, and its outcome."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.model import SchedulerError
from deskgrid.scheduler.need import SINGLE, UNBOUNDED, Amounts, Need
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.queues.categories import rounded_piece
from deskgrid.scheduler.simulation.timetable import RealWindow, Timetable, always, kinds_of_spans


class Stalled(SchedulerError):
    """Tasks wait, and nothing that is still to happen will change that."""


@dataclass(frozen=True, slots=True)
class SimulatedPC:
    """A PC, when it is there, and how many tasks it runs at once.

    ``silent``: it takes work and never answers. ``speed``: it needs the runtime of a task divided by this; where no
    gangs arrive, nobody has measured it, and the scheduler is not told. ``site``: gangs run on PCs of one site.
    ``processors``: 0: as many as slots; if there are fewer, slots at work share them. ``load``: how much of its
    processors others use at first, 0 to 1. ``amounts``, ``labels``: as in `deskgrid.scheduler.parallel.base.Host`.
    """

    name: str
    timetable: Timetable = always
    slots: int = 1
    silent: bool = False
    speed: float = 1.0
    site: str = ""
    processors: int = 0
    load: float = 0.0
    amounts: Amounts = UNBOUNDED
    labels: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not (0.0 < self.speed < math.inf and 0.0 <= self.load <= 1.0 and self.slots >= 1 and self.processors >= 0):
            raise SchedulerError(f"an impossible PC: {self}")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A bag submitted at ``at``. ``runtimes``: predicted, one for each task. ``actual``: the real ones; None: the same.

    ``timeout``: the timeout of each task, which none of them may exceed. ``copies``: whether tasks may be copied.
    ``min_piece``: the tasks are checkpointable, and an attempt gets at least so many seconds; None: they are not.
    ``owner``: who submits it. ``function``: what predictions were worth in earlier bags of the same one counts for this
    one. ``need``: what each task needs; seconds are as `Need.seconds` takes them, at speed 1.
    ``running``: where its one task, a gang, runs already when these PCs open their first windows, which is for all of
    them at the same time, as (PC, ranks).
    """

    runtimes: Sequence[float]
    actual: Sequence[float] | None = None
    at: float = 0.0
    timeout: float | None = None
    copies: bool = False
    min_piece: float | None = None
    owner: str = ""
    need: Need = SINGLE
    function: str = ""
    running: Sequence[tuple[str, int]] = ()

    def __post_init__(self) -> None:
        if not self.runtimes or not 0.0 <= self.at < math.inf:
            raise SchedulerError(f"a bag of {len(self.runtimes)} tasks, submitted at {self.at}")
        if self.running and not (self.need.parallel and len(self.runtimes) == 1):
            raise SchedulerError("only one gang by itself can run already")
        if self.actual is not None and len(self.actual) != len(self.runtimes):
            raise SchedulerError(f"{len(self.actual)} actual runtimes of {len(self.runtimes)} tasks")
        if self.timeout is not None and max(self.really()) > self.timeout:
            raise SchedulerError(f"a task that takes longer than its timeout of {self.timeout} s")

    def really(self) -> Sequence[float]:
        """How long its tasks take."""
        return self.runtimes if self.actual is None else self.actual

    def at_once(self) -> Iterator[tuple[float, float]]:
        """What each task needs at once, predicted and really: all of it or, of a checkpointable task, a piece."""
        if self.need.parallel:
            return  # that depends on where it runs, and on how many ranks
        most = math.inf if self.min_piece is None else rounded_piece(self.min_piece)
        for predicted, actual in zip(self.runtimes, self.really(), strict=True):
            yield min(predicted, most), min(actual, most)


def too_long_tasks(
    policy: Policy, pcs: Sequence[SimulatedPC], at_once: Sequence[tuple[float, float]], overhead_s: float
) -> int:
    """How many tasks fit in no window, or would be placed in none; 0 if there are too many windows to look at.

    ``at_once``: what each task needs, as in `Arrival.at_once`.
    """
    spans: list[RealWindow] = []
    for pc in pcs:
        if (kinds := kinds_of_spans(pc.timetable)) is None:
            return 0
        spans += kinds
    holds = max((span.closes - span.opens for span in spans), default=0.0) - overhead_s
    known, needs = max((span.longest() for span in spans), default=0.0), policy.requirement.needs
    return sum(actual > holds or (policy.timed and needs(predicted) >= known) for predicted, actual in at_once)


# How many times as long a slow attempt takes.
SLOWLY = 5.0

# What others use of PCs' processors as time goes on: (when, PC, load from 0 to 1), by time. It may be endless.
Loads = Callable[[], Iterator[tuple[float, str, float]]]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a simulated grid adds to the work itself: overhead, delays, jitter. Seconds.

    ``overhead_s``: what each attempt costs its slot beside its runtime. ``opening_s``: how long after a window has
    opened its first attempt can start, because a worker has to start first; the window's clock runs meanwhile.
    ``gap_s``: if a free slot is given an attempt, it starts after this delay; an attempt that was sent ahead starts at
    once. Neither delay is part of the elapsed time that an attempt reports, because it is not measured there.
    ``announces``: whether coming windows are announced, or only the current one. ``jitter``: each attempt takes
    1 + ``jitter`` * E times as long, E exponential with mean and deviation 1, drawn by ``seed``: a sleep, or a busy PC,
    is late now and then, and never early. ``slow``: the fraction of attempts that take `SLOWLY` times as long. Which
    these are depends only on ``seed``, the task and how often it was tried before, not on how the run goes.
    ``saving_s``: a piece of a checkpointable task ends so many seconds before
    its window is announced to close, because saving takes time; ``period_s``: how often such a task saves besides.

    ``gang_start_s``, ``rank_start_s``: how long a gang is prepared before it begins, instead of ``gap_s``: so long, and
    so long for each of its ranks. ``loads``: what others use of
    the PCs as time goes on. ``redrawn``: draws the load of each PC anew when a gang arrives, and when one ends.
    ``pace``: gives the rates at which all gangs that run advance from now on, in seconds of work per second. It is
    asked, with the gangs (`deskgrid.scheduler.simulation.pcs.SimulatedWork`) and the time, whenever one begins or ends,
    or a load changes. None: by the rule of that module. ``instant_s``: where there are gangs, times that differ by no
    more are one instant.
    """

    overhead_s: float = 0.0
    opening_s: float = 0.0
    announces: bool = True
    jitter: float = 0.0
    seed: int = 0
    gap_s: float = 0.0
    slow: float = 0.0
    saving_s: float = 0.0
    period_s: float = 60.0
    gang_start_s: float = 0.0
    rank_start_s: float = 0.0
    loads: Loads | None = None
    redrawn: Callable[[Random], float] | None = None
    pace: Callable[..., Sequence[float]] | None = None
    instant_s: float = ROUNDING

    def __post_init__(self) -> None:
        if not 0.0 <= self.slow <= 1.0:
            raise SchedulerError(f"a fraction of {self.slow} attempts")
        values = [self.overhead_s, self.opening_s, self.jitter, self.gap_s, self.saving_s]
        values += [self.gang_start_s, self.rank_start_s, self.instant_s]
        if not all(0.0 <= value < math.inf for value in values) or not self.period_s > 0.0:
            raise SchedulerError(f"conditions are finite numbers from 0 up: {self}")


IDEAL = Conditions()


@dataclass(frozen=True, slots=True)
class Execution:
    """One attempt as it happened. Tasks are numbered from 0, in the order of arrival. Not ``done``: it was killed."""

    pc: str
    slot: int
    task: int
    start: float
    end: float
    done: bool


@dataclass(frozen=True, slots=True)
class GangExecution:
    """One attempt of a gang as it happened, from when all its ranks had begun. ``slots``: their numbers, by PC.

    ``ranks``: how many on each PC. ``submitted``: when the gang arrived. Not ``done``: it was killed. ``considered``:
    the policy's score of each site, as in `deskgrid.scheduler.parallel.base.Start`.
    """

    task: int
    site: str
    ranks: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, tuple[int, ...]], ...]
    submitted: float
    start: float
    end: float
    done: bool
    considered: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The outcome of a simulated run. ``idle_s``: window time in which no task ran, overhead included.

    ``ran_s``: the time in which attempts ran, also those that were killed or stopped; overhead not included. Both are
    of slots. ``gangs``: in the order in which they ended.

    For a traced run: ``executions`` in the order they ended, and each PC's spans in the order they opened.
    """

    makespan_s: float
    idle_s: float
    counters: Counters
    executions: tuple[Execution, ...] = ()
    spans: tuple[tuple[str, RealWindow], ...] = ()
    ran_s: float = 0.0
    gangs: tuple[GangExecution, ...] = ()


class Lateness:
    """How much longer than usual attempts take, by lot: as `Conditions` says, in the order in which it is asked."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._random = Random(conditions.seed)
        self._tries = Counter[int]()

    def takes(self, task: int, seconds: float) -> float:
        """How long the next attempt of a task takes that usually takes ``seconds``."""
        conditions = self._conditions
        if conditions.slow:
            self._tries[task] += 1
            slow = Random(f"slow {conditions.seed} {task} {self._tries[task]}").random() < conditions.slow
            seconds *= SLOWLY if slow else 1.0
        if conditions.jitter:
            seconds *= 1.0 + conditions.jitter * self._random.expovariate(1.0)
        return seconds
