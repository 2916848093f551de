"""A policy for parallel tasks, made of three choices: which next, how many ranks, and where.

The head of the queue starts as soon as it can. While it waits, the earliest time at which it can start is reserved for
it, and if the choice of the next backfills, others start that do not delay it. A job that can start at no time that is
known waits aside: the next one is the head.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from math import inf

from deskgrid.scheduler.fitting import ROUNDING, Requirement
from deskgrid.scheduler.parallel.base import Aside, Keep, ParallelJob, ParallelPolicy, ParallelView, Start
from deskgrid.scheduler.parallel.capacity import capped, largest, smaller
from deskgrid.scheduler.parallel.choices import DecisionView, HeadReservation, HowMany, Size, Where, WhichNext
from deskgrid.scheduler.parallel.hosts import places
from deskgrid.scheduler.parallel.order import Shortest
from deskgrid.scheduler.parallel.patience import least_patient
from deskgrid.scheduler.parallel.reservation import earliest
from deskgrid.scheduler.parallel.sizes import EqualShare
from deskgrid.scheduler.parallel.where import Alike

# So many jobs that differ in what they need are tried while the head waits, so that a decision takes milliseconds.
TRIED = 50


class Composed:
    """``margin``: seconds kept free before a window closes."""

    def __init__(self, name: str, which: WhichNext, sizes: HowMany, where: Where, margin: float = 1.0) -> None:
        self.name = name
        self.which = which
        self.sizes = sizes
        self.where = where
        self._requirement = Requirement(margin)

    def decide(self, view: ParallelView) -> Iterator[Start | Keep | Aside]:
        """The heads of the queue, one after the other, as far as they can start; then those that fit into gaps."""
        now = view.now
        aside = set[ParallelJob]()
        queue = self._order(view, aside)
        look = DecisionView(view, now, queue, self.sizes, self._requirement, self.where.sharing)
        self.sizes.notice(look)
        while queue:
            begins = self._begin(look, queue[0])
            if isinstance(begins, HeadReservation):
                yield from self._wait(look, begins)
                return
            if begins is None:
                found = list(_as_demanding(queue[0], queue))
                aside.update(found)
                yield Aside(found)
                queue[:] = self._order(view, aside)
            else:
                yield begins
                del queue[0]

    def _order(self, view: ParallelView, aside: Collection[ParallelJob]) -> list[ParallelJob]:
        """The waiting jobs without those that wait aside, the next one first."""
        now, queue = view.now, list[ParallelJob]()
        for turn in view.turns:
            jobs = [job for job in turn if job not in aside]
            ordered = self.which.order(jobs, now)
            if self.which.overtakes and (first := least_patient(jobs, view.sites, now)) is not None:
                ordered.remove(first)
                ordered.insert(0, first)
            queue += ordered
        return queue

    def _begin(self, look: DecisionView, job: ParallelJob) -> Start | HeadReservation | None:
        """How the head starts now, or when it can start; None: in no known window."""
        wanted = capped(look, job, self.sizes.size(look, job))
        start = self.where.place(look, job, wanted)
        if start is None and (other := self.sizes.instead(look, job, wanted)) != wanted:
            wanted = capped(look, job, other)
            start = self.where.place(look, job, wanted)
        if start is not None:
            return start
        if not self._matters(look, job):
            return HeadReservation(job, (), inf, 0.0)
        for size in smaller(job.need, wanted):
            if size != wanted and (start := self.where.place(look, job, size)) is not None:
                return start
            if (reserved := earliest(look, job, size)) is not None:
                return reserved if reserved.at > look.now + ROUNDING else _at_once(look, reserved) or reserved
        return None

    def _matters(self, look: DecisionView, job: ParallelJob) -> bool:
        """Whether it matters when the head can start: to others, or because it may never be able to."""
        if look.view.singles or self.which.backfills or job.need.least > largest(look, job.need):
            return True
        return any(host.closes < inf for site in look.view.sites for host in site.hosts)

    def _wait(self, look: DecisionView, reserved: HeadReservation) -> Iterator[Start | Keep]:
        """The head waits for what is reserved for it."""
        if reserved.ranks:
            yield Keep(reserved.job, reserved.ranks, reserved.at)
        if self.which.backfills:
            yield from self._fill(look, reserved)

    def _fill(self, look: DecisionView, reserved: HeadReservation) -> Iterator[Start]:
        if not any(site.idle for site in look.view.sites):
            return
        failed = _Unplaceable()
        for job, wanted in self.sizes.fill(look, look.queue[1:], reserved):
            size = capped(look, job, wanted)
            if failed.covers(job, size):
                continue
            start = self.where.place(look, job, size, reserved)
            if start is None:
                failed.add(job, size)
                if failed.count == TRIED:
                    return
            else:
                yield start
                look.queue.remove(job)


class _Unplaceable:
    """Jobs that fit nowhere: neither do those that need as much, or more, for as long, or longer."""

    def __init__(self) -> None:
        self.count = 0
        self._seconds: defaultdict[tuple[object, ...], dict[int, float]] = defaultdict(dict)

    def covers(self, job: ParallelJob, size: Size) -> bool:
        """Whether it need not be tried."""
        seconds = job.need.seconds(job.runtime, size.ranks)
        return any(ranks <= size.ranks and least <= seconds for ranks, least in self._seconds[_kind(job, size)].items())

    def add(self, job: ParallelJob, size: Size) -> None:
        """It has been tried, and others that it does not cover."""
        self.count += 1
        self._seconds[_kind(job, size)][size.ranks] = job.need.seconds(job.runtime, size.ranks)


def _at_once(look: DecisionView, reserved: HeadReservation) -> Start | None:
    """Its start, if all that is reserved is free now. Whoever chose the PCs found none: it may want PCs that are alike,
    and only some that are not have enough slots together. The job would wait for ever, and keep others from them.
    """
    job, ranks, sharing = reserved.job, reserved.ranks, look.sharing
    seconds = job.need.seconds(job.runtime, sum([many for _, many in ranks]))
    seconds /= min([host.speed * sharing.pace(host, job.need.slots) for host, _ in ranks])
    if all(
        places(host, job.need, sharing) >= many and look.fits(seconds, host.closes - look.now) for host, many in ranks
    ):
        return Start(job, ranks, seconds)
    return None


def _as_demanding(job: ParallelJob, jobs: Iterable[ParallelJob]) -> Iterator[ParallelJob]:
    """Those of ``jobs`` that can start at no time if ``job`` cannot: of rigid jobs, those like it that take longer."""
    rigid = job.need.least == job.need.most
    return (each for each in jobs if each is job or (rigid and each.need == job.need and each.runtime >= job.runtime))


def _kind(job: ParallelJob, size: Size) -> tuple[object, ...]:
    need = job.need
    if size.power:
        return need.slots, need.amounts, need.labels, size.power, need.most, need.speedup
    return need.slots, need.amounts, need.labels


def default_policy(margin: float = 1.0) -> ParallelPolicy:
    """The policy that a grid starts with: the shortest first, equal shares, PCs that are alike.

    Also for policies that say nothing of parallel tasks. ``margin``: seconds kept free before a window closes.
    """
    return Composed("packing", Shortest(), EqualShare(), Alike(), margin)
