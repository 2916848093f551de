"""The state that the broker's parts share: the scheduler, the journal, the book of bags, and the messages to send."""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

from deskgrid.broker.auth.roles import Credentials
from deskgrid.broker.model.bags import BagBook, OpenBag
from deskgrid.broker.model.calendar_reader import CalendarReader
from deskgrid.broker.model.clocks import RateLimit, WallClock
from deskgrid.broker.model.drains import Drains
from deskgrid.broker.model.event_log import EventLog
from deskgrid.broker.model.failed_attempts import FailedAttempts
from deskgrid.broker.model.forecaster import Forecaster
from deskgrid.broker.model.home_files import licences_file, shares_file
from deskgrid.broker.model.learning import Learning
from deskgrid.broker.model.quotas import BYTES_LIMIT, Quotas
from deskgrid.broker.model.window_log import WindowLog
from deskgrid.broker.store.disk import Disk
from deskgrid.broker.store.journal import Journal
from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.policies import Policy
from deskgrid.windows.windows_file import windows_file
from deskgrid.wire import (
    BATCH_BYTES,
    SECONDS_LIMIT,
    Accepted,
    Assign,
    Blob,
    Checkpoint,
    Environment,
    Failed,
    Message,
    Part,
    PrepareRanks,
    Taken,
    template_environment,
    template_trees,
    weight,
)

# Lines in the log that one credential may cause: `LINES` at once, and then one every `LINE_S` seconds.
LINES = 200
LINE_S = 1.0
# A prediction is changed only if it is off by more than this factor, because each change costs new indexes of waiting
# tasks.
CHANGED_BY = 1.25
# How fast files are assumed to reach a PC, for the test whether a task fits: less than half of what a network of a
# gigabit carries. Bytes per second.
TRANSFER_BYTES_PER_S = 50e6


# Templates whose environments are kept in mind.
ENVIRONMENTS = 10_000


@dataclass(frozen=True, slots=True)
class GridFacts:
    """Facts about a broker that runs."""

    id: str
    python: str
    address: str
    encrypted: bool
    heartbeat_s: float
    lease_s: float
    wall: WallClock

    @property
    def joining(self) -> str:
        """How a PC joins this grid, for people."""
        if self.encrypted:
            return "an admin gets the line with which PCs join from deskgrid keys add lab NAME"
        return f"start one on this machine with deskgrid worker --broker {self.address}"


class Leaving(NamedTuple):
    """Messages to send, each with its peer. ``work`` need not wait for the commit: if it is lost, it is sent again."""

    work: list[tuple[bytes, Message]]
    words: list[tuple[bytes, Message]]


class BrokerState:
    """One broker's shared state. Commands of the scheduler are collected and carried out by `Sessions`."""

    def __init__(
        self,
        facts: GridFacts,
        journal: Journal,
        policy: Policy,
        credentials: Credentials | None = None,
    ) -> None:
        """``credentials``: None without encryption."""
        self.facts = facts
        self.wall = facts.wall
        self.journal = journal
        self.windows_file = windows_file(journal.home)
        self.shares_file, self.licences_file = shares_file(journal.home), licences_file(journal.home)
        # What is wrong with these files, or probably a mistake in them, each in one sentence.
        self.problems: list[str] = []
        self.credentials = credentials
        # Who makes forecasts; a server has a process for that.
        self.forecaster: Forecaster  # whoever starts a broker sets it
        # Who reads calendars; a server has a thread for that. Without one, none is read.
        self.calendar_reader: CalendarReader | None = None
        # Names of credentials that were revoked in this turn; their peers are dropped when it is settled.
        self.revoked: list[str] = []
        self.disk = Disk(journal, str(journal.home))
        self.book = BagBook(journal)
        self.quotas = Quotas()
        # The bytes of files that the first task of a bag on a slot needs, and each other, by bag and owner.
        self.file_needs: dict[tuple[str, str], tuple[int, int]] = {}
        self.failed_attempts = FailedAttempts()
        self.learning = Learning(journal, self.wall)
        self.window_log = WindowLog(journal, self.wall)
        self.drains = Drains(journal)
        # Packets that wake PCs, for the driver to send: the network card, and where to.
        self.wakes: list[tuple[str, tuple[str, int]]] = []
        # Attempt numbers of this life of the broker are larger than those of any earlier one.
        self.scheduler = self._new_scheduler(policy, journal.epoch << 40)
        # A policy has a state of its own. This is a copy of the current policy, from before its first use.
        self.unused_policy = deepcopy(policy)
        # Messages to send. Receipts go last, because no peer is idle while it waits for one.
        self._work: list[tuple[bytes, Message]] = []
        self._words: list[tuple[bytes, Message]] = []
        self._receipts: list[tuple[bytes, Message]] = []
        self._addressed: set[bytes] = set()  # the peers in `_words`
        # `owed`: roughly the bytes of these messages for each peer. `waiting`: the bytes of earlier messages that a
        # peer has not taken yet.
        self.owed: Counter[bytes] = Counter()
        self.waiting: Callable[[bytes], int] = lambda peer: 0
        # Whether too many bytes wait for all peers with the same credential as a peer, or for all peers together.
        self.crowded: Callable[[bytes], bool] = lambda peer: False
        # The broker's clock when the last `Sessions.settle` began.
        self.now = 0.0
        # Commands of the scheduler from outside a pass; carried out when the turn is settled.
        self.pending: list[cmd.Command] = []
        # Bags whose orders made the broker fail.
        self.broken_orders: set[int] = set()
        # Bags that are to be held, and why.
        self.to_hold: list[tuple[OpenBag, str]] = []
        # The environments of templates that were asked for lately, by digest.
        self._environments: dict[str, Environment | None] = {}
        self._trees: dict[str, tuple[bytes, ...]] = {}
        # Bags with news for their watchers.
        self.fresh: set[int] = set()
        self.events = EventLog(first=journal.epoch << 32)
        self._notices: list[str] = []
        self._lines = RateLimit(LINES, LINE_S)

    def successor(self) -> "BrokerState":
        """A new state, to be restored from the journal. No attempt number is used twice."""
        state = BrokerState(self.facts, self.journal, self.unused_policy, self.credentials)
        state.revoked = self.revoked
        state.windows_file, state.problems = self.windows_file, self.problems
        state.shares_file, state.licences_file = self.shares_file, self.licences_file
        state.broken_orders = self.broken_orders
        state.forecaster, state.calendar_reader = self.forecaster, self.calendar_reader
        state.waiting, state.crowded = self.waiting, self.crowded
        state.disk = self.disk
        state.events = self.events
        state.scheduler = state._new_scheduler(self.unused_policy, self.scheduler.next_attempt)
        state._notices, state._lines = self._notices, self._lines
        return state

    def _new_scheduler(self, policy: Policy, first_attempt: int) -> Scheduler:
        """A scheduler that knows what was learned."""
        known = self.learning
        return Scheduler(policy, first_attempt, hours=known.hours, speeds=known.speeds, earlier=known.earlier)

    def environment_of(self, template: str) -> Environment | None:
        """The environment that a template in the journal names."""
        if template not in self._environments:
            if len(self._environments) >= ENVIRONMENTS:
                self._environments.clear()
            data = self.journal.template(template)
            self._environments[template] = None if data is None else template_environment(data)
        return self._environments[template]

    def trees_of(self, template: str) -> tuple[bytes, ...]:
        """The digests of the trees that a template in the journal names."""
        if template not in self._trees:
            if len(self._trees) >= ENVIRONMENTS:
                self._trees.clear()
            data = self.journal.template(template)
            self._trees[template] = () if data is None else template_trees(data)
        return self._trees[template]

    def send(self, peer: bytes, message: Message) -> None:
        """Queue a message; it leaves after the next commit."""
        if isinstance(message, Accepted | Taken):
            self._receipts.append((peer, message))
        else:
            self._words.append((peer, message))
            self._addressed.add(peer)
        self.owed[peer] += weight(message)

    def hand_out(self, peer: bytes, message: Assign | Blob | Checkpoint | Part | PrepareRanks) -> None:
        """Queue work, which a crash may lose: it leaves before the commit, unless other messages are ahead of it."""
        (self._words if peer in self._addressed else self._work).append((peer, message))
        self.owed[peer] += weight(message)

    def has_room(self, peer: bytes, limit: int = BATCH_BYTES) -> bool:
        """Whether fewer than ``limit`` bytes wait for a peer: if not, no more messages are made for it yet."""
        return self.owed[peer] + self.waiting(peer) < limit and not self.crowded(peer)

    def take_leaving(self) -> Leaving:
        """The messages queued since the last call."""
        leaving = Leaving(self._work, self._words + self._receipts)
        self._work, self._words, self._receipts = [], [], []
        self._addressed.clear()
        self.owed.clear()
        return leaving

    def forget(self, bag: OpenBag, why: str) -> None:
        """Forget a complete bag; its watchers are told ``why``."""
        self.scheduler.handle(ev.BagForgotten(bag.row.number), self.now)
        self.book.forget(bag)
        self.journal.parts.forget(bag.row.id, bag.row.owner)
        self.file_needs.pop((bag.row.id, bag.row.owner), None)
        self.quotas.forgotten(bag)
        self.fresh.discard(bag.row.number)
        for peer, its in bag.watchers.items():
            for request in its:
                self.send(peer, Failed(request, why))

    def grown(self, bag: OpenBag, size: int) -> None:
        """A bag has ``size`` more bytes of results."""
        bag.size += size
        self.quotas.extended(bag.row.owner, 0, size)

    def settled(self, bag: OpenBag, tasks: int) -> None:
        """``tasks`` more tasks of a bag have ended."""
        bag.settled += tasks
        self.quotas.ended(bag.row.owner, tasks)
        self.fresh.add(bag.row.number)

    def note(self, event: str, by: str = "", **facts: object) -> None:
        """Log a line after the next commit, ``event key=value ...``, and keep it as an event for people who watch.

        ``by``: the credential that can cause this line again and again; the lines of each credential are limited.
        """
        if by and not self._lines.take(by, self.scheduler.now):
            return
        self.events.add(event, facts, self.scheduler.now)
        self._notices.append(" ".join([event, *(f"{key}={value!r}" for key, value in facts.items())]))

    def take_wakes(self) -> list[tuple[str, tuple[str, int]]]:
        """The packets to send since the last call."""
        wakes, self.wakes = self.wakes, []
        return wakes

    def take_notices(self) -> list[str]:
        """The lines noted since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def outlived(self, elapsed: Mapping[int, float], now: float) -> None:
        """Raise the predictions of tasks that were stopped after running longer than predicted."""
        longer: dict[int, float] = {}
        by_bag: dict[int, float] = {}
        for task, seconds in self.scheduler.outlived(elapsed, now).items():
            bag, _, _ = self.book.find(task)
            runtime = min(seconds, SECONDS_LIMIT)
            if bag.row.predicted:
                longer[task] = runtime
            else:
                by_bag[bag.row.number] = max(runtime, by_bag.get(bag.row.number, 0.0))
        for number, runtime in by_bag.items():
            self.estimate(number, runtime, now)
        if longer:
            self.pending += self.scheduler.handle(ev.RuntimesUpdated(list(longer), list(longer.values())), now)

    def learn(self, now: float) -> None:
        """Learn from tasks that have ended, and predict those of bags whose submitters gave no predictions."""
        for number in self.fresh:
            bag = self.book.by_number[number]
            # At 1, 2, 4, 8, ... results: often while little is known, and seldom later.
            if bag.row.options.checkpoint:
                continue  # each task's own checkpoints tell what is left of it
            if bag.runs.count >= bag.learned_at or bag.complete:
                bag.learned_at = 2 * bag.runs.count
                self.learning.learn(bag)
                if not bag.row.predicted and not bag.complete:
                    self.estimate(number, self.learning.expected(bag), now)

    def estimate(self, number: int, runtime: float, now: float) -> None:
        """Give all tasks of a bag the same prediction, unless it hardly differs from the present one."""
        bag = self.book.by_number[number]
        if not bag.estimate_s / CHANGED_BY <= runtime <= bag.estimate_s * CHANGED_BY:
            bag.estimate_s = runtime
            runtime += bag.transfer_s
            self.pending += self.scheduler.handle(ev.BagPredicted(number, min(runtime, SECONDS_LIMIT)), now)

    def note_transfer(self, bag: OpenBag) -> None:
        """Note how long the files of a bag's tasks should take to a PC: its client says how many bytes they have."""
        said = self.file_needs.get((bag.row.id, bag.row.owner), (0, 0))
        seconds = [min(size, BYTES_LIMIT) / TRANSFER_BYTES_PER_S for size in said]
        bag.first_transfer_s, bag.transfer_s = seconds
