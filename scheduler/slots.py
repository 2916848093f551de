"""Workers, their slots, and the slots with room, indexed by remaining time.

Remaining time (paper, Section 2.2): tl = ru - (et_running - elapsed) - sum of et_queued. While a task runs within its
prediction, uptime and elapsed time change together and tl stands still; when the slot is idle, or its task is overdue,
tl falls with the clock. So an index keeps two sorted lists, *anchored* (tl itself) and *falling* (tl + now), and no
entry has to be touched as time passes but the few whose task becomes overdue.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sortedcontainers import SortedList

from scheduler.model import OPEN_ENDED, Attempt, Window, agree, near

# A later closing time than the one known is taken only if it is later by this much: heartbeats arrive late, never
# early, so the earliest estimate of a window's end is the best one.
UPTIME_JITTER_S = 0.5


class Sent(NamedTuple):
    """One attempt at the worker, the runtime it was predicted to have, and when it was sent, or began elsewhere."""

    attempt: Attempt
    runtime: float
    at: float


@dataclass(slots=True, eq=False)
class Slot:
    """One execution lane. ``sent[0]`` is running since ``started``; ``queue`` is held here."""

    number: int
    worker: "Worker"
    lane: int
    sent: deque[Sent] = field(default_factory=deque)
    started: float = 0.0
    ahead_s: float = 0.0  # runtimes of sent[1:]
    queue: deque[tuple[int, float]] = field(default_factory=deque)  # (task, runtime)
    queued_s: float = 0.0
    busy_s: float = 0.0
    watched: float = -math.inf  # the last ``due`` that `SlotTable` was told to look out for

    @property
    def due(self) -> float:
        """When the running task should end; minus infinity when nothing runs."""
        return self.started + self.sent[0].runtime if self.sent else -math.inf

    def remaining(self, now: float) -> float:
        """tl, seconds; negative when the slot has promised more than it has."""
        return self.worker.ends_at - max(now, self.due) - self.ahead_s - self.queued_s

    def place_of(self, task: int) -> int:
        """The place in ``sent`` of the attempt of ``task``, or -1. The first is looked at first: it ends first."""
        for place, sent in enumerate(self.sent):
            if sent.attempt.task == task:
                return place
        return -1

    def in_flight_s(self) -> float:
        """Predicted seconds of everything at the worker, the running task in full."""
        return self.sent[0].runtime + self.ahead_s if self.sent else 0.0

    def check(self, now: float) -> None:
        """Raise `InvariantBroken` unless the sums are those of the contents, and the running task has begun."""
        near(f"seconds ahead on slot {self.number}", self.ahead_s, sum(sent.runtime for sent in list(self.sent)[1:]))
        near(f"seconds queued on slot {self.number}", self.queued_s, sum(runtime for _, runtime in self.queue))
        agree(f"slot {self.number} began in the past", self.started <= now, True)
        agree(f"slot {self.number} is a lane of its worker", self.worker.slots[self.lane] is self, True)


@dataclass(slots=True, eq=False)
class Worker:
    """A worker whose window is open. ``ends_at`` is when it closes, interpolated from the last uptime it gave."""

    name: str
    site: str
    joined_at: float
    ends_at: float
    windows: tuple[Window, ...]
    slots: list[Slot] = field(default_factory=list)
    # How long it had been away, if it had left as planned.
    gap: float | None = None

    def uptime(self, now: float) -> float:
        """ru, seconds left of the current window."""
        return max(0.0, self.ends_at - now)

    def expected(self, now: float) -> Sequence[Window]:
        """The windows to come: as announced, or by habit."""
        if self.windows:
            return self.windows
        open_now = Window(self.joined_at, self.ends_at) if self.ends_at < OPEN_ENDED else None
        return habitual(open_now, self.gap, now)


@dataclass(frozen=True, slots=True)
class Away:
    """A worker whose window is closed: what it has announced, and the slots it had (one, if it was never seen up).

    ``last``: its last window, if it left as planned; ``gap``: how long it had been away before that one.
    """

    windows: tuple[Window, ...]
    slots: int = 1
    last: Window | None = None
    gap: float | None = None

    def expected(self, now: float) -> Sequence[Window]:
        """The windows to come: as announced, or by habit."""
        return self.windows or habitual(self.last, self.gap, now)


def habitual(last: Window | None, gap: float | None, now: float) -> Sequence[Window]:
    """The next two windows of one that announces none but has come back once: as long as ``last``, as far apart."""
    if last is None or gap is None:
        return ()
    opens = max(now, last.closes + gap)
    return tuple(Window(start, start + last.lasts) for start in (opens, opens + last.lasts + gap))


def announced(windows: Sequence[tuple[float, float]], now: float) -> tuple[Window, ...]:
    """Windows given as (starts in, lasts) on the driver's clock."""
    return tuple([Window(now + starts_in, now + starts_in + lasts) for starts_in, lasts in windows])


# An index entry: the key, then what is promised already (so that equal slots share the work), then the slot number.
_Row = tuple[float, float, int]


class SlotIndex:
    """Slots by remaining time."""

    def __init__(self) -> None:
        self._anchored: SortedList[_Row] = SortedList()
        self._falling: SortedList[_Row] = SortedList()
        self._where: dict[int, tuple[SortedList[_Row], _Row]] = {}

    def __len__(self) -> int:
        return len(self._where)

    def add(self, slot: Slot, now: float) -> bool:
        """Put ``slot`` in; returns whether it is anchored, that is, will have to be looked at when it is overdue."""
        due = slot.due
        anchored = due > now
        rows = self._anchored if anchored else self._falling
        load = slot.ahead_s + slot.queued_s
        start = due if anchored else 0.0
        row = (slot.worker.ends_at - start - load, start + load, slot.number)
        rows.add(row)
        self._where[slot.number] = (rows, row)
        return anchored

    def remove(self, number: int) -> None:
        """Take a slot out, which is here."""
        rows, row = self._where.pop(number)
        rows.remove(row)

    def tightest(self, limit: float, now: float) -> tuple[float, float, int] | None:
        """(tl, load, slot number) of the slot with the smallest tl strictly above ``limit``."""
        best = None
        for rows, offset in ((self._anchored, 0.0), (self._falling, now)):
            if not rows:
                continue
            place = rows.bisect_right((limit + offset, math.inf))
            if place < len(rows):
                key, load, number = rows[place]
                candidate = (key - offset, load if offset == 0.0 else load + now, number)
                if best is None or candidate < best:
                    best = candidate
        return best

    def widest(self, now: float) -> float:
        """The largest tl, or minus infinity."""
        anchored = self._anchored[-1][0] if self._anchored else -math.inf
        falling = self._falling[-1][0] - now if self._falling else -math.inf
        return max(anchored, falling)

    def at(self, place: int) -> int:
        """The slot number at ``place`` of ``len(self)``: for a policy that does not care for remaining time."""
        if place < len(self._anchored):
            return int(self._anchored[place][2])
        return int(self._falling[place - len(self._anchored)][2])

    def check(self, slots: Mapping[int, Slot], alarms: Collection[tuple[float, int]], now: float) -> None:
        """Raise `InvariantBroken` unless ``slots`` are here, by their tl; ``alarms``: (due, slot) looked out for."""
        agree("slots with room", set(self._where), set(slots))
        agree("rows", len(self._where), len(self._anchored) + len(self._falling))
        for number, (rows, row) in self._where.items():
            slot, anchored = slots[number], rows is self._anchored
            agree(f"rows of slot {number}", rows.count(row), 1)
            # An anchored slot stays as it is until the first pass after its task is due, which an alarm tells of.
            moves = (slot.due, number) not in alarms if anchored else slot.due > now
            agree(f"slot {number} moves without notice", moves, False)
            at = min(now, slot.due) if anchored else now
            near(f"tl of slot {number}", row[0] - (0.0 if anchored else now), slot.remaining(at))
            load = slot.ahead_s + slot.queued_s
            near(f"load of slot {number}", row[1], load + (slot.due if anchored else 0.0))


class SlotTable:
    """Every slot of every worker that is up, and three indexes of those with room.

    ``idle``: nothing to do; ``spare``: something at the worker, nothing queued; ``queued``: something queued.
    """

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.slots: dict[int, Slot] = {}
        self.idle = SlotIndex()
        self.spare = SlotIndex()
        self.queued = SlotIndex()
        # In which of them each slot is that has room.
        self._indexed: dict[int, SlotIndex] = {}
        self._due: list[tuple[float, int]] = []
        self._next = 0

    def join(self, worker: Worker, count: int) -> None:
        """Add ``worker`` with ``count`` idle slots."""
        self.workers[worker.name] = worker
        for lane in range(count):
            slot = Slot(self._next, worker, lane)
            self._next += 1
            worker.slots.append(slot)
            self.slots[slot.number] = slot

    def leave(self, name: str) -> Worker:
        """Remove a worker and its slots."""
        worker = self.workers.pop(name)
        for slot in worker.slots:
            self.unindex(slot)
            del self.slots[slot.number]
        return worker

    def unindex(self, slot: Slot) -> None:
        """Take ``slot`` out of its index, before its contents change or because it has no room."""
        if (index := self._indexed.pop(slot.number, None)) is not None:
            index.remove(slot.number)

    def index(self, slot: Slot, now: float) -> None:
        """Put ``slot``, which has room, into the index of its kind."""
        # Once for each due time: a slot is indexed anew with every change, and a task may run for hours.
        index = self._indexed[slot.number] = self._index_of(slot)
        if index.add(slot, now) and slot.watched != slot.due:
            slot.watched = slot.due
            heapq.heappush(self._due, (slot.due, slot.number))

    def _index_of(self, slot: Slot) -> SlotIndex:
        """The one of the indexes that a slot with room belongs into."""
        return self.queued if slot.queue else self.spare if slot.sent else self.idle

    def overdue(self, now: float) -> Iterator[Slot]:
        """Slots whose running task should have ended by ``now``: their tl has begun to fall."""
        while self._due and self._due[0][0] <= now:
            due, number = heapq.heappop(self._due)
            slot = self.slots.get(number)
            if slot is not None and slot.due == due:
                yield slot

    @property
    def rooms(self) -> int:
        """How many slots have room."""
        return len(self._indexed)

    def indexes(self) -> tuple[SlotIndex, SlotIndex, SlotIndex]:
        """All slots with room."""
        return self.idle, self.spare, self.queued

    def check(self, with_room: Iterable[Slot], now: float) -> None:
        """Raise `InvariantBroken` where what is kept contradicts itself; exactly ``with_room`` are in an index."""
        agree("names", [worker.name for worker in self.workers.values()], list(self.workers))
        here = {slot.number: slot for worker in self.workers.values() for slot in worker.slots}
        agree("slots", self.slots, here)
        for slot in here.values():
            slot.check(now)
        rooms = list(with_room)
        for index in self.indexes():
            here = {slot.number: slot for slot in rooms if self._index_of(slot) is index}
            index.check(here, set(self._due), now)
        agree("how many slots have room", self.rooms, sum(map(len, self.indexes())))


def uptime_end(uptime: float, now: float) -> float:
    """When a window with ``uptime`` seconds left closes."""
    return OPEN_ENDED if uptime == OPEN_ENDED else now + uptime


def differ(before: Sequence[Window], after: Sequence[Window]) -> bool:
    """Whether windows announced again are others, beyond the jitter of heartbeats."""
    if len(before) != len(after):
        return True
    pairs = zip(before, after, strict=True)
    return any(max(abs(a.opens - b.opens), abs(a.closes - b.closes)) > UPTIME_JITTER_S for a, b in pairs)
