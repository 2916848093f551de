"""Which session of a worker was given each attempt, and when: of those on slots, and of those that may come back."""

from collections.abc import Iterable, Mapping, Sequence

from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.scheduler.model import Attempt

# What is remembered of attempts that no worker holds is looked through when it has more entries than twice the number
# of such attempts, plus this. Outdated ones are dropped then.
SPARE = 1000


class Holders:
    """``by_name``: the sessions of all known workers."""

    def __init__(self, state: BrokerState, by_name: Mapping[str, WorkerSession]) -> None:
        self._state = state
        self._by_name = by_name
        # For each attempt that counts although no worker holds it now: the session that was given it, and when.
        self._given: dict[Attempt, tuple[str, float | None]] = {}

    def note(self, name: str, attempts: Sequence[Attempt]) -> None:
        """A worker may lose these of its attempts now: remember its session."""
        session, scheduler = self._by_name[name].session, self._state.scheduler
        found = [(attempt, scheduler.find(attempt)) for attempt in attempts]
        self.restore((a.task, a.number, session, None if where is None else where[1]) for a, where in found)

    def restore(self, rows: Iterable[tuple[int, int, str, float | None]]) -> None:
        """Remember attempts that no worker holds, or that none may hold soon.

        ``rows``: task, attempt number, session (empty if unknown), and when it was sent (None if unknown).
        """
        scheduler, given = self._state.scheduler, self._given
        if len(given) > 2 * scheduler.orphans + SPARE:
            self._given = {attempt: to for attempt, to in given.items() if scheduler.is_orphan(attempt)}
        self._given.update((Attempt(task, number), (session, at)) for task, number, session, at in rows)

    def holder(self, attempt: Attempt, found: tuple[str, float] | None) -> str | None:
        """The session that was given an attempt: "" if unknown, None if the attempt no longer counts.

        ``found``: the result of `Scheduler.find` for this attempt.
        """
        if found is not None:
            return self._by_name[found[0]].session
        if not self._state.scheduler.is_orphan(attempt):
            return None
        return self._given.get(attempt, ("", None))[0]

    def most_s(self, attempt: Attempt, found: tuple[str, float] | None, now: float) -> float:
        """The seconds since an attempt was sent or, if that is unknown, since its bag was submitted."""
        if found is not None:
            return now - found[1]
        _, at = self._given.get(attempt, ("", None))
        if at is not None:
            return now - at
        return max(0.0, self._state.wall.posix(now) - self._state.book.find(attempt.task)[0].row.created)

    def its_own(self, worker: WorkerSession, attempts: Iterable[Attempt]) -> list[Attempt]:
        """The attempts that count and were given to this worker, as far as is known."""
        find = self._state.scheduler.find
        return [each for each in attempts if self.holder(each, find(each)) in ("", worker.session)]
