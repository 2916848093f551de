"""Events, in the past tense: what the driver tells the scheduler.

They carry batches. A worker is known by its name, a bag by a number, a task by a number that is unique
in the grid and consecutive within a batch. All durations are seconds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deskgrid.scheduler.model import Attempt, AttemptOutcome
from deskgrid.scheduler.need import SINGLE, UNBOUNDED, Amounts, Need
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.queues.task_ranges import Spans


@dataclass(frozen=True, slots=True)
class TasksSubmitted:
    """A batch of a bag arrived: tasks ``first`` .. ``first + count - 1``.

    ``runtimes`` has ``count`` entries, or one for all. ``retries``: how many errors or timeouts a task survives.
    ``timeout``: seconds after which a worker stops a task, if any. ``copies``: whether tasks may be copied at the tail.
    ``min_piece``: for checkpointable tasks, which are not copied, how many seconds an attempt must have at least; None:
    they are not. ``reserve_s``: what a slot must have left besides that, to begin the piece and to save its end.
    ``done``, ``failed``, ``cancelled``, ``held``, ``saved``: what a restored grid already knows of them (empty for new
    ones). ``held_copies``: copies of held tasks, which may still be running, too.
    ``key``: of the category for the bag, whose later batches go there, too. ``barred``: as in `BagGated`.
    ``probes``: the tasks that are placed before the others, in this order; checkpointable tasks have none.
    ``grows``: they continue the bag's last batch, as if they had come with it; then each has its own runtime.
    ``need``: what each of them needs beside its seconds, the same for the whole bag.
    ``names``: if its user predicted the runtimes, names of its function and of its program. What predictions were worth
    in earlier bags with the first of these names that is known counts for this one.
    """

    bag: int
    first: int
    count: int
    runtimes: Sequence[float]
    retries: int = 0
    timeout: float | None = None
    copies: bool = False
    done: Sequence[int] = ()
    failed: Sequence[int] = ()
    cancelled: Sequence[int] = ()
    held: Sequence[Attempt] = ()
    held_copies: Sequence[Attempt] = ()
    key: CategoryKey = field(default_factory=CategoryKey)
    barred: bool = False
    min_piece: float | None = None
    reserve_s: float = 0.0
    saved: Sequence["SavedTask"] = ()
    probes: Sequence[int] = ()
    grows: bool = False
    need: Need = SINGLE
    names: Sequence[str] = ()


class SavedTask(NamedTuple):
    """A checkpoint that a task goes on from: what was done (from 0 to 1; None: unknown), and the seconds left."""

    task: int
    fraction: float | None
    left_s: float


@dataclass(frozen=True, slots=True)
class CheckpointKept:
    """A checkpoint of an attempt that is the newest of its task was kept, ``elapsed`` seconds after it began.

    ``fraction``: how much of the task is done; None: unknown. ``reserve_s``: as in `TasksSubmitted`, as measured now.
    """

    attempt: Attempt
    fraction: float | None
    elapsed: float
    reserve_s: float


@dataclass(frozen=True, slots=True)
class CheckpointDropped:
    """The newest checkpoint of a task cannot be used: it goes on from the one before, or from its start (None)."""

    task: int
    before: SavedTask | None


@dataclass(frozen=True, slots=True)
class RuntimesUpdated:
    """Better predictions: ``runtimes[i]`` for ``tasks[i]`` (paper, Section 2.1)."""

    tasks: Sequence[int]
    runtimes: Sequence[float]


@dataclass(frozen=True, slots=True)
class BagPredicted:
    """One better prediction for every task of a bag that has not ended."""

    bag: int
    runtime: float


@dataclass(frozen=True, slots=True)
class TasksCancelled:
    """The tasks in these ranges are no longer wanted. Tasks that have already ended stay as they are."""

    spans: Spans


@dataclass(frozen=True, slots=True)
class BagGated:
    """From now on no task of the bag is placed (``barred``), or its tasks may be placed again.

    Tasks that wait move only with `TasksRouted`, because there may be many of them.
    """

    bag: int
    barred: bool


@dataclass(frozen=True, slots=True)
class TasksRouted:
    """Waiting tasks in these ranges leave their queues if their bag is barred; otherwise barred ones come back."""

    spans: Spans


@dataclass(frozen=True, slots=True)
class SharesArranged:
    """The share and its weight of some owners, by owner; all others have a share of their own, of weight 1."""

    shares: Mapping[str, tuple[str, float]]


@dataclass(frozen=True, slots=True)
class UsageRestored:
    """What owners had used before this scheduler began, in slot-seconds that count now."""

    used_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LicencesCounted:
    """How many the grid has of each licence."""

    total: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BagForgotten:
    """Every task of the bag has ended, and no client will ask for it again."""

    bag: int


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that a joining worker still holds; ``elapsed`` is None when it has not started.

    Of a parallel task, each rank is one of these, with the first slot that it has.
    """

    attempt: Attempt
    slot: int
    elapsed: float | None
    rank: int = 0


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A window opened on a worker (or its broker came back). ``windows``: (starts in, lasts) of those to come.

    ``speed``, ``processors``, ``amounts``, ``labels``: as in `deskgrid.scheduler.parallel.base.Host`; 0 processors: as
    many as slots. ``reachable``: whether other PCs of its site can reach it, so that ranks of a gang may run there.
    ``given``: its user has given the speed, which holds whatever its tasks take.
    """

    worker: str
    slots: int
    uptime: float
    windows: Sequence[tuple[float, float]] = ()
    site: str = ""
    holds: Sequence[HeldAttempt] = ()
    speed: float = 1.0
    processors: int = 0
    amounts: Amounts = UNBOUNDED
    labels: frozenset[str] = frozenset()
    reachable: bool = True
    given: bool = False


@dataclass(frozen=True, slots=True)
class WorkerDrained:
    """A worker that is up gets nothing new from now on, because somebody drains its PC; or it does again."""

    worker: str
    drained: bool


@dataclass(frozen=True, slots=True)
class WorkerMeasured:
    """How fast a worker is, and how much of its processors others use now: as in `scheduler.parallel.base.Host`."""

    worker: str
    speed: float
    load: float


@dataclass(frozen=True, slots=True)
class WorkerPaused:
    """A worker has stopped its tasks, because the owner of its PC uses it (``paused``), or lets them go on."""

    worker: str
    paused: bool


@dataclass(frozen=True, slots=True)
class GangBegan:
    """All ranks of an attempt of a parallel task were ready, and have begun now."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RanksEnded:
    """Ranks of an attempt that goes on have succeeded: all that one worker had. It is not needed for that any more.

    ``ranks``: by their numbers. After a restart, they are those that are not awaited.
    """

    attempt: Attempt
    ranks: Sequence[int]


@dataclass(frozen=True, slots=True)
class GangRefused:
    """A parallel task could not be begun: a worker was not ready in time. It waits again, for ``pause`` s at least.

    ``blamed``: the workers because of which it could not; ``silent``: they said nothing.
    """

    attempt: Attempt
    pause: float
    blamed: Sequence[str] = ()
    silent: bool = False


@dataclass(frozen=True, slots=True)
class UptimeRefreshed:
    """A worker said again how long its window lasts and which windows follow. Also of a worker that is away (uptime 0).

    ``windows`` None: the windows to come are still those last announced.
    """

    worker: str
    uptime: float
    windows: Sequence[tuple[float, float]] | None = ()


@dataclass(frozen=True, slots=True)
class EnvironmentsReady:
    """The environments that are ready on a worker which is up, all of them: the names that categories have."""

    worker: str
    environments: frozenset[str]


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker is gone. ``planned``: it said so (a departure); otherwise it vanished (a loss).

    ``early``: a departure before its window closed, because somebody stopped it: its kills are not the plan's fault.
    ``unstarted``: attempts it handed back without having begun them.
    """

    worker: str
    planned: bool
    early: bool = False
    unstarted: Sequence[Attempt] = ()
    windows: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class WorkerForgotten:
    """A worker that is away will not be back: its announced windows no longer count."""

    worker: str


class EndedAttempt(NamedTuple):
    """One attempt that ended; ``elapsed`` is how long it ran. A parallel task ends as one, with its first failure.

    ``waited``: for most of this time it used no processor, so that it would take as long on any PC.
    """

    attempt: Attempt
    outcome: AttemptOutcome
    elapsed: float
    waited: bool = False


@dataclass(frozen=True, slots=True)
class AttemptsEnded:
    """A worker delivered results, one event per message."""

    worker: str
    ended: Sequence[EndedAttempt]


@dataclass(frozen=True, slots=True)
class AttemptsReturned:
    """A worker handed back attempts: those that had not started, and those that it was told to stop."""

    worker: str
    attempts: Sequence[Attempt]


@dataclass(frozen=True, slots=True)
class HoldExpired:
    """Nobody came back with the attempts that were held since the restore: they count as lost."""


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Place by this policy (an object with the methods of `deskgrid.scheduler.policies.Policy`) from now on."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class PassDue:
    """The driver has handed over everything that had arrived: decide now.

    ``most``: the pass may hand out as many tasks as have left their slots since the last pass, plus this many. A
    decision that hands nothing out counts as one. When there is more to decide (`Scheduler.unfinished`), the next pass
    is due at once.
    """

    most: float = math.inf


Event = (
    TasksSubmitted
    | RuntimesUpdated
    | BagPredicted
    | TasksCancelled
    | BagGated
    | TasksRouted
    | SharesArranged
    | UsageRestored
    | LicencesCounted
    | BagForgotten
    | WorkerJoined
    | UptimeRefreshed
    | EnvironmentsReady
    | WorkerDrained
    | WorkerMeasured
    | WorkerPaused
    | GangBegan
    | RanksEnded
    | GangRefused
    | WorkerLeft
    | WorkerForgotten
    | AttemptsEnded
    | AttemptsReturned
    | CheckpointKept
    | CheckpointDropped
    | HoldExpired
    | PolicyChanged
    | PassDue
)
