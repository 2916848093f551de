"""What the broker's parts share: the scheduler, the journal, the book of bags, and the messages to be sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.bags import BagBook
from broker.journal import Journal
from broker.protocol import SECONDS_LIMIT, Message
from scheduler import events as ev
from scheduler.core import Scheduler
from scheduler.policies import Policy

# A prediction is changed when what was seen differs by more than this factor: each change indexes waiting work anew.
CHANGED_BY = 1.25
# What outlived its prediction and was stopped for that is next predicted to take this many times what it had used.
OUTLIVED = 2.0


class WindowsSource(Protocol):
    """Planned windows by worker name, from a file that somebody may be editing."""

    def refresh(self) -> bool:
        """Whether what `table_for` answers may have changed since the last call."""

    def table_for(self, name: str) -> str | None:
        """The windows of the worker of that name as JSON, or None."""


@dataclass(frozen=True, slots=True)
class GridFacts:
    """What does not change while a broker runs. ``wall_at_zero``: POSIX seconds when its own clock showed 0."""

    id: str
    python: str
    address: str
    encrypted: bool
    heartbeat_s: float
    lease_s: float
    wall_at_zero: float


class Desk:
    """One broker's shared state. Commands of the scheduler are collected and carried out by `Sessions`."""

    def __init__(self, facts: GridFacts, journal: Journal, windows: WindowsSource, policy: Policy) -> None:
        self.facts = facts
        self.journal = journal
        self.windows = windows
        self.book = BagBook(journal)
        # Attempt numbers of this life of the broker are larger than those of any earlier one.
        self.scheduler = Scheduler(policy, first_attempt=journal.epoch << 40)
        self.outbox: list[tuple[bytes, Message]] = []
        # What the scheduler wants done besides what a pass decides; carried out when the batch is settled.
        self.pending: list[ev.Command] = []
        # Bags with something new for those who watch them.
        self.fresh: set[int] = set()
        self._notices: list[str] = []

    def send(self, peer: bytes, message: Message) -> None:
        """Queue a message; it leaves after the next commit."""
        self.outbox.append((peer, message))

    def note(self, event: str, **facts: object) -> None:
        """Something worth a line in the log: ``event key=value ...``."""
        self._notices.append(" ".join([event, *(f"{key}={value!r}" for key, value in facts.items())]))

    def take_notices(self) -> list[str]:
        """What has been noted since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def handle(self, event: ev.Event, now: float) -> list[ev.Command]:
        """Give the scheduler an event."""
        return self.scheduler.handle(event, now)

    def outlived(self, elapsed: Mapping[int, float], now: float) -> None:
        """Raise the predictions of tasks that were stopped, unfinished, after more seconds than predicted."""
        longer: dict[int, float] = {}
        for task, seconds in elapsed.items():
            # Of a bag that was forgotten meanwhile nothing is known, and nothing needed.
            if self.scheduler.tasks.batch(task) is None or seconds <= self.scheduler.tasks.runtime(task):
                continue
            bag, _, _ = self.book.find(task)
            runtime = min(OUTLIVED * seconds, SECONDS_LIMIT)
            if bag.row.predicted:
                longer[task] = runtime
            else:
                self.estimate(bag.row.number, runtime, now)
        if longer:
            self.pending += self.handle(ev.RuntimesUpdated(list(longer), list(longer.values())), now)

    def learn(self, now: float) -> None:
        """Predict the bags whose submitter did not, from the longest run each has shown."""
        for number in self.fresh:
            bag = self.book.by_number[number]
            # At 1, 2, 4, 8, ... results: a prediction changes seldom, and soonest when little is known.
            if not bag.row.predicted and bag.settled >= bag.learned_at:
                bag.learned_at = 2 * bag.settled
                self.estimate(number, bag.seen_s, now)

    def estimate(self, number: int, runtime: float, now: float) -> None:
        """One prediction for all of a bag, unless it is near the one it has."""
        bag = self.book.by_number[number]
        if not bag.estimate_s / CHANGED_BY <= runtime <= bag.estimate_s * CHANGED_BY:
            bag.estimate_s = runtime
            self.pending += self.handle(ev.BagPredicted(number, runtime), now)
