"""How much one submitter may have at the broker, so that nobody fills it up for all. Pure.

What counts is by the credential that owns a bag: tasks that have not ended, each of which the broker has in memory and
looks at; the arguments and results of all bags that are not forgotten, which are in the journal; and these bags, each
of which is a row in lists, and is taken up when the broker is started. New templates count as arguments, and until the
broker is started again, for a template is of no bag until one comes for it.
"""

from collections import Counter

from deskgrid.broker.bags import OpenBag

# Tasks of one submitter that have not ended: two of the largest bags.
TASKS_LIMIT = 20_000_000
# Bytes of arguments and results of one submitter: a few times what a lab's bags have, and less than most disks.
BYTES_LIMIT = 64 * 2**30
# Bags of one submitter, and of all, that are not forgotten: with so many, the broker is started in seconds.
BAGS_LIMIT = 10_000
BAGS_LIMIT_ALL = 50_000


class Quotas:
    """What each owner has of bags that are not forgotten."""

    def __init__(self) -> None:
        self._bags: Counter[str] = Counter()
        self._all_bags = 0
        self._waiting: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def opened(self, owner: str) -> None:
        """There is one bag more."""
        self._bags[owner] += 1
        self._all_bags += 1

    def extended(self, owner: str, tasks: int, size: int) -> None:
        """A bag of ``owner`` has so many more tasks, and ``size`` bytes more of arguments or results."""
        self._waiting[owner] += tasks
        self._bytes[owner] += size

    def ended(self, owner: str, tasks: int) -> None:
        """So many of them have ended."""
        self._waiting[owner] -= tasks

    def forgotten(self, bag: OpenBag) -> None:
        """A bag is no more."""
        owner = bag.row.owner
        self._bags[owner] -= 1
        self._all_bags -= 1
        self._waiting[owner] -= bag.total - bag.settled
        self._bytes[owner] -= bag.size

    def refusal(self, owner: str, tasks: int, size: int) -> str:
        """Why ``owner`` cannot add so much; empty when they can."""
        if self._bytes[owner] + size > BYTES_LIMIT:
            kept = f"{self._bytes[owner]} bytes of arguments and results"
            return f"{owner} has {kept} here, of {BYTES_LIMIT}: forget some bags"
        if self._waiting[owner] + tasks > TASKS_LIMIT:
            return f"{owner} has {self._waiting[owner]} tasks that have not ended, of {TASKS_LIMIT}: try again later"
        return ""

    def no_bag(self, owner: str) -> str:
        """Why ``owner`` cannot open one more bag; empty when they can."""
        if self._bags[owner] >= BAGS_LIMIT:
            return f"{owner} has {self._bags[owner]} bags here, of {BAGS_LIMIT}: forget some that have ended"
        if self._all_bags >= BAGS_LIMIT_ALL:
            return f"there are {self._all_bags} bags here, of {BAGS_LIMIT_ALL}: some have to be forgotten first"
        return ""
