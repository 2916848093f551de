"""Quarantine: a worker on which everything crashes, or that answers nothing, gets no work for a while.

Rule 1: a worker is put in quarantine after STREAK failures in a row: crashes, or attempts that it did not answer in
time. Whatever else its tasks do, raising included, shows that it works.
Rule 2: when its time is over one task is tried there. If that fails, too, the next time is twice as long.
Rule 3: a bag that crashes on BAG_WORKERS workers, and was never seen to work, is broken itself: that says nothing
about the workers.
Rule 4: one worker always goes on. If all that are up are in quarantine, they are tried at once, and the last one is let
out.
Rule 5: crashes count against a task, but it is not given up while all of them were on one worker in quarantine.

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
# The first time, and the longest. Seconds. A PC that was judged in error is back soon, and a repaired one within the
# hour.
FIRST_QUARANTINE_S = 10.0
LONGEST_QUARANTINE_S = 3600.0


@dataclass(slots=True)
class Quarantined:
    """One worker's stay. ``failures``: in a row, until now; ``silent``: the last of them was that it did not answer.

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
    """``workers``: those in quarantine, by name."""

    def __init__(self) -> None:
        self.workers: dict[str, Quarantined] = {}
        self._streaks: dict[str, int] = {}
        # Bags that had never a task done when one crashed, and the workers on which they did: BAG_WORKERS at most.
        self._bags: dict[int, set[str]] = {}

    def shuts(self, slot: Slot) -> bool:
        """Whether ``slot`` gets nothing because its worker is in quarantine, or is being tried with something else."""
        stay = self.workers.get(slot.worker.name)
        if stay is None:
            return False
        tried = stay.trying and slot.position == stay.slot % len(slot.worker.slots)
        return not tried or bool(slot.sent or slot.queue)

    def crashed(self, worker: str, slot: int, bag: Bag, up: Collection[str], now: float) -> bool:
        """A task of ``bag`` crashed on ``worker``, with those ``up``; True when that begins or ends a quarantine."""
        return not self._is_broken(bag, worker) and self._failed(worker, slot, up, now, silent=False)

    def silent(self, worker: str, slot: int, up: Collection[str], now: float) -> bool:
        """``worker`` did not answer for an attempt in time; as `crashed`."""
        return self._failed(worker, slot, up, now, silent=True)

    def _failed(self, worker: str, slot: int, up: Collection[str], now: float, *, silent: bool) -> bool:
        streak = self._streaks[worker] = self._streaks.get(worker, 0) + 1
        stay = self.workers.get(worker)
        if streak < STREAK:
            return False
        if stay is not None and not stay.trying:
            stay.failures, stay.silent = streak, silent
            return False
        if all(name == worker or name in self.workers for name in up):
            return self.workers.pop(worker, None) is not None
        lasts = FIRST_QUARANTINE_S if stay is None else min(2 * stay.lasts, LONGEST_QUARANTINE_S)
        self.workers[worker] = Quarantined(now + lasts, lasts, slot, streak, silent)
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
        """A task there has ended, and not by a crash; True when a quarantine ends by that."""
        self._streaks.pop(worker, None)
        return self.workers.pop(worker, None) is not None

    def due(self, up: Mapping[str, Worker], now: float) -> list[str]:
        """Workers that from now on are tried."""
        alone = len(self.workers) >= len(up) and all(name in self.workers for name in up)
        found = [name for name, stay in self.workers.items() if name in up and not stay.trying]
        found = [name for name in found if alone or self.workers[name].until <= now]
        for name in found:
            stay, slots = self.workers[name], up[name].slots
            stay.trying = True
            if slots[stay.slot % len(slots)].owes is not None:
                stay.slot = next((slot.position for slot in slots if slot.owes is None), stay.slot)
        return found

    def excuses(self, places: Sequence[str]) -> bool:
        """Whether all the crashes of a task, which were at ``places``, are held against the one worker there."""
        return len(set(places)) == 1 and places[0] in self.workers

    def forget_worker(self, name: str) -> None:
        self._streaks.pop(name, None)
        self.workers.pop(name, None)

    def forget_bag(self, bag: int) -> None:
        self._bags.pop(bag, None)

    def check(self, slots: Collection[Slot], bags: Collection[int]) -> None:
        """Raise `InvariantBroken` where a worker in quarantine has work queued, or what is kept is of nobody."""
        for slot in slots:
            stay = self.workers.get(slot.worker.name)
            if stay is not None:
                agree(
                    f"work queued for {slot.worker.name}, which is in quarantine", [task for task, _ in slot.queue], []
                )
        agree("bags that crashed", set(self._bags) <= set(bags), True)
        agree(
            "streaks of those in quarantine", all(self._streaks.get(name, 0) >= STREAK for name in self.workers), True
        )
