"""The tail of a bag: a copy of a running task is started on a slot that would be idle otherwise.

Rule 1: only tasks of bags that allow it are copied, and only after a pass that left nothing to place and some slots
idle. A slot that runs a copy still counts as idle: the copy is stopped as soon as the slot is sent a task.
Rule 2: a task is copied if its attempt is behind, or if the copy should end sooner because its PC is faster. The copy
has to fit into the window of its slot, which belongs to another worker.
Rule 3: a task has at most two attempts that count, and at most one slot in ten runs a copy, but at least one slot may.
Rule 4: no pass looks at all running attempts (`deskgrid.scheduler.state.timers.Looks`).

All times are seconds on the driver's clock.
"""

import math
from collections.abc import Collection, Iterator
from itertools import islice

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.model import AttemptState
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Slot
from deskgrid.scheduler.state.timers import Looks

# An attempt is behind after this many times its predicted runtime, but not before it has taken LEAST_S: a copy of a
# shorter task would hardly begin before its original ends.
BEHIND = 1.5
LEAST_S = 1.0
# A copy of an attempt that is not behind has to take at most this fraction of the time that the attempt still needs.
SOONER = 0.8
# One slot in this many may run a copy.
SLOTS_A_COPY = 10
# How soon to look again at an attempt that could not be copied, although it was due. Seconds.
AGAIN_S = 5.0
# Attempts that one pass looks at, and idle slots that it looks at for each of them, at most: some milliseconds in all.
LOOKS = 50
CHOICES = 100


class Copying:
    """Chooses what to copy, and where. `deskgrid.scheduler.placing.placing` carries it out."""

    def __init__(self, grid: SchedulerState) -> None:
        self._grid = grid
        self._looks = Looks("copy_look_at")
        # When a pass may start a copy although nothing has happened since the last one; infinity if none may.
        self.due = math.inf

    def watch(self, slot: Slot) -> None:
        """Schedule a look at the attempt that ``slot`` runs, if it is of a bag that allows copies."""
        if self._allows_copies(slot):
            self._looks.add(slot, slot.started if slot.worker.pace > 1.0 else _behind_at(slot))

    def choose(self, now: float) -> list[tuple[Slot, Slot]]:
        """What to copy now: pairs of the slot of the original, and the idle slot for the copy."""
        grid, chosen = self._grid, dict[int, tuple[Slot, Slot]]()
        running = sum([copy.state == AttemptState.COPY for copy in grid.copies.values()])
        room = min(max(1, len(grid.slots.slots) // SLOTS_A_COPY), len(grid.slots.idle)) - running
        for slot in self._due_looks(now) if room > 0 else ():
            place = self._place_for(slot, now, chosen)
            if place is not None:
                chosen[place.number] = slot, place
            self._looks.add(slot, _next_look(slot, now))
            if len(chosen) == room:
                break
        if self._looks and len(chosen) < room:
            self.due = max(now, self._looks.next)
        return list(chosen.values())

    def _due_looks(self, now: float) -> Iterator[Slot]:
        """Take slots whose look is due off the heap, and yield those that run an attempt that may be copied."""
        for slot in self._looks.due(self._grid.slots.slots, LOOKS, now):
            if slot.sent and slot.sent[0].state == AttemptState.SENT and self._allows_copies(slot):
                yield slot

    def _allows_copies(self, slot: Slot) -> bool:
        """Whether the attempt that ``slot`` runs is of a bag that allows copies, and may run more tasks now.

        A copy would need a licence of its own, and would count for a limit.
        """
        bag = self._grid.tasks.known(slot.sent[0].task).bag
        return bag.copies and not bag.barred and not bag.category.restricted

    def _place_for(self, slot: Slot, now: float, taken: Collection[int]) -> Slot | None:
        """The idle slot for a copy of the attempt that ``slot`` runs; None if it should not be copied now."""
        grid, task, runtime = self._grid, slot.sent[0].task, slot.sent[0].runtime
        copy = grid.copies.get(task)
        if copy is not None and copy.state == AttemptState.COPY:
            return None
        needs = grid.policy.requirement.needs(runtime) + ROUNDING
        slots = grid.slots.slots
        idle = (slots[number] for number in grid.slots.idle.above(needs, now) if number not in taken)
        key = grid.tasks.known(task).bag.category.key
        environment, labels = key.environment, frozenset[str]() if key.need is None else key.need.labels
        others = (
            place
            for place in idle
            if place.copy is None
            and place.worker is not slot.worker
            and not grid.shut(place.worker)
            and (not environment or environment in place.worker.environments)
            and grid.avoided.until(key, place.worker.name) is None
            and labels <= place.worker.traits.labels
        )
        best = min(islice(others, CHOICES), key=lambda place: place.worker.pace, default=None)
        return best if best is not None and self._pays(slot, best, now) else None

    def _pays(self, slot: Slot, place: Slot, now: float) -> bool:
        """Whether the attempt that ``slot`` runs is behind, or a copy on ``place`` should end sooner."""
        if now >= _behind_at(slot):
            return True
        usual_s = slot.sent[0].runtime * self._grid.tasks.known(slot.sent[0].task).bag.pace
        left_s = usual_s * slot.worker.pace / slot.speed - (now - slot.started)
        return slot.started < now and usual_s * place.worker.pace / place.speed < SOONER * left_s


def _behind_at(slot: Slot) -> float:
    """When the attempt that ``slot`` runs will be behind."""
    return slot.started + max(BEHIND * slot.sent[0].runtime / slot.speed, LEAST_S)


def _next_look(slot: Slot, now: float) -> float:
    """When to look at the attempt that ``slot`` runs after a look at ``now``."""
    behind_at, again_at = _behind_at(slot), now + AGAIN_S
    if now >= behind_at:
        return again_at
    return min(behind_at, again_at) if slot.worker.pace > 1.0 else behind_at
