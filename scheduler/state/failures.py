"""Where tasks of each bag have failed since it last worked there: on one PC, the PC may be to blame; else, the bag is.

Rule 1: an error, a timeout or a crash counts against the pair of the bag and the worker. What counts is failures in a
row: a task of the bag that is done on the worker clears it.
Rule 2: a task that has failed on two workers, on one of which the bag works, is to blame itself. Its failures count
against no worker.
Rule 3: a bag that has failed on `BAG_WORKERS` workers, or on all that there are, is to blame itself, until a task of it
is done.

Of bags that have not failed, nothing is known here.
"""

from collections.abc import Collection, Container
from dataclasses import dataclass, field

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.bags import ScheduledBag

# On how many workers a bag has to fail before it is to blame. Two may be broken PCs, which are always free.
BAG_WORKERS = 3
# Failures in a row. Two may be bad luck. As many crashes end a task (`CRASH_LIMIT`).
STREAK = 3


class BrokenBags:
    """On how many workers each bag has failed since a task of it was last done."""

    def __init__(self) -> None:
        # For each bag that failed: how many of its tasks were done then, and the workers on which it has failed since,
        # BAG_WORKERS at most.
        self._bags: dict[int, tuple[int, set[str]]] = {}

    def failed(self, bag: ScheduledBag, worker: str) -> int:
        """Note that ``bag`` failed on ``worker``. Returns the same as `workers`."""
        if self.workers(bag) < BAG_WORKERS:
            where = self._bags[bag.number][1] if self.workers(bag) else set[str]()
            self._bags[bag.number] = bag.done, where | {worker}
        return self.workers(bag)

    def workers(self, bag: ScheduledBag) -> int:
        """On how many workers ``bag`` has failed, `BAG_WORKERS` at most."""
        done, where = self._bags.get(bag.number, (bag.done, set[str]()))
        return len(where) if done == bag.done else 0

    def forget(self, bag: int) -> None:
        """The bag is forgotten."""
        self._bags.pop(bag, None)

    def check(self, bags: Container[int]) -> None:
        """Raise `InvariantBroken` unless all ``bags`` that failed are known."""
        agree("bags that failed and are not known", [bag for bag in self._bags if bag not in bags], [])
        many = [bag for bag, (_, where) in self._bags.items() if len(where) > BAG_WORKERS]
        agree("bags that failed on more workers than are counted", many, [])


@dataclass(slots=True)
class _FailureRecord:
    """``before``: the bag had worked before all this, nobody knows where; ``worked``: where it has worked since.
    ``streaks``: the tasks that failed on each worker in a row, the last `STREAK` at most.
    """

    before: bool
    worked: set[str] = field(default_factory=set)
    streaks: dict[str, list[int]] = field(default_factory=dict)


class Failures:
    """By the numbers of bags."""

    def __init__(self) -> None:
        self._bags: dict[int, _FailureRecord] = {}
        self._broken = BrokenBags()

    def note(self, bag: ScheduledBag, task: int, worker: str, others: Collection[str]) -> list[str]:
        """``task`` has failed on ``worker``, and before that on ``others``.

        Returns those of ``others`` on which fewer than `STREAK` failures in a row are left, now that the task is known
        to be to blame.
        """
        record = self._bags.get(bag.number)
        if record is None:
            record, bag.failing = self._bags.setdefault(bag.number, _FailureRecord(bag.done > 0)), True
        self._broken.failed(bag, worker)
        if not others or record.worked.isdisjoint({worker, *others}):
            streak = record.streaks.setdefault(worker, [])
            streak.append(task)
            del streak[:-STREAK]
            if len(streak) == STREAK:
                record.worked.discard(worker)
            return []
        cleared = [name for name in others if task in record.streaks.get(name, ())]
        for name in cleared:
            left = [each for each in record.streaks.pop(name) if each != task]
            if left:
                record.streaks[name] = left
        return cleared

    def in_a_row(self, bag: int, worker: str) -> int:
        """How many failures in a row count against a worker; `STREAK` if there are more."""
        record = self._bags.get(bag)
        return 0 if record is None else len(record.streaks.get(worker, ()))

    def everywhere(self, bag: ScheduledBag, up: int) -> bool:
        """Whether a bag is to blame for its failures. ``up``: how many workers there are."""
        return self._broken.workers(bag) >= min(BAG_WORKERS, max(2, up))

    def works_beside(self, bag: int, worker: str) -> bool:
        """Whether a bag that has failed works on some other worker than this one, as far as is known."""
        record = self._bags[bag]
        return record.before or bool(record.worked - {worker})

    def is_to_blame(self, bag: int, where: Collection[str]) -> bool:
        """Whether a task of a bag is to blame for its failures, which were on these workers."""
        return len(where) > 1 and not (len(where) < BAG_WORKERS and self._bags[bag].worked.isdisjoint(where))

    def worked(self, bag: int, worker: str) -> None:
        """Tasks of a bag were done on ``worker``."""
        if (record := self._bags.get(bag)) is not None:
            record.streaks.pop(worker, None)
            record.worked.add(worker)

    def forget(self, bag: int) -> None:
        """The bag is forgotten."""
        self._bags.pop(bag, None)
        self._broken.forget(bag)

    def check(self, bags: Container[int]) -> None:
        """Raise `InvariantBroken` unless all bags are known, and the counts are in their bounds."""
        agree("bags that failed and are not known", [bag for bag in self._bags if bag not in bags], [])
        for bag, record in self._bags.items():
            counts = [len(streak) for streak in record.streaks.values()]
            agree(f"failures in a row of bag {bag}", [count for count in counts if not 1 <= count <= STREAK], [])
        self._broken.check(bags)
