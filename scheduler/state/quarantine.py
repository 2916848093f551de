"""Broken PCs: a worker on which everything crashes, or that answers nothing, rests, instead of eating the whole bag.

Rule 1: a worker rests after STREAK failures in a row: crashes, or attempts that it did not answer in time. Whatever
else its tasks do, raising included, shows that it works.
Rule 2: when the rest is over one task is tried there. If that fails, too, the next rest is twice as long.
Rule 3: a bag that crashes on BAG_WORKERS workers, and was never seen to work, is broken itself: that says nothing
about the workers.
Rule 4: one worker always goes on: if none but resting ones are up, they are tried at once, and the last is let be.
Rule 5: crashes count against a task, but it is not given up while all of them were on one worker that rests.

So one bad bag costs the lab seconds, and one bad PC costs a bag three crashes, then one in ever longer intervals.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.slots import Slot, Worker
from deskgrid.scheduler.state.tasks import Bag

# Failures in a row: two may be bad luck, and as many end a task.
STREAK = 3
# Where a new bag has to crash before it is to blame: two may both be broken PCs, which have nothing else to do.
BAG_WORKERS = 3
# The first rest, and the longest: seconds. A PC that was judged in error is back soon, one that somebody repairs is so
# within the hour.
FIRST_REST_S = 10.0
LONGEST_REST_S = 3600.0


@dataclass(slots=True)
class Rest:
    """One worker's. ``failures``: in a row, until now; ``silent``: the last of them was that it did not answer.

    ``slot``: where a task is tried when it is ``trying``.
    """

    until: float
    lasts: float
    slot: int
    failures: int
    silent: bool
    trying: bool = False

    @property
    def why(self) -> str:
        """A few words for people."""
        return f"{self.failures} {'tasks not answered' if self.silent else 'crashes'} in a row"


class Quarantine:
    """The workers that rest, by name, and what is known of the others."""

    def __init__(self) -> None:
        self.rests: dict[str, Rest] = {}
        self._streaks: dict[str, int] = {}
        # Bags that had never a task done when one crashed, and the workers on which they did: BAG_WORKERS at most.
        self._bags: dict[int, set[str]] = {}

    def shuts(self, slot: Slot) -> bool:
        """Whether ``slot`` gets nothing because its worker rests, or is being tried with something else."""
        rest = self.rests.get(slot.worker.name)
        if rest is None:
            return False
        tried = rest.trying and slot.position == rest.slot % len(slot.worker.slots)
        return not tried or bool(slot.sent or slot.queue)

    def crashed(self, worker: str, slot: int, bag: Bag, up: Collection[str], now: float) -> bool:
        """A task of ``bag`` crashed on ``worker``, with those ``up``; True when a rest begins, or ends, by that."""
        return not self._is_broken(bag, worker) and self._failed(worker, slot, up, now, silent=False)

    def silent(self, worker: str, slot: int, up: Collection[str], now: float) -> bool:
        """``worker`` did not answer for an attempt in time; as `crashed`."""
        return self._failed(worker, slot, up, now, silent=True)

    def _failed(self, worker: str, slot: int, up: Collection[str], now: float, *, silent: bool) -> bool:
        streak = self._streaks[worker] = self._streaks.get(worker, 0) + 1
        rest = self.rests.get(worker)
        if streak < STREAK:
            return False
        if rest is not None and not rest.trying:
            rest.failures, rest.silent = streak, silent
            return False
        if all(name == worker or name in self.rests for name in up):
            return self.rests.pop(worker, None) is not None
        lasts = FIRST_REST_S if rest is None else min(2 * rest.lasts, LONGEST_REST_S)
        self.rests[worker] = Rest(now + lasts, lasts, slot, streak, silent)
        return True

    def _is_broken(self, bag: Bag, worker: str) -> bool:
        if bag.done:
            self._bags.pop(bag.number, None)
            return False
        where = self._bags.setdefault(bag.number, set())
        if len(where) < BAG_WORKERS:
            where.add(worker)
        return len(where) == BAG_WORKERS

    def works(self, worker: str) -> bool:
        """Something went otherwise than by a crash there; True when a rest ends by that."""
        self._streaks.pop(worker, None)
        return self.rests.pop(worker, None) is not None

    def due(self, up: Mapping[str, Worker], now: float) -> list[str]:
        """Workers that from now on are tried."""
        alone = len(self.rests) >= len(up) and all(name in self.rests for name in up)
        found = [name for name, rest in self.rests.items() if name in up and not rest.trying]
        found = [name for name in found if alone or self.rests[name].until <= now]
        for name in found:
            rest, slots = self.rests[name], up[name].slots
            rest.trying = True
            if slots[rest.slot % len(slots)].owes is not None:
                rest.slot = next((slot.position for slot in slots if slot.owes is None), rest.slot)
        return found

    def excuses(self, places: Sequence[str]) -> bool:
        """Whether all the crashes of a task, which were at ``places``, are held against the one worker there."""
        return len(set(places)) == 1 and places[0] in self.rests

    def forget_worker(self, name: str) -> None:
        self._streaks.pop(name, None)
        self.rests.pop(name, None)

    def forget_bag(self, bag: int) -> None:
        self._bags.pop(bag, None)

    def check(self, slots: Collection[Slot], bags: Collection[int]) -> None:
        """Raise `InvariantBroken` where a resting worker has work waiting, or something is remembered for nobody."""
        for slot in slots:
            rest = self.rests.get(slot.worker.name)
            if rest is not None:
                agree(f"work queued for {slot.worker.name}, which rests", [task for task, _ in slot.queue], [])
        agree("bags that crashed", set(self._bags) <= set(bags), True)
        agree("streaks of those that rest", all(self._streaks.get(name, 0) >= STREAK for name in self.rests), True)
