"""Whose fault it is that work fails: the task's, its bag's, its person's, or the PC's.

Rule 1: a worker on which several tasks of a bag fail in a row gets no more of that bag for a while, if the bag works
elsewhere, or may: it runs there, or it has crashed here and not elsewhere. A bag, or a task, that fails elsewhere too
is to blame itself (`deskgrid.scheduler.state.failures`).
Rule 2: a task that has used up its retries is tried once more on another worker, under the same condition. If it fails
there, too, and nobody knows whether its bag works there, a third worker decides.
Rule 3: if no process can be started, or a worker does not answer, the person's work in that environment is kept from
the worker first. If the environment starts nowhere, its bags are to be held (`deskgrid.scheduler.commands.Hold`).
Rule 4: a worker on which work of two people fails gets no work at all (`deskgrid.scheduler.state.quarantine`).
Rule 5: which of its workers is to blame for a gang is not known. So errors of gangs keep nothing from a worker; gangs
that do not begin do (`deskgrid.scheduler.state.rests`), and crashes count towards a quarantine.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.handlers.retrying import others_could
from deskgrid.scheduler.handlers.separating import Separating
from deskgrid.scheduler.model import AttemptOutcome
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.avoided import FIRST_REST_S, Person, Why, person_of
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.failures import BAG_WORKERS, STREAK
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Worker

# Outcomes that count against a task.
_FAILED = frozenset({AttemptOutcome.ERROR, AttemptOutcome.CRASH, AttemptOutcome.TIMEOUT})
# How many slots are searched for tasks of a bag that run elsewhere: a millisecond at most.
SLOTS = 1_000


class Blame:
    """Notes on ``grid`` what works where, and what does not. ``separating``: gives bags categories of their own."""

    def __init__(self, grid: SchedulerState, separating: Separating) -> None:
        self._grid = grid
        self._separating = separating

    # --- what ended --------------------------------------------------------------------------------------------------

    def judge(self, name: str, slot: int, ended: ev.EndedAttempt, now: float) -> bool:
        """Learn from an attempt that ended on a worker; True if that has to be relieved of what it has not begun."""
        grid, (attempt, outcome, *_) = self._grid, ended
        bag = grid.tasks.known(attempt.task).bag
        key = bag.category.key
        if outcome == AttemptOutcome.NO_ROOM:  # this says nothing of how it works otherwise
            return grid.avoided.avoid(key, name, Why.NO_ROOM, now)
        if outcome == AttemptOutcome.NO_START:
            changed = self._quarantine(name, slot, person_of(key), now)
            return self._does_not_start(person_of(key), bag, name, Why.NO_START, now) or changed
        if outcome not in _FAILED:
            grid.failures.worked(bag.number, name)
            self._works([key], name)
            return False
        began, crash = self._failed(bag, attempt.task, name, now, crash=outcome == AttemptOutcome.CRASH), False
        if outcome != AttemptOutcome.CRASH:
            grid.avoided.works([key], name, done=False)
        else:
            broken = grid.failures.everywhere(bag, len(grid.slots.workers))
            crash = not broken and self._quarantine(name, slot, person_of(key), now)
        return began or crash

    def did(self, tasks: Sequence[int], name: str) -> None:
        """Tasks were done on a worker, while some work is kept from workers, or some of their bags fail."""
        grid, known = self._grid, self._grid.tasks.known
        for bag in grid.tasks.worked:
            grid.failures.worked(bag.number, name)
        grid.tasks.worked.clear()
        if grid.avoided:
            self._works({known(task).bag.category.key for task in tasks}, name)

    def _works(self, keys: Iterable[CategoryKey], name: str) -> None:
        if self._grid.avoided.works(keys, name, done=True):
            self._take_up(name)

    def _take_up(self, name: str) -> None:
        """A worker gets work again that it got none of."""
        self._grid.changes += 1
        if (worker := self._grid.slots.workers.get(name)) is not None:
            self._grid.change_all(worker)

    def _quarantine(self, name: str, slot: int, person: Person, now: float, *, silent: bool = False) -> bool:
        grid = self._grid
        return grid.quarantine.failed(name, slot, person, now, alone=grid.is_alone(name), silent=silent)

    # --- bags that fail ----------------------------------------------------------------------------------------------

    def _failed(self, bag: ScheduledBag, task: int, name: str, now: float, *, crash: bool) -> bool:
        """A task of ``bag`` failed on a worker; True if that gets none of the bag for a while."""
        grid, failures = self._grid, self._grid.failures
        others = grid.tasks.failed_on(task) - {name}
        key, cleared = bag.own_key, failures.note(bag, task, name, sorted(others))
        if broken := failures.everywhere(bag, len(grid.slots.workers)):
            cleared = list(grid.avoided.failing(key))
        for worker in cleared:
            if grid.avoided.lift(key, worker):
                self._take_up(worker)
        if broken or bag.category.parallel:
            return False
        if failures.in_a_row(bag.number, name) < STREAK and not grid.avoided.has_failed(key, name):
            return False
        if not ((crash or self._may_work_beside(bag, name)) and others_could(grid, task, {name})):
            return False
        return self._separating.begin(bag) and grid.avoided.avoid(key, name, Why.FAILS, now)

    def _may_work_beside(self, bag: ScheduledBag, name: str) -> bool:
        """Whether ``bag``, which fails on one worker, works on another one, or runs there and has not failed yet."""
        grid = self._grid
        return grid.failures.works_beside(bag.number, name) or any(
            slot.sent and slot.worker.name != name and grid.tasks.known(slot.sent[0].task).bag is bag
            for slot in islice(grid.slots.slots.values(), SLOTS)
        )

    def once_more(self, task: int, name: str, errors: int) -> bool:
        """Whether ``task``, whose retries are used up after so many errors, is tried once more, on another worker."""
        grid = self._grid
        bag = grid.tasks.known(task).bag
        return (
            errors < bag.retries + BAG_WORKERS
            and not bag.category.parallel
            and not grid.failures.everywhere(bag, len(grid.slots.workers))
            and not grid.failures.is_to_blame(bag.number, failed_on := grid.tasks.failed_on(task))
            and self._may_work_beside(bag, name)
            and others_could(grid, task, failed_on)
        )

    def excuses(self, task: int) -> bool:
        """Whether all crashes of ``task`` are blamed on a single worker: it rests from its bag, or from everything."""
        grid, bag = self._grid, self._grid.tasks.known(task).bag
        name, *others = dict.fromkeys(grid.tasks.crashes(task))
        # A gang may need the very worker that all its crashes were on.
        if others or bag.category.parallel:
            return False
        return name in grid.quarantine.workers or grid.avoided.until(bag.own_key, name) is not None

    # --- work that does not start ------------------------------------------------------------------------------------

    def silent(self, worker: Worker, slot: int, bag: ScheduledBag, now: float) -> bool:
        """``worker`` did not answer for an attempt of ``bag`` in time. Returns the same as `judge`."""
        grid, person = self._grid, person_of(bag.category.key)
        changed = self._quarantine(worker.name, slot, person, now, silent=True)
        if grid.quarantine.in_a_row(worker.name, person) < STREAK:
            return changed
        if not person.environment and grid.is_alone(worker.name):
            return changed
        if bag.category.parallel:
            grid.rests.not_kept(worker.name, now)
        return self._does_not_start(person, bag, worker.name, Why.SILENT, now) or changed

    def _does_not_start(self, person: Person, bag: ScheduledBag, name: str, why: Why, now: float) -> bool:
        """Somebody's work in an environment does not start on a worker; True if that gets none of it for a while."""
        began = self._grid.avoided.avoid(person, name, why, now)
        if began and person.environment and self._starts_nowhere(person, bag, name):
            where = list(self._grid.avoided.failing(person))
            self._grid.commands.append(cmd.Hold(person.environment, where, silent=why is Why.SILENT))
        return began

    def _starts_nowhere(self, person: Person, bag: ScheduledBag, name: str) -> bool:
        """Whether an environment that did not start on a worker is to blame: it starts on no other one.

        Of a bag of which nothing is done yet, two workers are enough. On a single one, it has to fail twice.
        """
        where = self._grid.avoided.failing(person)
        if len(where) > 1 and not bag.done:
            return True
        workers = self._grid.slots.workers.values()
        ready = [each.name for each in workers if person.environment in each.environments]
        return where.keys() >= set(ready) and (len(where) > 1 or where[name].lasts > FIRST_REST_S)
