"""Quarantine: a worker on which everything crashes, or that answers nothing, gets no work for a while.

Rule 1: a worker is put in quarantine after STREAK failures in a row: crashes, attempts that it did not answer in time,
or for which it could start no process. They have to be of two people, or of one person in two environments: nobody
keeps other people's work from a PC. Any other end of a task, an exception included, shows that the worker works. What a
worker does with gangs that do not begin is another matter (`deskgrid.scheduler.state.rests`).
Rule 2: when its quarantine is over, one task is tried there. If that task fails too, the next quarantine is twice as
long.
Rule 3: the crashes of a bag that is to blame itself (`deskgrid.scheduler.state.failures`) say nothing about the
workers.
Rule 4: one worker always stays in use. If no worker that is up gets work, because of quarantines or for other reasons
(`deskgrid.scheduler.state.grid.SchedulerState.shut`), those in quarantine are tried at once. A worker that fails while
no other gets work is let out.

What fails for one bag only is in `deskgrid.scheduler.state.avoided`.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.avoided import Person
from deskgrid.scheduler.state.failures import STREAK
from deskgrid.scheduler.state.slots import Slot, Worker
from deskgrid.scheduler.state.timers import Backoff, Timer, Timers

# Whose failures have to be in a row: of so many people, or of one person in so many environments.
PERSONS = 2
# The first quarantine, and the longest. Seconds. A PC that was misjudged is back soon, and a repaired one within the
# hour.
FIRST_QUARANTINE_S = 10.0
LONGEST_QUARANTINE_S = 3600.0
_BACKOFF = Backoff(FIRST_QUARANTINE_S, LONGEST_QUARANTINE_S)


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

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.workers: dict[str, Quarantined] = {}
        # Of each worker, whose work failed how often since some last worked.
        self._streaks: dict[str, Counter[Person]] = {}

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

    def failed(self, worker: str, slot: int, person: Person, now: float, *, alone: bool, silent: bool = False) -> bool:
        """Note a failure of somebody's work on ``worker``; True if it begins or ends a quarantine.

        ``alone``: no other worker gets work. ``silent``: it did not answer for an attempt in time.
        """
        persons = self._streaks.setdefault(worker, Counter())
        persons[person] += 1
        streak, stay = persons.total(), self.workers.get(worker)
        if streak < STREAK or len(persons) < PERSONS:
            return False
        if stay is not None and not stay.trying:
            stay.failures, stay.silent = streak, silent
            return False
        if alone:
            return stay is not None and self._let_out(worker)
        lasts = _BACKOFF.after(0.0 if stay is None else stay.lasts)
        self.workers[worker] = Quarantined(now + lasts, lasts, slot, streak, silent)
        self._timers.set(Timer.QUARANTINE, worker, now + lasts)
        return True

    def works(self, worker: str) -> bool:
        """Note that a task ended on ``worker`` without a crash; True if that ends a quarantine."""
        self._streaks.pop(worker, None)
        return worker in self.workers and self._let_out(worker)

    def _let_out(self, worker: str) -> bool:
        """``worker``, which is in quarantine, gets work again; True."""
        del self.workers[worker]
        self._timers.drop(Timer.QUARANTINE, worker)
        return True

    def due(self, up: Mapping[str, Worker], now: float, *, alone: bool) -> list[str]:
        """Begin to try the workers whose quarantine is over, and return their names. ``alone``: no worker gets work."""
        found = [name for name, stay in self.workers.items() if name in up and not stay.trying]
        found = [name for name in found if alone or self.workers[name].until <= now]
        for name in found:
            stay, slots = self.workers[name], up[name].slots
            stay.trying = True
            if slots[stay.slot % len(slots)].owes is not None:
                stay.slot = next((slot.position for slot in slots if slot.owes is None), stay.slot)
        return found

    def in_a_row(self, worker: str, person: Person) -> int:
        """How often somebody's work has failed on ``worker`` since anything last worked there."""
        return self._streaks[worker][person] if worker in self._streaks else 0

    def forget_worker(self, name: str) -> None:
        self.works(name)

    def check(self, slots: Collection[Slot]) -> None:
        """Raise `InvariantBroken` if a worker in quarantine has queued work, or the records contradict each other."""
        for slot in slots:
            stay = self.workers.get(slot.worker.name)
            if stay is not None:
                agree(
                    f"work queued for {slot.worker.name}, which is in quarantine",
                    [live.task for live in slot.queue],
                    [],
                )
        streaks = [self._streaks.get(name, Counter[Person]()) for name in self.workers]
        enough = all(persons.total() >= STREAK and len(persons) >= PERSONS for persons in streaks)
        agree("streaks of those in quarantine", enough, True)
