"""Checks of wasted work: a task is assigned again only for a reason, and no attempt is answered twice.

Like the witness's other records, these use only the messages. The reasons: the attempt ended, or was handed back; its
worker left, came back without it, made room for another worker of its name, or was silent for a lease; the worker did
not answer for far longer than predicted; or the broker is new. So each reason allows at most one execution of a task
beyond the first.
"""

import math

from deskgrid import wire
from deskgrid.scheduler.state.deadlines import FACTOR, GRACE_S

# The broker reckons when it handles a message, a moment after it is noted here.
SLACK_S = 0.5

_Attempt = tuple[int, int]


class Holdings:
    """Which session holds the newest attempt of which task, as far as the broker can know."""

    def __init__(self) -> None:
        # By task: its newest attempt's number, and the session that it was given to.
        self._newest: dict[int, tuple[int, str]] = {}
        # Tasks whose newest attempt is over, or given up for a reason.
        self._free: set[int] = set()
        self._heard: dict[str, float] = {}
        # Until when a task is not overdue, as far as it alone says; and when sessions have last answered for any.
        self._due: dict[int, float] = {}
        self._answered: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._session: dict[bytes, str] = {}
        # Attempts that are over, as their workers said: they will not be held again.
        self._over: set[_Attempt] = set()
        # Sessions whose word counts for nothing here.
        self.liars: set[str] = set()
        # How often a task was given to somebody again.
        self.again = 0

    def forget_all(self) -> None:
        """The broker is new: it remembers of the long attempts that they are somewhere, of the short ones nothing."""
        self._session.clear()
        self._heard.clear()
        self._newest.clear()
        self._free.clear()

    def received(self, peer: bytes, message: wire.Message, now: float, lease_s: float) -> None:
        """A message of a worker reached the broker."""
        if isinstance(message, wire.Join):
            self._joined(peer, message)
        session = self._session.get(peer)
        if session is None:
            return
        self.heard(peer, now, lease_s)
        if isinstance(message, wire.Leave):
            self._free.update(self._of(session))
        elif isinstance(message, wire.Finished):
            self._answered[session] = now
            self._ended(session, [(row.task, row.number) for row in message.results])
        elif isinstance(message, wire.Returned):
            self._ended(session, [(row.task, row.number) for row in message.attempts])

    def heard(self, peer: bytes, now: float, lease_s: float) -> None:
        """A sign of life reached the broker."""
        if peer in self._session:
            session = self._session[peer]
            if self._is_silent(session, now, lease_s):
                self._free.update(self._of(session))
            self._heard[session] = now

    def _is_silent(self, session: str, now: float, lease_s: float) -> bool:
        return now - self._heard.get(session, -math.inf) >= lease_s - SLACK_S

    def _joined(self, peer: bytes, join: wire.Join) -> None:
        for other in [other for other, session in self._session.items() if session == join.session]:
            del self._session[other]
        if (before := self._session.get(peer)) not in (None, join.session):
            self._free.update(self._of(str(before)))
        self._session[peer] = join.session
        self._names[join.session] = join.name
        held = {(row.task, row.number) for row in join.running} - self._over
        for task in self._of(join.session):
            # Where its window is closed it names what was stopped, for the broker to learn how long that ran.
            here = (task, self._newest[task][0]) in held and join.uptime != 0.0
            (self._free.discard if here else self._free.add)(task)
        # A namesake that is not connected makes room; its connection may be known to be gone only to the broker.
        for session, name in self._names.items():
            if name == join.name and session != join.session:
                self._free.update(self._of(session))

    def _of(self, session: str) -> list[int]:
        return [task for task, (_, holder) in self._newest.items() if holder == session]

    def _ended(self, session: str, attempts: list[_Attempt]) -> None:
        """What others say of an attempt is no reason for anything."""
        own = [(task, number) for task, number in attempts if self._newest.get(task) == (number, session)]
        self._over.update(own)
        self._free.update(task for task, _ in own)

    def holds(self, peer: bytes, task: int, number: int) -> bool:
        """Whether that is the newest attempt of its task, and was given to who speaks over this connection."""
        return self._newest.get(task) == (number, self._session.get(peer))

    def lost_touch(self, peer: bytes) -> None:
        """The broker does not know this connection, or not any more: what comes from there does not count."""
        self._session.pop(peer, None)

    def given(self, peer: bytes, work: wire.Work, now: float, lease_s: float) -> str:
        """An attempt goes to a worker; what is wrong with that, or empty."""
        before = self._newest.get(work.task)
        self._newest[work.task] = (work.number, self._session.get(peer, ""))
        was_free = work.task in self._free
        overdue = now >= self._due.get(work.task, math.inf) - SLACK_S
        self._due[work.task] = now + FACTOR * work.runtime + GRACE_S
        self._free.discard(work.task)
        if before is None:
            return ""
        self.again += 1
        silent_since = self._answered.get(before[1], -math.inf)
        if overdue and now >= silent_since + GRACE_S - SLACK_S:
            return ""
        if work.options.copies:
            return ""  # it may be a copy
        if was_free or before[1] in self.liars or self._is_silent(before[1], now, lease_s):
            return ""
        return f"task {work.task} is given to somebody again, and {before[1]} has it"
