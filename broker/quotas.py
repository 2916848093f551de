"""How much one submitter may have at the broker, so that nobody fills it up for all. Pure.

What counts is by the credential that owns a bag: tasks that have not ended, each of which the broker has in memory and
looks at; and the arguments of all bags that are not forgotten, which are in the journal. New templates count as
arguments, and until the broker is started again, for a template is of no bag until one comes for it.
"""

from collections import Counter
from collections.abc import Collection

from broker.bags import OpenBag

# Tasks of one submitter that have not ended: two of the largest bags.
TASKS_LIMIT = 20_000_000
# Bytes of arguments of one submitter: a few times what a lab's bags have, and less than most disks.
ARGUMENTS_LIMIT = 32 * 2**30


class Quotas:
    """What each owner has. ``bags``: all that are not forgotten."""

    def __init__(self, bags: Collection[OpenBag]) -> None:
        self._bags = bags
        self._tasks: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def extended(self, owner: str, tasks: int, size: int) -> None:
        """A bag of ``owner`` has so many more tasks, with ``size`` bytes of arguments."""
        self._tasks[owner] += tasks
        self._bytes[owner] += size

    def forgotten(self, bag: OpenBag) -> None:
        """A bag is no more."""
        self.extended(bag.row.owner, -bag.total, -bag.size)

    def refusal(self, owner: str, tasks: int, size: int) -> str:
        """Why ``owner`` cannot add so much; empty when they can."""
        if self._bytes[owner] + size > ARGUMENTS_LIMIT:
            return f"{owner} has {self._bytes[owner]} bytes of arguments here, of {ARGUMENTS_LIMIT}: forget some bags"
        # Those that have ended are looked at only where it matters.
        if self._tasks[owner] + tasks > TASKS_LIMIT and self._waiting(owner) + tasks > TASKS_LIMIT:
            return f"{owner} has {self._waiting(owner)} tasks that have not ended, of {TASKS_LIMIT}: try again later"
        return ""

    def _waiting(self, owner: str) -> int:
        return sum(bag.total - bag.settled for bag in self._bags if bag.row.owner == owner)
