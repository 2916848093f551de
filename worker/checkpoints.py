"""The checkpoints of a worker's attempts: when they are due, on their way to the broker, and kept here.

Rule 1: a checkpoint is due shortly before the window closes. Then the piece ends with it. Another one is due every T
seconds, so that little is lost if the PC vanishes.
Rule 2: a worker forgets a checkpoint when the broker has it in its journal (`CheckpointKept`). Until then it sends it
again on each connection, before the results, because the end of a piece counts only after its checkpoint.
Rule 3: a large checkpoint travels in several messages, each when the broker has confirmed the one before.

Pure: ``now`` is monotonic seconds.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol
from zlib import crc32

from deskgrid import wire
from deskgrid.wire.saving import FIRST_COST_S, lead_s
from deskgrid.worker.run.jobs import JobSaved

# T is the best period for a grid whose workers vanish every M seconds on average, if saving costs C seconds:
# sqrt(2 C M) (Young's formula). It is kept within these bounds. Seconds.
PERIOD_LEAST_S = 60.0
PERIOD_MOST_S = 3600.0
# How long workers stay before the broker says it. Seconds.
FIRST_LOSS_S = 86_400.0
# Closing times of one window differ by less than this from one look at the clocks to the next. Seconds.
SAME_S = 1.0

# What a task is given to go on from if the disk of this PC fails.
UNREADABLE = b"?"

AttemptKey = tuple[int, int]


class CheckpointStore(Protocol):
    """The part of `deskgrid.worker.run.checkpoint_files.CheckpointFiles` that is used here."""

    def write(self, task: int, number: int, data: wire.Payload, start: int = 0, size: int | None = None) -> None: ...
    def holds(self, task: int, number: int) -> bool: ...
    def read(self, task: int, number: int) -> wire.Payload | None: ...
    def drop(self, task: int, number: int) -> None: ...


class Times(NamedTuple):
    """When a checkpoint is due, when the window closes, and whether the piece ends with this checkpoint."""

    due: float
    closes: float
    last: bool


@dataclass(slots=True)
class _Unkept:
    """A checkpoint that the broker has not confirmed. ``at``: when it was saved. ``sent``: bytes that were sent."""

    message: wire.Saved
    data: wire.Payload
    at: float
    sent: int = 0

    def part(self, start: int) -> wire.Saved:
        """What is to be sent after the first ``start`` bytes."""
        data = wire.slice_of(self.data, start, wire.CHECKPOINT_BYTES)
        self.sent = start + len(data)
        return replace(self.message, start=start, data=data)


@dataclass(slots=True)
class _SavingAttempt:
    """One attempt. ``since``: when it began, or saved last. ``closes``: when its window closes, as it was last told."""

    template: str
    since: float
    closes: float = math.inf


class Checkpoints:
    """``name``: of the worker, which decides how much earlier than others it saves when many windows close at once."""

    def __init__(self, name: str, store: CheckpointStore) -> None:
        self.loss_s = FIRST_LOSS_S
        self.spread_s = 0.0
        self._place = crc32(name.encode()) / 2**32
        self._store = store
        # How long saving and sending took the last time, by template.
        self._costs: dict[str, float] = {}
        self._pieces: dict[AttemptKey, _SavingAttempt] = {}
        # The newest checkpoint of each task that the broker has not confirmed.
        self._unkept: dict[int, _Unkept] = {}
        # The checkpoints that are in files here, by task: the broker's number, and the number of the file.
        self._here: dict[int, tuple[int, int]] = {}
        self._fetching: set[AttemptKey] = set()
        # Those whose checkpoint came, but found no room on this PC's disk.
        self._roomless: set[AttemptKey] = set()
        self._serial = 0

    @property
    def unkept(self) -> list[wire.Saved]:
        """What the broker has not confirmed, from its start: what is sent on a new connection."""
        return [unkept.part(0) for unkept in self._unkept.values()]

    @property
    def unconfirmed(self) -> int:
        """How many checkpoints the broker has not confirmed."""
        return len(self._unkept)

    def sending(self, task: int) -> bool:
        """Whether more of a task's checkpoint is to be sent."""
        unkept = self._unkept.get(task)
        return unkept is not None and unkept.sent < len(unkept.data)

    @property
    def running(self) -> bool:
        """Whether a checkpointable task runs here."""
        return bool(self._pieces)

    def receive(self, message: wire.CheckpointKept | wire.Checkpoint, now: float) -> wire.Saved | wire.Resume | None:
        """Handle a message of the broker; returns the answer, if there is one."""
        return self.kept(message, now) if isinstance(message, wire.CheckpointKept) else self.arrived(message)

    # --- a piece begins ----------------------------------------------------------------------------------------------

    def lacks(self, work: wire.Work) -> wire.Resume | None:
        """What to ask the broker before ``work`` can begin; None: it has been asked already."""
        key = (work.task, work.number)
        if key in self._fetching:
            return None
        self._fetching.add(key)
        return wire.Resume(work.task, work.number, work.checkpoint, 0)

    def has(self, work: wire.Work) -> bool:
        """Whether everything that ``work`` goes on from is here."""
        number, file = self._here.get(work.task, (0, 0))
        return not work.checkpoint or (number == work.checkpoint and self._store.holds(work.task, file))

    def arrived(self, message: wire.Checkpoint) -> wire.Resume | None:
        """The broker sent a checkpoint, or a part of one; an empty one if it has it no more: the task begins anew.

        Returns what asks for the next part.
        """
        key = (message.task, message.number)
        if key not in self._fetching:
            return None  # nobody waits for it any more
        if not message.start:
            self._forget(message.task)
        self._store.write(*key, message.data, message.start, message.size)
        end = message.start + len(message.data)
        if end < message.size:
            return wire.Resume(*key, message.checkpoint, end)
        self._fetching.discard(key)
        self._here[message.task] = message.checkpoint, message.number
        if not self._store.holds(*key):
            self._roomless.add(key)
        return None

    def failure(self, work: wire.Work) -> tuple[wire.Outcome, str, str] | None:
        """How an attempt ends whose checkpoint found no room here: outcome, type and message; None: it may begin.

        The next attempt fetches it again.
        """
        if (key := (work.task, work.number)) not in self._roomless:
            return None
        self._roomless.discard(key)
        return wire.Outcome.NO_ROOM, "NoRoom", "the checkpoint of the task cannot be kept on this PC's disk"

    def begin(self, work: wire.Work, now: float) -> wire.Payload | None:
        """``work`` begins. Returns the checkpoint that it goes on from; None: it is not checkpointable."""
        if not work.options.checkpoint:
            return None
        self._pieces[work.task, work.number] = _SavingAttempt(work.template, now)
        if not work.checkpoint:
            return b""
        # A file that cannot be read is as bad as a damaged one: the task will say so, and use the one before.
        found = self._store.read(work.task, self._here[work.task][1])
        return UNREADABLE if found is None else found

    def reconnected(self) -> None:
        """Requests or answers may have been lost."""
        self._fetching.clear()
        self._roomless.clear()

    # --- while it runs -----------------------------------------------------------------------------------------------

    def times(self, attempt: AttemptKey, closes: float, now: float) -> Times | None:
        """When ``attempt`` should save; None: it is not checkpointable. ``closes``: when the window closes."""
        piece = self._pieces.get(attempt)
        if piece is None:
            return None
        if not abs(closes - piece.closes) < SAME_S:
            piece.closes = closes
        cost = self._costs.get(piece.template, FIRST_COST_S)
        ends = piece.closes - lead_s(cost) - self._place * self.spread_s
        period = math.sqrt(2.0 * cost * self.loss_s)
        due = piece.since + min(max(period, PERIOD_LEAST_S), PERIOD_MOST_S)
        return Times(due, piece.closes, False) if due < ends and now < ends else Times(ends, piece.closes, True)

    def saved(self, job: JobSaved, now: float) -> wire.Saved | None:
        """An attempt saved; returns what to send. None: it is not one of ours any more."""
        piece = self._pieces.get((job.task, job.number))
        if piece is None:
            return None
        piece.since = now
        self._serial += 1
        cost = max(job.cost, self._costs.get(piece.template, 0.0))
        size = len(job.data)
        message = wire.Saved(job.task, job.number, self._serial, job.progress, job.elapsed, cost, 0, size, b"")
        self._costs[piece.template] = job.cost
        unkept = self._unkept[job.task] = _Unkept(message, job.data, now)
        return unkept.part(0)

    def kept(self, message: wire.CheckpointKept, now: float) -> wire.Saved | None:
        """The broker confirmed a checkpoint, or a part of one. Returns the next part."""
        unkept = self._unkept.get(message.task)
        if unkept is None or unkept.message.serial != message.serial:
            return None
        if 0 < message.taken < len(unkept.data):
            return unkept.part(message.taken)
        del self._unkept[message.task]
        saved = unkept.message
        piece = self._pieces.get((saved.task, saved.number))
        if piece is not None:
            self._costs[piece.template] = self._costs.get(piece.template, 0.0) + now - unkept.at
        if message.checkpoint:
            if self._here.get(saved.task, (0, saved.number))[1] != saved.number:
                self._forget(saved.task)
            self._here[saved.task] = message.checkpoint, saved.number
        return None

    # --- a piece ends ------------------------------------------------------------------------------------------------

    def ended(self, attempt: AttemptKey, goes_on: bool) -> None:
        """An attempt ended, or will not run. ``goes_on``: its task may go on from its checkpoints."""
        self._pieces.pop(attempt, None)
        if attempt in self._fetching:
            self._fetching.discard(attempt)
            self._store.drop(*attempt)
        if not goes_on:
            self._unkept.pop(attempt[0], None)
            self._store.drop(*attempt)
            self._forget(attempt[0])

    def _forget(self, task: int) -> None:
        """Drop the file of a task, if it has one."""
        if (here := self._here.pop(task, None)) is not None:
            self._store.drop(task, here[1])
