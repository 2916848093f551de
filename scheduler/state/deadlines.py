"""Deadlines: when a worker should have answered for what it runs, and which slots still owe an answer.

Rule 1: an attempt with a timeout is overdue when that and a grace are over: an honest worker has ended it by then, and
said so.
Rule 2: one without may simply take longer than predicted. It is late when its worker has answered nothing for many
times as long as it, or any task of its bag so far, was to take; a worker that has answered before is given more time,
and so is one whose bag nobody has shown to work.
Rule 3: each time a task is taken back it has several times as long on its next slot. So no task is moved for ever, and
what moving a really long one costs is less than half of what it takes.
Rule 4: no pass looks at all slots. Those at work are in a heap by when they are to be looked at, which is never too
late, and often too early: then they are put back.

Seconds on the driver's clock.
"""

import heapq
import math
from collections.abc import Collection, Iterator, Mapping

from deskgrid.scheduler.model import Attempt, agree
from deskgrid.scheduler.state.slots import NEVER, Slot, Worker
from deskgrid.scheduler.state.tasks import TaskTable

# An honest worker kills a task at its timeout and says so at once. It has this much longer for what is not the task's
# own time: the way there and back, a template to be fetched, a process to be started, a PC that stood still a moment.
# What takes longer than that is given GROWTH times as much the next time. Seconds.
GRACE_S = 5.0
# Without a timeout: how many times its prediction an attempt may take before its worker is suspected. People guess
# wrong, but seldom by more than that for all that a PC runs.
FACTOR = 10.0
# How many times as long a task has after it was taken back.
GROWTH = 4.0
# A worker that has answered is given as long as if its tasks had been taken back so often: it may well be honest. One
# whose bag nobody has shown to work is given longer: perhaps all its tasks take hours, and nobody said so.
KNOWN = 2
UNPROVEN = 3
# Of a worker that has answered before, so many attempts must be late: a single one is just long.
SEVERAL = 3
# Slots that one pass looks at, so that ten thousand which began together do not hold it up. The others are looked at in
# the passes that follow.
LOOKS = 500
# The heap is built anew when it has so many entries for each slot: all but one of them are out of date.
ENTRIES = 4


class Deadlines:
    """When which slot is to be looked at, what is overdue there, and what was taken back and is not answered yet."""

    def __init__(self, tasks: TaskTable) -> None:
        self._tasks = tasks
        self._looks: list[tuple[float, int]] = []
        # Slots whose first attempt was taken back and that have not answered for it, by worker and attempt.
        self.debts: dict[str, dict[Attempt, Slot]] = {}

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def next_look(self) -> float:
        """When a pass has to look at a slot; infinity when none is at work."""
        return self._looks[0][0] if self._looks else math.inf

    def watch(self, slot: Slot, now: float) -> None:
        """``slot`` is at work, and is not looked at within GRACE_S: see that it is in time.

        Nothing is overdue before GRACE_S have passed, so a slot that is looked at by then need not be watched. Nor need
        one that is looked at before its task can be late by what is predicted: nearly all, and this is asked each time.
        """
        task, batch = slot.sent[0].attempt.task, slot.batch
        if batch is None or not 0 <= task - batch.first < batch.count:
            batch = slot.batch = self._tasks.known(task)
        bag = batch.bag
        usual_s = FACTOR * max(slot.sent[0].runtime, bag.took) + GRACE_S
        if bag.timeout is not None or slot.look_at > slot.started + usual_s:
            self.look(slot, max(self.due(slot), now + GRACE_S))

    def look(self, slot: Slot, at: float) -> None:
        """Look at ``slot`` at that time, if not before."""
        if at < slot.look_at:
            slot.look_at = at
            heapq.heappush(self._looks, (at, slot.number))

    def looks(self, slots: Mapping[int, Slot], now: float) -> Iterator[Slot]:
        """Slots to be looked at now; each has no entry any more."""
        if len(self._looks) > ENTRIES * (len(slots) + LOOKS):
            self._looks = [(slot.look_at, number) for number, slot in slots.items() if slot.look_at < math.inf]
            heapq.heapify(self._looks)
        for _ in range(LOOKS):
            if not self._looks or self._looks[0][0] > now:
                return
            at, number = heapq.heappop(self._looks)
            slot = slots.get(number)
            if slot is not None and slot.look_at == at:
                slot.look_at = math.inf
                yield slot

    # --- what is overdue ---------------------------------------------------------------------------------------------

    def due(self, slot: Slot) -> float:
        """The first moment at which what ``slot`` runs may be overdue."""
        task = slot.sent[0].attempt.task
        bag, times = self._tasks.known(task).bag, self._tasks.times_taken(task)
        if bag.timeout is not None:
            return slot.started + bag.timeout + GRACE_S * GROWTH**times
        # A prediction that is still to change makes the slot one that changed, which is watched anew.
        seconds = FACTOR * max(slot.sent[0].runtime, bag.took) + GRACE_S
        return max(slot.started, slot.worker.heard) + (seconds * GROWTH**times if times else seconds)

    def timeout(self, task: int) -> float | None:
        """The timeout of a task, if it has one."""
        return self._tasks.known(task).bag.timeout

    def allowance(self, task: int, times: int) -> float:
        """How long a worker may be silent over a task without a timeout that was taken back so many times."""
        batch = self._tasks.known(task)
        return (FACTOR * max(batch.runtime(task), batch.bag.took) + GRACE_S) * GROWTH**times

    def is_late(self, worker: Worker, task: int, since: float, times: int, now: float) -> bool:
        """Whether ``worker`` should be doubted for a task without a timeout that began there at ``since``."""
        if worker.heard > NEVER:
            times += KNOWN
        if not self._tasks.known(task).bag.took:
            times += UNPROVEN
        return now >= max(since, worker.heard) + self.allowance(task, times)

    def late(self, worker: Worker, now: float) -> list[Slot]:
        """The slots for which ``worker`` should be doubted, if they are enough."""
        found = [slot for slot in worker.slots if slot.sent and self.runs_late(slot, now)]
        return found if len(found) >= (SEVERAL if worker.heard > NEVER else 1) else []

    def runs_late(self, slot: Slot, now: float) -> bool:
        """Whether what ``slot`` runs, which has no timeout, is late."""
        task = slot.sent[0].attempt.task
        if self.timeout(task) is not None:
            return False
        return self.is_late(slot.worker, task, slot.started, self._tasks.times_taken(task), now)

    # --- what is owed ------------------------------------------------------------------------------------------------

    def owe(self, slot: Slot, attempt: Attempt) -> None:
        """``attempt`` was taken back from ``slot``, which gets nothing more until it is answered."""
        slot.owes = attempt
        self.debts.setdefault(slot.worker.name, {})[attempt] = slot

    def pay(self, worker: str, attempt: Attempt) -> Slot | None:
        """``worker`` has answered for ``attempt``: the slot that owed it, if one did."""
        slot = self.debts.get(worker, {}).pop(attempt, None)
        if slot is not None:
            slot.owes = None
            if not self.debts[worker]:
                del self.debts[worker]
        return slot

    def debtor(self, attempt: Attempt) -> str | None:
        """The worker that owes an answer for ``attempt``."""
        return next((name for name, debts in self.debts.items() if attempt in debts), None)

    def check(self, slots: Mapping[int, Slot], settled: Collection[Slot], now: float) -> None:
        """Raise `InvariantBroken` where a slot at work is not looked at in time, or one that owes has work.

        ``settled``: the slots that the last pass has seen to.
        """
        for slot in settled:
            # One without a timeout that is overdue, and was let be, is looked at again some time.
            if slot.sent and (now < (due := self.due(slot)) or self.timeout(slot.sent[0].attempt.task) is not None):
                agree(f"slot {slot.number} is looked at too late", slot.look_at > max(due, now + GRACE_S), False)
        looks = set(self._looks)
        watched = [number for number, slot in slots.items() if slot.look_at < math.inf]
        agree("slots that are to be looked at", [n for n in watched if (slots[n].look_at, n) not in looks], [])
        owed = {(name, at): slot for name, debts in self.debts.items() for at, slot in debts.items()}
        owing = {(slot.worker.name, slot.owes): slot for slot in slots.values() if slot.owes is not None}
        agree("slots that owe an answer", owed, owing)
        for slot in owing.values():
            agree(f"work on slot {slot.number}, which owes an answer", [*slot.sent, *slot.queue], [])
        agree("workers that owe nothing", [name for name, debts in self.debts.items() if not debts], [])
