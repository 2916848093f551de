"""Workers, their slots, and the slots with room (`deskgrid.scheduler.state.slot_index`)."""

import heapq
import math
import sys
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deskgrid.scheduler.commands import RankPlace
from deskgrid.scheduler.model import (
    DRIFT,
    OPEN_ENDED,
    Attempt,
    AttemptState,
    HabitualWindows,
    PlannedWindow,
    Windows,
    agree,
    near,
)
from deskgrid.scheduler.need import UNBOUNDED, Amounts
from deskgrid.scheduler.parallel.base import RunningJob
from deskgrid.scheduler.queues.categories import Needs
from deskgrid.scheduler.state.bags import ScheduledBag, TaskBatch
from deskgrid.scheduler.state.slot_index import Row, SlotIndex

# A closing time replaces an earlier one only if it is later by this much. Heartbeats arrive late, never early, so the
# earliest estimate of a window's end is the best one.
UPTIME_JITTER_S = 0.5

# Windows that close in the same span of so many seconds close together. Seconds.
TOGETHER_S = 60.0
# The number of an attempt that has none yet: no message of a worker can have it.
UNSENT = -1
# How many tasks a worker must have done before it counts as faster or slower than others: one slow task says little.
ENOUGH = 3
# When a worker last answered, if it never did.
NEVER = -math.inf


@dataclass(slots=True, eq=False)
class LiveAttempt:
    """One attempt, from when its task is bound to a slot until no answer of it counts any more.

    ``slot``: where it is, `NOWHERE` if it is lost. ``runtime``: predicted. ``number``: `UNSENT` while it is queued.
    ``at``: when it was sent or, if it was adopted, began. All ranks of a gang on a PC share one, which is in no table.
    """

    task: int
    slot: "Slot"
    runtime: float
    number: int = UNSENT
    at: float = 0.0
    state: AttemptState = AttemptState.QUEUED

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.task, self.number)


@dataclass(slots=True, eq=False)
class Slot:
    """One slot of a worker. ``sent[0]`` is running since ``started``; ``queue`` is held here.

    ``owes``: an attempt that was taken back and has not been answered since. It began at ``started``, and may still
    run. ``copy``: a copy that runs here while the slot is idle otherwise. It gives way to whatever the slot is sent, so
    nothing else takes it into account. ``closes``: when the window of its worker closes, or earlier, if the slot is
    kept for a gang. ``speed``: of its worker; runtimes are those of speed 1. ``gang``: the parallel task that has the
    slot, and is all that it has; its attempt is ``sent[0]``, with the seconds that it would take at speed 1.
    """

    number: int
    worker: "Worker"
    position: int
    sent: deque[LiveAttempt] = field(default_factory=deque)
    started: float = 0.0
    ahead_s: float = 0.0  # runtimes of sent[1:]
    queue: deque[LiveAttempt] = field(default_factory=deque)
    queued_s: float = 0.0
    busy_s: float = 0.0
    watched: float = -math.inf  # the last ``due`` that `SlotTable` was told to look out for
    look_at: float = math.inf  # when `Deadlines` looks at it
    batch: TaskBatch | None = None  # of the task that `Deadlines` last watched here
    owes: Attempt | None = None
    copy: LiveAttempt | None = None
    copy_look_at: float = math.inf  # when `Copying` looks at it
    closes: float = OPEN_ENDED
    speed: float = 1.0
    gang: "Gang | None" = None
    # The index list that has its entry (None when it has no room), and the entry.
    rows: list[Row] | None = None
    row: Row = (0.0, 0.0, 0)

    @property
    def due(self) -> float:
        """When the running task should end; minus infinity when nothing runs."""
        return self.started + self.sent[0].runtime / self.speed if self.sent else -math.inf

    @property
    def free_at(self) -> float:
        """When all that it has should have ended, perhaps before now; minus infinity if it has nothing."""
        return self.due + (self.ahead_s + self.queued_s) / self.speed

    def remaining(self, now: float) -> float:
        """tl, seconds; negative when the slot has promised more than it has."""
        return self.closes - max(now, self.due) - self.ahead_s / self.speed - self.queued_s / self.speed

    def left_s(self, now: float) -> float:
        """tl in seconds of speed 1, which runtimes are compared with."""
        return self.remaining(now) * self.speed

    def in_flight_s(self) -> float:
        """Predicted seconds of everything at the worker, the running task in full."""
        return self.sent[0].runtime + self.ahead_s if self.sent else 0.0

    def check(self, now: float) -> None:
        """Raise `InvariantBroken` unless the sums match the contents and the running task has begun."""
        near(f"seconds ahead on slot {self.number}", self.ahead_s, sum(sent.runtime for sent in list(self.sent)[1:]))
        near(f"seconds queued on slot {self.number}", self.queued_s, sum(live.runtime for live in self.queue))
        agree(f"slot {self.number} began in the past", self.started <= now, True)
        agree(f"work beside the copy on slot {self.number}", bool(self.copy and self.sent), False)
        agree(f"slot {self.number} is in its place on its worker", self.worker.slots[self.position] is self, True)
        agree(f"speed of slot {self.number}", self.speed, self.worker.speed)
        agree(f"slot {self.number} closes after its worker", self.closes > self.worker.ends_at, False)
        if self.gang is not None:
            agree(f"work beside a gang on slot {self.number}", (len(self.sent), len(self.queue)), (1, 0))


class Traits(NamedTuple):
    """What a PC has, as in `deskgrid.scheduler.events.WorkerJoined`."""

    processors: int = 0
    amounts: Amounts = UNBOUNDED
    labels: frozenset[str] = frozenset()
    reachable: bool = True


ORDINARY = Traits()


def rated(speed: float) -> float:
    """A speed with two significant digits, rounded down: it was measured no better, and slots of one speed share an
    index.
    """
    step = 10.0 ** (math.floor(math.log10(speed)) - 1)
    return 1.0 if speed == 1.0 else round(math.floor(speed / step + DRIFT) * step, 12)


@dataclass(slots=True, eq=False)
class Worker:
    """A worker whose window is open. ``ends_at`` is when it is expected to close.

    ``announced``: when it closes by the uptime that the worker gave; ``opened``, ``planned_s``: when it
    opened, whatever connections broke since, and how long it was to last then. ``speed``: ``exact`` as `rated`.
    """

    name: str
    site: str
    joined_at: float
    ends_at: float
    windows: Windows
    slots: list[Slot] = field(default_factory=list)
    announced: float = OPEN_ENDED
    opened: float = 0.0
    planned_s: float = OPEN_ENDED
    # How long it was away before this window, if it had left as planned.
    gap: float | None = None
    # When it last answered for an attempt.
    heard: float = NEVER
    # When it last said that it is there. All answers that it sent before that have arrived.
    seen: float = NEVER
    # How many of its slots are used: the first ones.
    width: int = sys.maxsize
    # How many tasks of bags with copies it has done in this window, how long they took, and how long such tasks take on
    # average. Seconds.
    done: int = 0
    took_s: float = 0.0
    usual_s: float = 0.0
    # The environments that are ready on it.
    environments: frozenset[str] = frozenset()
    traits: Traits = ORDINARY
    speed: float = 1.0
    # How fast it is, how fast it says that it is, and whether that was given by its user and holds whatever tasks take;
    # and how much of its processors others use, from 0 to 1.
    exact: float = 1.0
    stated: float = 1.0
    given: bool = False
    load: float = 0.0
    # Single tasks that need amounts and were bound to its slots, and what they need. Some may have left since.
    promised: dict[int, Amounts] = field(default_factory=dict)

    @property
    def pace(self) -> float:
        """How long it takes for a task, as a multiple of what is usual: below 1.0 for a fast PC."""
        return self.took_s / self.usual_s if self.done >= ENOUGH and self.usual_s else 1.0

    def learn_pace(self, batch: TaskBatch, task: int, took_s: float) -> None:
        """Note how long it took for a task of ``batch``, and how long such a task takes on average."""
        if batch.bag.copies:
            self.done += 1
            self.took_s += took_s
            self.usual_s += batch.runtime(task) * batch.bag.pace

    def uptime(self, now: float) -> float:
        """ru, seconds left of the current window."""
        return max(0.0, self.ends_at - now)

    def expected(self, now: float) -> Windows:
        """The windows to come: as announced, or by habit."""
        if self.windows:
            return self.windows
        open_now = PlannedWindow(self.joined_at, self.ends_at) if self.ends_at < OPEN_ENDED else None
        return habitual(open_now, self.gap, now)


# Where lost attempts are.
NOWHERE = Slot(-1, Worker("", "", 0.0, 0.0, Windows()), 0)


class Owed(NamedTuple):
    """What waits until a worker answers for an attempt: a slot, which gets nothing, and licences that it may use."""

    slot: Slot | None
    licences: Needs


@dataclass(slots=True, eq=False)
class Gang:
    """One attempt of a parallel task that has slots.

    ``slots``: by rank, of the ranks that have not ended with all others on their PC. ``seconds``: predicted on its PCs.
    ``since``: when it was started, or began. ``began``: whether its driver has said so. ``out_s``: what its owner is
    charged while it runs, in slot-seconds.
    ``ranks``: where each of these ranks is; ``over``: the numbers of the others. ``running``: as policies see it; None:
    some of its ranks have not come back since a restart. Those that have are in ``back``, by rank.
    """

    attempt: Attempt
    bag: ScheduledBag
    slots: list[Slot]
    seconds: float
    since: float
    ranks: Sequence[RankPlace] = ()
    running: RunningJob | None = None
    began: bool = False
    out_s: float = 0.0
    back: dict[int, list[Slot]] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)

    def on(self, slot: Slot, since: float) -> LiveAttempt:
        """Its attempt, as ``slot`` and others of that PC have it."""
        return LiveAttempt(
            self.attempt.task, slot, self.seconds * slot.speed, self.attempt.number, since, AttemptState.SENT
        )

    @property
    def size(self) -> int:
        """How many ranks it has, those that have ended included."""
        return len(self.ranks) + len(self.over)

    @property
    def numbers(self) -> list[int]:
        """The number of each of its ``ranks``."""
        return [number for number in range(self.size) if number not in self.over]

    def first_on(self, worker: Worker) -> Slot:
        """The first of its slots that ``worker`` has."""
        return next(slot for slot in self.slots if slot.worker is worker)

    def workers(self) -> list[Worker]:
        """The workers that it has slots of, each once, in the order of their ranks."""
        return list(dict.fromkeys([slot.worker for slot in self.slots]))


@dataclass(frozen=True, slots=True)
class Away:
    """A worker whose window is closed: what it has announced, and the slots it had (one, if it was never seen up).

    ``last``: its last window, if it left as planned; ``gap``: how long it had been away before that one. ``was``: the
    worker as it was when it was up.
    """

    windows: Windows
    slots: int = 1
    last: PlannedWindow | None = None
    gap: float | None = None
    was: Worker | None = field(default=None, compare=False)

    @property
    def speed(self) -> float:
        return 1.0 if self.was is None else self.was.speed

    def expected(self, now: float) -> Windows:
        """The windows to come: as announced, or by habit."""
        return self.windows or habitual(self.last, self.gap, now)


def habitual(last: PlannedWindow | None, gap: float | None, now: float) -> Windows:
    """The next two windows of a worker that announces none but has come back once: ``last`` again, ``gap`` apart."""
    if last is None or gap is None:
        return Windows()
    opens = max(now, last.closes + gap)
    return HabitualWindows(PlannedWindow(start, start + last.lasts) for start in (opens, opens + last.lasts + gap))


def announced(windows: Sequence[tuple[float, float]], now: float) -> Windows:
    """Windows given as (starts in, lasts) on the driver's clock: in order, and without what lies in an earlier one.

    Any peer may announce any windows. A search for a long one would have to pass over those that others cover.
    """
    found: list[PlannedWindow] = []
    free = -math.inf
    for starts_in, lasts in sorted(windows):
        opens, closes = max(now + starts_in, free), now + starts_in + lasts
        if opens < closes:
            found.append(PlannedWindow(opens, closes))
            free = closes
    return Windows(found)


class SlotTable:
    """Every slot of every worker that is up, and three indexes of the slots with room.

    ``idle``: nothing to do; ``spare``: something at the worker, nothing queued; ``queued``: something queued.
    """

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.slots: dict[int, Slot] = {}
        self.indexes = self.idle, self.spare, self.queued = SlotIndex(), SlotIndex(), SlotIndex()
        # Whether some worker has had another speed than 1.
        self.uneven = False
        # How many workers have each label.
        self.labels: Counter[str] = Counter()
        # How many slots have room.
        self.with_room = 0
        # Slots that have room, but not for the tasks whose turn it is.
        self.hidden: list[Slot] = []
        # How many workers close their windows in each span of `TOGETHER_S`.
        self._closings: Counter[int] = Counter()
        self._due: list[tuple[float, int]] = []
        self._next = 0

    def join(self, worker: Worker, count: int) -> None:
        """Add ``worker`` with ``count`` idle slots."""
        self.workers[worker.name] = worker
        self.uneven = self.uneven or worker.speed != 1.0
        self._count_closing(worker.ends_at, 1)
        self.labels.update(worker.traits.labels)
        for position in range(count):
            slot = Slot(self._next, worker, position, closes=worker.ends_at, speed=worker.speed)
            self._next += 1
            worker.slots.append(slot)
            self.slots[slot.number] = slot

    def leave(self, name: str) -> Worker:
        """Remove a worker and its slots."""
        worker = self.workers.pop(name)
        self._count_closing(worker.ends_at, -1)
        self.labels -= Counter(worker.traits.labels)
        for slot in worker.slots:
            self.unindex(slot)
            del self.slots[slot.number]
        return worker

    def all_have(self, labels: Collection[str]) -> bool:
        """Whether every worker has these labels."""
        return all(self.labels[label] == len(self.workers) for label in labels)

    def closes_at(self, worker: Worker, ends_at: float) -> None:
        """The window of a worker closes at another time."""
        self._count_closing(worker.ends_at, -1)
        worker.ends_at = ends_at
        for slot in worker.slots:
            slot.closes = ends_at
        self._count_closing(ends_at, 1)

    def _count_closing(self, ends_at: float, change: int) -> None:
        if ends_at < OPEN_ENDED:
            span = int(ends_at // TOGETHER_S)
            self._closings[span] += change
            if not self._closings[span]:
                del self._closings[span]

    def closing_at(self, ends_at: float) -> int:
        """How many windows close at about that time; none of those that are open-ended."""
        return self._closings[int(ends_at // TOGETHER_S)] if ends_at < OPEN_ENDED else 0

    def unindex(self, slot: Slot) -> None:
        """Take ``slot`` out of its index, before its contents change or because it has no room."""
        if slot.rows is not None:
            del slot.rows[bisect_left(slot.rows, slot.row)]
            slot.rows = None
            self.with_room -= 1

    def hide(self, workers: Iterable[Worker]) -> None:
        """Take the slots of ``workers`` out of their indexes, into ``hidden``."""
        found = [slot for worker in workers for slot in worker.slots if slot.rows is not None]
        for slot in found:
            self.unindex(slot)
        self.hidden += found

    def index(self, slot: Slot, now: float) -> None:
        """Put ``slot``, which has room, into the index of its kind."""
        index = self.queued if slot.queue else self.spare if slot.sent else self.idle
        due, speed = slot.due, slot.speed
        load, closes = slot.ahead_s + slot.queued_s, slot.closes
        if due > now:
            slot.rows, slot.row = index.anchored, ((closes - due) * speed - load, due + load, slot.number)
            # Only once for each due time: every change indexes the slot again, and a task may run for hours.
            if slot.watched != due:
                slot.watched = due
                heapq.heappush(self._due, (due, slot.number))
        else:
            slot.rows = index.falling if speed == 1.0 else index.others.setdefault(speed, [])
            slot.row = closes * speed - load, load, slot.number
        insort(slot.rows, slot.row)
        self.with_room += 1

    def overdue(self, now: float) -> Iterator[Slot]:
        """Slots whose running task should have ended by ``now``: their tl has begun to fall."""
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            slot = self.slots.get(number)
            if slot is not None and slot.due == due:
                yield slot

    def check(self, with_room: Iterable[Slot], now: float) -> None:
        """Raise `InvariantBroken` if the state contradicts itself, or the indexed slots are not ``with_room``."""
        ends = [worker.ends_at for worker in self.workers.values() if worker.ends_at < OPEN_ENDED]
        agree("closings", self._closings, Counter(int(ends_at // TOGETHER_S) for ends_at in ends))
        agree("names", [worker.name for worker in self.workers.values()], list(self.workers))
        here = {slot.number: slot for worker in self.workers.values() for slot in worker.slots}
        agree("slots", self.slots, here)
        for slot in here.values():
            slot.check(now)
        expected = list(with_room)
        kinds = {slot.number: 2 if slot.queue else 1 if slot.sent else 0 for slot in expected}
        for kind, index in enumerate(self.indexes):
            here = {slot.number: slot for slot in expected if kinds[slot.number] == kind}
            index.check(here, set(self._due), now)
        agree("how many slots have room", self.with_room, sum(map(len, self.indexes)))
        entered = {number for number, slot in self.slots.items() if slot.rows is not None}
        agree("slots with an entry", entered, {slot.number for slot in expected})


def uptime_end(uptime: float, now: float) -> float:
    """When a window with ``uptime`` seconds left closes."""
    return OPEN_ENDED if uptime == OPEN_ENDED else now + uptime


def differ(before: Sequence[PlannedWindow], after: Sequence[PlannedWindow]) -> bool:
    """Whether two announcements of windows differ by more than the jitter of heartbeats."""
    if len(before) != len(after):
        return True
    pairs = zip(before, after, strict=True)
    return any(max(abs(a.opens - b.opens), abs(a.closes - b.closes)) > UPTIME_JITTER_S for a, b in pairs)
