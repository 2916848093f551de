"""PCs that get no work of some kind for a while, because it did not work out there. Other work goes on there.

Rule 1: each failure begins a rest, twice as long as the one before. In the meantime, other workers get this work.
Rule 2: there are three kinds of work: tasks of a category for which there was no room; a bag whose tasks fail there but
not elsewhere, and which has a category of its own from then on (`deskgrid.scheduler.handlers.separating`); and a
person's work in an environment in which processes do not start there, or do not answer.
Rule 3: any other end of a task, except a crash, shows that there is room: the next rest is short. A bag or an
environment works again when a task of it is done there. That also ends the rest.
Rule 4: a worker cannot end its rest by joining anew. When its rest has been over for `LONGEST_REST_S`, the failure is
forgotten. Of each worker, the kinds that failed last are known, at most `KINDS_LIMIT`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.slots import Slot
from deskgrid.scheduler.state.timers import Backoff, Timer, Timers

# The first rest, and the longest. Seconds. Somebody may make room at any time, and trying costs little.
FIRST_REST_S = 10.0
LONGEST_REST_S = 600.0
_BACKOFF = Backoff(FIRST_REST_S, LONGEST_REST_S)
# More than people share a grid, so that what one worker says takes little memory.
KINDS_LIMIT = 100


class Person(NamedTuple):
    """All work of one person in one environment; empty: in none."""

    owner: str
    environment: str


def person_of(key: CategoryKey) -> Person:
    """Whose work the tasks of a category are."""
    return Person(key.owner, key.environment)


# Work that a worker may rest from.
Kind = CategoryKey | Person


class Why(IntEnum):
    """Why a worker rests."""

    NO_ROOM = 0  # it could not store what a task needs
    FAILS = 1  # tasks of a bag fail there
    NO_START = 2  # no process starts there in an environment
    SILENT = 3  # it does not answer for tasks in an environment


class Rest(NamedTuple):
    """``lasts``: seconds. ``over``: it has ended."""

    until: float
    lasts: float
    why: Why
    over: bool = False


class Avoided:
    """``timers``: say when each rest is over, and after that, when it is forgotten."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        # By worker.
        self._rests: dict[str, dict[Kind, Rest]] = {}
        # How many workers rest from each kind.
        self._scarce: Counter[Kind] = Counter()

    def __bool__(self) -> bool:
        """Whether work has lately not worked out on some worker."""
        return bool(self._rests)

    def rest(self, key: CategoryKey, worker: str) -> Rest | None:
        """Why ``worker`` gets no tasks of a category, and until when; None: it gets them. Of two, the longer rest."""
        rests = self._rests.get(worker)
        if rests is None:
            return None
        found = [rests[kind] for kind in (key, person_of(key)) if kind in rests and not rests[kind].over]
        return max(found, default=None)

    def until(self, key: CategoryKey, worker: str) -> float | None:
        """Until when ``worker`` gets no tasks of a category; None: it gets them."""
        rest = self.rest(key, worker)
        return None if rest is None else rest.until

    def resting(self, worker: str) -> tuple[Kind, Rest] | None:
        """The work that ``worker`` gets none of for longest, and why; None: it gets all."""
        rests = self._rests.get(worker, {})
        return max([(kind, rest) for kind, rest in rests.items() if not rest.over], key=_rest, default=None)

    def rests_of(self, worker: str) -> Mapping[Kind, Rest]:
        """All that did not work out on ``worker`` lately, with its last rest from it, which may be over."""
        return dict(self._rests[worker]) if worker in self._rests else {}

    def resting_from(self, kinds: Collection[Kind]) -> Iterator[tuple[str, Kind, Rest]]:
        """The workers that get no work of these kinds, and why."""
        if self._scarce.keys() & kinds:
            for worker, rests in self._rests.items():
                yield from ((worker, kind, rests[kind]) for kind in kinds if kind in rests and not rests[kind].over)

    def is_scarce(self, key: CategoryKey) -> bool:
        """Whether some worker gets no tasks of a category."""
        return bool(self._scarce) and (key in self._scarce or person_of(key) in self._scarce)

    def has_failed(self, kind: Kind, worker: str) -> bool:
        """Whether a rest of ``worker`` from ``kind`` goes on, or the next one would be longer than the first."""
        return kind in self._rests.get(worker, ())

    def failing(self, kind: Kind) -> dict[str, Rest]:
        """The workers that work of a kind has failed on and has not worked on since, with their last rests."""
        return {worker: rests[kind] for worker, rests in self._rests.items() if kind in rests}

    def avoid(self, kind: Kind, worker: str, why: Why, now: float) -> bool:
        """Work of a kind did not work out on ``worker``; True if a rest begins."""
        rests = self._rests.setdefault(worker, {})
        before = rests.get(kind)
        if before is not None and not before.over:
            return False  # this attempt was under way when the rest began
        lately = before is not None and now < before.until + LONGEST_REST_S
        lasts = _BACKOFF.after(before.lasts if before is not None and lately else 0.0)
        rests.pop(kind, None)
        rests[kind] = Rest(now + lasts, lasts, why)
        self._scarce[kind] += 1
        self._timers.set(Timer.AVOIDED, (worker, kind), now + lasts)
        if len(rests) > KINDS_LIMIT:
            self._forget(next(iter(rests)), worker)
        return True

    def lift(self, kind: Kind, worker: str) -> bool:
        """``worker`` is not to blame for what failed; whether that ends a rest."""
        rest = self._rests.get(worker, {}).get(kind)
        if rest is None or rest.why is Why.NO_ROOM:
            return False
        self._forget(kind, worker)
        return not rest.over

    def lift_all(self, worker: str) -> bool:
        """Nobody else is there: ``worker`` gets again what fails there; whether that ends a rest."""
        kinds = [kind for kind, rest in self._rests.get(worker, {}).items() if rest.why is Why.FAILS]
        return True in [self.lift(kind, worker) for kind in kinds]

    def forget(self, kind: Kind) -> None:
        """There is no such work any more."""
        for worker in [worker for worker, rests in self._rests.items() if kind in rests]:
            self._forget(kind, worker)

    def _forget(self, kind: Kind, worker: str) -> None:
        rest = self._rests[worker].pop(kind)
        self._timers.drop(Timer.AVOIDED, (worker, kind))
        if not rest.over:
            self._end(kind)
        if not self._rests[worker]:
            del self._rests[worker]

    def _end(self, kind: Kind) -> None:
        self._scarce[kind] -= 1
        if not self._scarce[kind]:
            del self._scarce[kind]

    def works(self, keys: Iterable[CategoryKey], worker: str, *, done: bool) -> bool:
        """Tasks of these categories ended on ``worker``, which had room for them. Whether that ends a rest.

        ``done``: and they were done. Otherwise, and for room, a rest goes on until its end.
        """
        ended = False
        for kind in {kind for key in keys for kind in (key, person_of(key))} if worker in self._rests else ():
            rest = self._rests.get(worker, {}).get(kind)
            if rest is not None and (rest.over if rest.why is Why.NO_ROOM else done):
                ended |= not rest.over
                self._forget(kind, worker)
        return ended

    def go_on(self, worker: str, kind: Kind) -> None:
        """The time of a rest has come: it is over, or it was over long ago and is forgotten."""
        rest = self._rests[worker][kind]
        if rest.over:
            self._forget(kind, worker)
        else:
            self._rests[worker][kind] = rest._replace(over=True)
            self._end(kind)
            self._timers.set(Timer.AVOIDED, (worker, kind), rest.until + LONGEST_REST_S)

    def check(self, slots: Iterable[Slot], key_of: Mapping[int, CategoryKey]) -> None:
        """Raise `InvariantBroken` if the records contradict each other, or a worker has queued tasks that it rests
        from. ``key_of``: the categories of queued tasks.
        """
        resting = [(kind, rest) for rests in self._rests.values() for kind, rest in rests.items() if not rest.over]
        agree("who rests from what", self._scarce, Counter([kind for kind, _ in resting]))
        agree("workers that rest from nothing", [worker for worker, rests in self._rests.items() if not rests], [])
        times = {
            (worker, kind): rest.until + rest.over * LONGEST_REST_S
            for worker, rests in self._rests.items()
            for kind, rest in rests.items()
        }
        agree("when rests are over", self._timers.at[Timer.AVOIDED], times)
        for slot in slots:
            queued = [x.task for x in slot.queue if self.until(key_of[x.task], slot.worker.name) is not None]
            agree(f"tasks queued for {slot.worker.name}, which rests from them", queued, [])


def _rest(each: tuple[Kind, Rest]) -> Rest:
    return each[1]
