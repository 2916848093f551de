"""Rests: a worker that does not get ranks ready, or does not keep those that began, gets no gangs for a while.

Rule 1: each failure begins a rest, twice as long as the one before. Until a gang is done there, the worker gets one
gang at a time; and that takes one failure off. So a PC that was slow once is back soon, and one that fails always holds
up one gang, at ever longer intervals.
Rule 2: single tasks say nothing about gangs: a worker that ends them well may still fail with gangs. Nor does a rest
keep single tasks away.
Rule 3: if ranks of a bag are not ready on several workers, and nothing of it is done in between, the bag may be to
blame, with its files say. Then rests do not become longer.
Rule 4: a worker cannot end its rest by joining anew.
"""

from collections.abc import Container, Iterable, Mapping

from deskgrid.scheduler.model import agree
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.scheduler.state.failures import BAG_WORKERS, BrokenBags
from deskgrid.scheduler.state.timers import Backoff, Timer, Timers

# The first rest after a failure that the worker told, and after one by silence, which held up a gang for half a minute:
# in the second case, the gang has time for two more starts elsewhere. Seconds.
FIRST_REST_S = 10.0
SILENT_REST_S = 60.0
LONGEST_REST_S = 600.0


class Rests:
    """``until``: when the rest of each worker ends that rests, by name: their timers."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.until: Mapping[str, float] = timers.at[Timer.REST]
        # Failures of each worker that have not been made good.
        self._failures: dict[str, int] = {}
        self._bags = BrokenBags()

    def __bool__(self) -> bool:
        """Whether there is a worker that failed with gangs."""
        return bool(self._failures)

    def not_ready(self, worker: str, bag: ScheduledBag, now: float, *, silent: bool) -> None:
        """Ranks of ``bag`` were not ready on ``worker``. ``silent``: it did not even say so."""
        self._rest(worker, now, silent=silent, counts=self._bags.failed(bag, worker) < BAG_WORKERS)

    def not_kept(self, worker: str, now: float) -> None:
        """``worker`` gave up ranks that had begun."""
        self._rest(worker, now, silent=False, counts=True)

    def _rest(self, worker: str, now: float, *, silent: bool, counts: bool) -> None:
        if worker in self.until:
            return  # this attempt was under way when its rest began
        before = self._failures.get(worker, 0)
        self._failures[worker] = failures = max(1, before + counts)
        backoff = Backoff(SILENT_REST_S if silent else FIRST_REST_S, LONGEST_REST_S)
        self._timers.set(Timer.REST, worker, now + backoff.nth(failures))

    def shuts_until(self, worker: str, gangs: Iterable[float]) -> float | None:
        """Until when ``worker`` gets no gang, or no other one; None: it gets some. ``gangs``: when those there end."""
        until = self.until.get(worker)
        return max(gangs, default=None) if until is None and worker in self._failures else until

    def done(self, worker: str) -> None:
        """A gang with ranks on ``worker`` is done."""
        if self._failures and (failures := self._failures.pop(worker, 0)) > 1:
            self._failures[worker] = failures - 1

    def forget_worker(self, name: str) -> None:
        """A worker is away, and its rest, if it had one, is over; or it will not be back."""
        if name not in self.until:
            self._failures.pop(name, None)

    def forget_bag(self, bag: int) -> None:
        self._bags.forget(bag)

    def check(self, bags: Container[int]) -> None:
        """Raise `InvariantBroken` if the records contradict each other."""
        agree("failures", [name for name, count in self._failures.items() if count < 1], [])
        self._bags.check(bags)
