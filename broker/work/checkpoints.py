"""The checkpoints of tasks that have not ended: which are kept, and what their tasks go on from.

Rule 1: only the newest attempt of a task may save, and only the session that was given it.
Rule 2: two checkpoints of a task are kept, so that there is another one if the newest cannot be read. All are deleted
when the task ends.
Rule 3: they count in the quota of the bag's owner. A checkpoint for which there is no room is not kept, and its task
goes on from the one before. This is asked for each part: many checkpoints may be on their way at the same time.
Rule 4: all parts but the last are of full size, so a checkpoint is few rows of the journal.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from deskgrid import wire
from deskgrid.broker.model.bags import BegunCheckpoint, KeptCheckpoint, OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt
from deskgrid.wire.saving import reserve_s

# Checkpoints of one task that are kept.
GENERATIONS = 2
# Workers that are sent a checkpoint in one turn of the loop: each takes a millisecond to read, at most.
TURN_CHECKPOINTS = 16
# Workers whose windows close within so many seconds of each other are asked to save at different times: for each
# worker, there is so much more time. Seconds.
EACH_S = 0.25


class CheckpointRecorder:
    """Records checkpoints in the journal, and tells the scheduler."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        # Checkpoints that workers have asked for and were not sent yet, by worker and attempt.
        self._owed: OrderedDict[str, dict[Attempt, wire.Resume]] = OrderedDict()

    def keep(self, attempt: Attempt, saved: wire.Saved, elapsed: float, now: float) -> tuple[int, int]:
        """Keep a checkpoint of the newest attempt of a task, or a part of one.

        Returns its number, or 0, and the bytes of it that have come, if more of it is to come. Both are 0 if it is not
        kept.
        """
        bag, _, _ = self._state.book.find(attempt.task)
        begun = bag.begun_checkpoints.get(attempt.task)
        if saved.start and begun is not None and begun.is_continued(attempt, saved) and begun.taken != saved.start:
            return 0, begun.taken  # it came twice
        if not self._takes(bag, attempt, saved):
            drop_begun(self._state, bag, attempt.task)
            return 0, 0
        if (end := saved.start + len(saved.data)) < saved.size:
            self._state.journal.checkpoints.add_part(attempt.task, bag.row.number, saved.start, saved.data)
            self._state.grown(bag, len(saved.data))
            bag.begun_checkpoints[attempt.task] = BegunCheckpoint(attempt.number, saved.serial, saved.size, end)
            return 0, end
        bag.begun_checkpoints.pop(attempt.task, None)
        return self._complete(bag, attempt, saved, elapsed, now), 0

    def _takes(self, bag: OpenBag, attempt: Attempt, saved: wire.Saved) -> bool:
        """Whether a checkpoint begins here, or goes on where it ended; one that begins takes the place of another."""
        end = saved.start + len(saved.data)
        whole = end == saved.size or (end < saved.size and len(saved.data) == wire.CHECKPOINT_BYTES)
        if not bag.row.options.checkpoint or not whole:
            return False
        if saved.start:
            begun = bag.begun_checkpoints.get(attempt.task)
            if begun is None or not begun.is_continued(attempt, saved):
                return False
        else:
            drop_begun(self._state, bag, attempt.task)
        return not self._refusal(bag, saved.size - saved.start)

    def _complete(self, bag: OpenBag, attempt: Attempt, saved: wire.Saved, elapsed: float, now: float) -> int:
        event = ev.CheckpointKept(attempt, saved.progress, elapsed, reserve_s(saved.cost))
        self._state.pending += self._state.scheduler.handle(event, now)
        left_s = self._state.scheduler.left_s(attempt.task)
        number = self._state.journal.checkpoints.add(
            attempt.task, bag.row.number, saved.progress, left_s, saved.data, before=saved.start
        )
        kept = bag.checkpoints.setdefault(attempt.task, [])
        kept.append(KeptCheckpoint(number, saved.progress, left_s, saved.size))
        self._state.grown(bag, len(saved.data))
        self._drop(bag, [kept.pop(0) for _ in range(len(kept) - GENERATIONS)])
        return number

    def _refusal(self, bag: OpenBag, size: int) -> str:
        """Why a checkpoint cannot be kept; empty when it can."""
        return self._state.quotas.refusal(bag.row.owner, 0, size) or self._state.disk.refusal

    def _drop(self, bag: OpenBag, gone: Iterable[KeptCheckpoint]) -> None:
        gone = list(gone)
        self._state.journal.checkpoints.drop([each.number for each in gone])
        self._state.grown(bag, -sum([each.size for each in gone]))

    def unreadable(self, task: int) -> None:
        """A worker cannot read the newest checkpoint of a task: the task goes on from the one before."""
        bag, item = self._state.book.item(task)
        kept = bag.checkpoints.get(task)
        if not kept:
            return
        self._drop(bag, [kept.pop()])
        if not kept:
            del bag.checkpoints[task]
        before = ev.SavedTask(task, kept[-1].progress, kept[-1].left_s) if kept else None
        scheduler = self._state.scheduler
        self._state.pending += scheduler.handle(ev.CheckpointDropped(task, before), scheduler.now)
        facts = {"bag": bag.row.id, "item": item, "goes_on_from": "the one before" if kept else "the beginning"}
        self._state.note("checkpoint-unreadable", by=bag.row.owner, **facts)

    def sent(self, request: wire.Resume) -> wire.Checkpoint:
        """The answer to a worker that was given this attempt and asks for the checkpoint that it goes on from."""
        bag, _, _ = self._state.book.find(request.task)
        kept = [kept for kept in bag.checkpoints.get(request.task, ()) if kept.number == request.checkpoint]
        if kept and (data := self._state.journal.checkpoints.data(request.checkpoint, request.start)):
            return wire.Checkpoint(request.task, request.number, request.checkpoint, request.start, kept[0].size, data)
        return wire.Checkpoint(request.task, request.number, request.checkpoint, 0, 0, b"")

    # --- what workers have asked for ---------------------------------------------------------------------------------

    def owe(self, worker: str, attempt: Attempt, request: wire.Resume) -> None:
        """A worker that was given this attempt asks for the checkpoint that it goes on from."""
        self._owed.setdefault(worker, {})[attempt] = request

    def next_owed(self, ready: Callable[[str], bool | None]) -> Iterator[tuple[str, Attempt, wire.Resume]]:
        """Take a request of each of some workers, in turns, and yield it with the worker's name and the attempt.

        ``ready``: whether the worker of this name has room; None: it is not there any more.
        """
        for _ in range(min(TURN_CHECKPOINTS, len(self._owed))):
            name, asked = self._owed.popitem(last=False)
            if (room := ready(name)) is None:
                continue
            if room:
                attempt = next(iter(asked))
                yield name, attempt, asked.pop(attempt)
            if asked:
                self._owed[name] = asked


def drop_ended(state: BrokerState, bag: OpenBag, tasks: Iterable[int]) -> None:
    """These tasks have ended: delete their checkpoints."""
    if bag.begun_checkpoints:
        for task in tasks:
            drop_begun(state, bag, task)
    if bag.checkpoints:
        gone = [kept for task in tasks for kept in bag.checkpoints.pop(task, ())]
        if gone:
            state.journal.checkpoints.drop([kept.number for kept in gone])
            state.grown(bag, -sum([kept.size for kept in gone]))


def drop_begun(state: BrokerState, bag: OpenBag, task: int) -> None:
    """Delete what came of a checkpoint of this task whose end has not come."""
    if (begun := bag.begun_checkpoints.pop(task, None)) is not None:
        state.journal.checkpoints.drop_begun(task)
        state.grown(bag, -begun.taken)
