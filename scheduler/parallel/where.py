"""Where a parallel task starts: where it takes least, where fewest slots are left, or on PCs that are alike."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil
from operator import attrgetter

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob, Site, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import first, in_order, offers, places, site_of
from deskgrid.scheduler.parallel.sizes import working_set


class Fastest:
    """Fastest first: the site where the job takes the least time (FF of the TLA paper, Section 2.3).

    Of sites where it takes equally long, the first by name.
    """

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The possible start that takes the fewest seconds."""
        best: Start | None = None
        for start in offers(look, job, size, reserved):
            if best is None or start.seconds < best.seconds:
                best = start
        return best


class BestFit:
    """Best fit: the site that has the fewest slots left afterwards (BF of the TLA paper, Section 2.3).

    Of sites that have equally few, the one where it takes the least time; then the first by name.
    """

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The possible start at the site with the fewest idle slots."""
        return min(offers(look, job, size, reserved), key=left, default=None)


def left(start: Start) -> tuple[int, float]:
    """The idle slots of its site, and its seconds."""
    return site_of(start).idle, start.seconds


# PCs whose speeds differ by less than this factor are about equally fast.
ALIKE = 1.25
# A job starts with this part of its share, rather than wait for all of it.
ENOUGH = 0.5

_speed = attrgetter("speed")
_power = attrgetter("power")


class Alike:
    """PCs that are alike: the slowest rank decides how long a job takes, so faster PCs beside it would be wasted.

    A rigid job starts at the site where it ends first; of several, at the one that it fills best. A moldable one gets,
    of PCs that are about equally fast, as many as have the power that is its share, and starts with half of them if
    there are no more now: it would wait longer.
    """

    sharing = PLAIN

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The start that takes the fewest seconds; of a moldable job, the one nearest to its share."""
        if not size.power:
            return min(offers(look, job, size, reserved), key=_soonest, default=None)
        found = [
            each
            for site in look.view.sites
            if site.idle >= job.need.least * job.need.slots
            for each in self._at(look, site, job, size.power, reserved)
        ]
        return max(found, key=lambda each: each[:2])[2] if found else None

    def _at(
        self, look: DecisionView, site: Site, job: ParallelJob, power: float, reserved: HeadReservation | None
    ) -> Iterator[tuple[float, float, Start]]:
        """How much of the share it gets, 1 at most; how little power it occupies, negative; and the start."""
        need = job.need
        for hosts in _groups(site, need):
            ranks, part = _ranks(hosts, need, power)
            # With more ranks it may end before a window closes.
            while part >= ENOUGH:
                start = in_order(look, job, hosts, partial(first, ranks=ranks), reserved)
                if start is not None:
                    yield part, -ranks * min([host.speed for host, _ in start.ranks]), start
                    break
                if reserved is not None or ranks >= need.most:
                    break
                ranks = min(2 * ranks, need.most)


def _groups(site: Site, need: Need) -> Iterator[list[Host]]:
    """PCs with room that are about equally fast, the fastest first; of these, the most powerful first."""
    free = sorted([host for host in site.hosts if host.idle and places(host, need)], key=_speed, reverse=True)
    while free:
        least = free[0].speed / ALIKE
        slower = next((place for place, host in enumerate(free) if host.speed <= least), len(free))
        yield sorted(free[:slower], key=_power, reverse=True)
        del free[:slower]


def _ranks(hosts: Sequence[Host], need: Need, power: float) -> tuple[int, float]:
    """How many ranks on the first of these PCs have so much power, or most of it; and how much of it, 1 at most."""
    most = working_set(need)
    ranks, best, part = 0, 0, 0.0
    for host in hosts:
        each = host.power * need.slots
        more = places(host, need)
        enough = max(ceil(power / each - ROUNDING), need.least) if each else most
        ranks = min(ranks + more, max(enough, ranks + 1), most)
        reached = ranks * each / power
        if ranks >= need.least and (reached >= 1.0 - ROUNDING or ranks == most):
            return ranks, 1.0
        if ranks >= need.least and reached > part:
            best, part = ranks, reached
    return best, part


def _soonest(start: Start) -> tuple[float, int]:
    return start.seconds, left(start)[0]
