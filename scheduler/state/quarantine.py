"""Quarantine: a worker on which everything crashes, or that answers nothing, gets no work for a while.

Rule 1: a worker is put in quarantine after STREAK failures in a row: crashes, or attempts that it did not answer in
time. Any other end of a task, an exception included, shows that the worker works. What a worker does with gangs that do
not begin is another matter (`deskgrid.scheduler.state.rests`).
Rule 2: when its quarantine is over, one task is tried there. If that task fails too, the next quarantine is twice as
long.
Rule 3: a bag that crashes on BAG_WORKERS workers, and of which no task is done in between, is broken itself. Its
crashes say nothing about the workers.
Rule 4: one worker always stays in use. If all workers that are up are in quarantine, they are tried at once. A worker
that fails while all others are in quarantine is let out.
Rule 5: crashes count against a task, but it is not given up while all its crashes were on one worker in quarantine.

So one bad bag costs the lab seconds. One bad PC costs a bag three crashes, and then one crash at ever longer intervals.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.bags import Bag
from deskgrid.scheduler.state.broken_bags import BrokenBags
from deskgrid.scheduler.state.slots import Slot, Worker

# Failures in a row. Two may be bad luck. As many crashes end a task (`CRASH_LIMIT`).
STREAK = 3
# The first quarantine, and the longest. Seconds. A PC that was misjudged is back soon, and a repaired one within the
# hour.
FIRST_QUARANTINE_S = 10.0
LONGEST_QUARANTINE_S = 3600.0


@dataclass(slots=True)
class Quarantined:
    """One worker's stay in quarantine. ``failures``: how many in a row, so far.

    ``silent``: the last failure was an attempt that it did not answer. ``slot``: where a task is tried while
    ``trying``.
    """

    until: float
    lasts: float
    slot: int
    failures: int
    silent: bool
    trying: bool = False

    @property
    def why(self) -> str:
        """The reason, in a few words for people."""
        return f"{self.failures} {'tasks not answered' if self.silent else 'crashes'} in a row"


class Quarantine:
    """``workers``: those in quarantine, by name."""

    def __init__(self) -> None:
        self.workers: dict[str, Quarantined] = {}
        self._streaks: dict[str, int] = {}
        self._bags = BrokenBags()

    def shuts(self, slot: Slot) -> bool:
        """Whether ``slot`` gets nothing because its worker is in quarantine, or is being tried with another task."""
        stay = self.workers.get(slot.worker.name)
        if stay is None:
            return False
        tried = stay.trying and slot.position == stay.slot % len(slot.worker.slots)
        return not tried or bool(slot.sent or slot.queue)

    def shuts_out(self, worker: Worker) -> bool:
        """Whether ``worker`` gets no gang. While it is tried, it may get one if it has nothing else."""
        stay = self.workers.get(worker.name)
        return stay is not None and not (
            stay.trying and not any(slot.sent or slot.queue or slot.owes is not None for slot in worker.slots)
        )

    def crashed(self, worker: str, slot: int, bag: Bag, up: Collection[str], now: float) -> bool:
        """Note a crash of ``bag`` on ``worker``; True if it begins or ends a quarantine. ``up``: all workers up."""
        return not self._bags.is_broken(bag, worker) and self._failed(worker, slot, up, now, silent=False)

    def silent(self, worker: str, slot: int, up: Collection[str], now: float) -> bool:
        """Note that ``worker`` did not answer for an attempt in time. Returns the same as `crashed`."""
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

    def works(self, worker: str) -> bool:
        """Note that a task ended on ``worker`` without a crash; True if that ends a quarantine."""
        self._streaks.pop(worker, None)
        return self.workers.pop(worker, None) is not None

    def due(self, up: Mapping[str, Worker], now: float) -> list[str]:
        """Begin to try the workers whose quarantine is over, and return their names."""
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
        """Whether all crashes of a task, on the workers ``places``, are blamed on a single worker in quarantine."""
        return len(set(places)) == 1 and places[0] in self.workers

    def forget_worker(self, name: str) -> None:
        self._streaks.pop(name, None)
        self.workers.pop(name, None)

    def forget_bag(self, bag: int) -> None:
        self._bags.forget(bag)

    def check(self, slots: Collection[Slot], bags: Collection[int]) -> None:
        """Raise `InvariantBroken` if a worker in quarantine has queued work, or the records contradict each other."""
        for slot in slots:
            stay = self.workers.get(slot.worker.name)
            if stay is not None:
                agree(
                    f"work queued for {slot.worker.name}, which is in quarantine", [task for task, _ in slot.queue], []
                )
        self._bags.check(bags)
        agree(
            "streaks of those in quarantine", all(self._streaks.get(name, 0) >= STREAK for name in self.workers), True
        )
