"""Deadlines: when a worker must have answered for an attempt.

Rule 1: an attempt with a timeout is overdue when the timeout and a grace period have passed. An honest worker has ended
it by then and has said so.
Rule 2: an attempt without a timeout may simply take longer than predicted. It is late when its worker has not answered
anything for many times its runtime, or many times the longest time that a task of its bag has taken, whichever is more.
A worker that has answered before gets more time. So does a worker whose bag has no task done yet.
Rule 3: each time a task is taken back, it gets several times as long on its next slot. So no task is moved for ever,
and moving a very long task costs less than half of the time that the task takes.
Rule 4: no pass looks at all slots (`deskgrid.scheduler.state.timers.Looks`). The time of a look is never too late.

All times are seconds on the driver's clock.
"""

import math
from collections.abc import Collection, Mapping

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.slots import NEVER, Slot, Worker
from deskgrid.scheduler.state.tasks import TaskTable
from deskgrid.scheduler.state.timers import Looks

# An honest worker kills a task at its timeout and says so at once. It gets this many more seconds for everything that
# is not the task's own time: messages both ways, fetching a template, starting a process, a PC that stalls for a
# moment. If that takes longer, the next attempt gets GROWTH times as much.
GRACE_S = 5.0
# Without a timeout, an attempt may take this many times its runtime before its worker is suspected. People guess wrong,
# but seldom by more than this for all tasks that a PC runs.
FACTOR = 10.0
# A task that was taken back gets this many times as long on its next slot.
GROWTH = 4.0
# A worker that has answered before gets as much time as if its task had been taken back KNOWN times more: it may well
# be honest. A worker whose bag has no task done yet gets as much as for UNPROVEN times more: perhaps all tasks of the
# bag take hours, and nobody said so.
KNOWN = 2
UNPROVEN = 3
# If a worker has answered before, at least this many of its attempts must be late: a single late attempt is just long.
SEVERAL = 3


class Deadlines:
    """When to look at each slot (``looks``), and which attempts are overdue there."""

    def __init__(self, tasks: TaskTable) -> None:
        self._tasks = tasks
        self.looks = Looks("look_at")

    # --- looking -----------------------------------------------------------------------------------------------------

    def watch(self, slot: Slot, now: float) -> None:
        """Schedule a look at ``slot``, which is at work and has no look within GRACE_S.

        Nothing is overdue before GRACE_S have passed, so a slot with a look before then needs no other. Neither does a
        slot with a look before its task can be late by its runtime. Nearly all slots have such a look, and the test for
        it is cheap.
        """
        task, batch = slot.sent[0].task, slot.batch
        if batch is None or not 0 <= task - batch.first < batch.count:
            batch = slot.batch = self._tasks.known(task)
        bag = batch.bag
        usual_s = FACTOR * max(slot.sent[0].runtime, bag.took) / slot.speed + GRACE_S
        if bag.timeout is not None or slot.look_at > slot.started + usual_s:
            self.looks.add(slot, max(self.due(slot), now + GRACE_S))

    # --- overdue attempts --------------------------------------------------------------------------------------------

    def due(self, slot: Slot) -> float:
        """The earliest time at which the running attempt of ``slot`` can be overdue."""
        task = slot.sent[0].task
        timeout = self.timeout(task)
        if timeout is not None:
            return slot.started + timeout + GRACE_S * GROWTH ** self._tasks.times_taken(task)
        return max(slot.started, slot.worker.heard) + self.silence(slot)

    def silence(self, slot: Slot) -> float:
        """How long the worker of ``slot`` may be silent about an attempt without a timeout before it is overdue."""
        # If the prediction changes later, the slot counts as changed, and the next pass watches it again.
        task = slot.sent[0].task
        times = self._tasks.times_taken(task)
        seconds = FACTOR * max(slot.sent[0].runtime, self._tasks.known(task).bag.took) / slot.speed + GRACE_S
        return seconds * GROWTH**times if times else seconds

    def look_again(self, slot: Slot, now: float) -> None:
        """An overdue attempt without a timeout is left alone: look when it is overdue again, if it is heard of now."""
        self.looks.add(slot, now + self.silence(slot))

    def timeout(self, task: int) -> float | None:
        """The timeout of a task, if it has one."""
        return self._tasks.known(task).bag.timeout

    def allowance(self, task: int, times: int) -> float:
        """How long a worker may be silent about a task without a timeout that was taken back ``times`` times."""
        batch = self._tasks.known(task)
        return (FACTOR * max(batch.runtime(task), batch.bag.took) + GRACE_S) * GROWTH**times

    def is_late(self, worker: Worker, task: int, since: float, times: int, now: float) -> bool:
        """Whether to doubt ``worker`` because of a task without a timeout that began there at ``since``."""
        if worker.heard > NEVER:
            times += KNOWN
        if not self._tasks.known(task).bag.took:
            times += UNPROVEN
        return now >= max(since, worker.heard) + self.allowance(task, times) / worker.speed

    def late(self, worker: Worker, now: float) -> list[Slot]:
        """The slots of ``worker`` with single tasks that run late; none if they are too few to doubt the worker."""
        found = [slot for slot in worker.slots if slot.sent and slot.gang is None and self.runs_late(slot, now)]
        return found if len(found) >= (SEVERAL if worker.heard > NEVER else 1) else []

    def runs_late(self, slot: Slot, now: float) -> bool:
        """Whether the running attempt of ``slot`` is late. An attempt with a timeout never is."""
        task = slot.sent[0].task
        if self.timeout(task) is not None:
            return False
        return self.is_late(slot.worker, task, slot.started, self._tasks.times_taken(task), now)

    def check(self, slots: Mapping[int, Slot], settled: Collection[Slot], now: float) -> None:
        """Raise `InvariantBroken` if a slot at work has its look too late.

        ``settled``: the slots that have nothing left for the next pass to handle.
        """
        for slot in settled:
            if slot.gang is not None and slot is not slot.gang.first_on(slot.worker):
                continue  # one slot of each worker is enough
            # An overdue attempt without a timeout that was left alone gets another look at some later time.
            if slot.sent and (now < (due := self.due(slot)) or self.timeout(slot.sent[0].task) is not None):
                agree(f"slot {slot.number} is looked at too late", slot.look_at > max(due, now + GRACE_S), False)
        looks = set(self.looks.entries)
        watched = [number for number, slot in slots.items() if slot.look_at < math.inf]
        agree("slots that are to be looked at", [n for n in watched if (slots[n].look_at, n) not in looks], [])
