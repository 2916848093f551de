"""Limits on what one submitter may have at the broker, so that nobody fills it up for everybody. Pure.

Everything counts for the credential that owns a bag:
- its tasks that have not ended, because the broker keeps each of them in memory;
- the arguments and results of its bags until they are forgotten, because they are in the journal;
- the bags themselves, because each is a row in lists and is restored when the broker starts;
- the batches of its bags, for the same reason. Small batches that come one after the other are joined: they count once.
A new template counts as arguments until the last bag that uses it has been deleted. After a restart templates do not
count: the journal does not say who sent them.
"""

from collections import Counter

from deskgrid.broker.model.bags import OpenBag

# Tasks of one submitter that have not ended: two of the largest bags.
TASKS_LIMIT = 20_000_000
# Bytes of arguments and results of one submitter: several times what a lab's bags have, and less than most disks.
BYTES_LIMIT = 64 * 2**30
# Bags that are not forgotten, of one submitter and of all: with this many, the broker starts within seconds.
BAGS_LIMIT = 10_000
BAGS_LIMIT_ALL = 50_000
# Batches of bags that are not forgotten, of one submitter and of all, not counting those that were joined to others. A
# batch takes about 600 bytes of memory, and some microseconds when the broker starts.
BATCHES_LIMIT = 100_000
BATCHES_LIMIT_ALL = 400_000
# Templates of one submitter that have a record in memory, so that their bytes are freed when they are deleted. A
# submitter cannot use more templates than it has bags. Further templates count until the broker is restarted.
TEMPLATES_LIMIT = BAGS_LIMIT


class Quotas:
    """The usage of each owner."""

    def __init__(self) -> None:
        self._bags: Counter[str] = Counter()
        self._all_bags = 0
        self._batches: Counter[str] = Counter()
        self._all_batches = 0
        self._waiting: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        # The owner and the bytes of each template, by digest; and how many templates each owner has sent.
        self._templates: dict[str, tuple[str, int]] = {}
        self._sent: Counter[str] = Counter()

    def opened(self, owner: str) -> None:
        """``owner`` has one more bag."""
        self._bags[owner] += 1
        self._all_bags += 1

    def extended(self, owner: str, tasks: int, size: int, batches: int = 0) -> None:
        """A bag of ``owner`` has more tasks, and ``size`` more bytes of arguments or results."""
        self._batches[owner] += batches
        self._all_batches += batches
        self._waiting[owner] += tasks
        self._bytes[owner] += size

    def ended(self, owner: str, tasks: int) -> None:
        """``tasks`` more tasks of ``owner`` have ended."""
        self._waiting[owner] -= tasks

    def forgotten(self, bag: OpenBag) -> None:
        """A bag was forgotten."""
        owner = bag.row.owner
        self._bags[owner] -= 1
        self._all_bags -= 1
        self._batches[owner] -= len(bag.batches)
        self._all_batches -= len(bag.batches)
        self._waiting[owner] -= bag.total - bag.settled
        self._bytes[owner] -= bag.size

    def template_added(self, owner: str, digest: str, size: int) -> None:
        """``owner`` sent a new template of ``size`` bytes."""
        self._bytes[owner] += size
        if self._sent[owner] < TEMPLATES_LIMIT:
            self._sent[owner] += 1
            self._templates[digest] = owner, size

    def template_deleted(self, digest: str) -> None:
        """The last bag that used a template has been deleted, and the template with it."""
        if (sent := self._templates.pop(digest, None)) is not None:
            owner, size = sent
            self._bytes[owner] -= size
            self._sent[owner] -= 1

    def refusal(self, owner: str, tasks: int, size: int) -> str:
        """Why ``owner`` cannot add this many tasks and bytes; empty when they can."""
        if self._bytes[owner] + size > BYTES_LIMIT:
            kept = f"{self._bytes[owner]} bytes of arguments and results"
            free = max(0, BYTES_LIMIT - self._bytes[owner])
            return f"{owner} has {kept} here, of {BYTES_LIMIT}; {free} are free: forget some bags"
        if self._waiting[owner] + tasks > TASKS_LIMIT:
            return f"{owner} has {self._waiting[owner]} tasks that have not ended, of {TASKS_LIMIT}: try again later"
        return ""

    def no_batch(self, owner: str) -> str:
        """Why ``owner`` cannot add one more batch; empty when they can."""
        if self._batches[owner] >= BATCHES_LIMIT:
            sent = f"{owner} has submitted {self._batches[owner]} batches that are here, of {BATCHES_LIMIT}"
            return f"{sent}: submit more tasks at once, and forget some bags that have ended"
        if self._all_batches >= BATCHES_LIMIT_ALL:
            return f"there are {self._all_batches} batches here, of {BATCHES_LIMIT_ALL}: some bags have to be forgotten"
        return ""

    def no_bag(self, owner: str) -> str:
        """Why ``owner`` cannot open one more bag; empty when they can."""
        if self._bags[owner] >= BAGS_LIMIT:
            return f"{owner} has {self._bags[owner]} bags here, of {BAGS_LIMIT}: forget some that have ended"
        if self._all_bags >= BAGS_LIMIT_ALL:
            return f"there are {self._all_bags} bags here, of {BAGS_LIMIT_ALL}: some have to be forgotten first"
        return ""
