"""Sizes that a job can have: it does not wait for more than any site can give it."""

from collections.abc import Iterator

from deskgrid.scheduler.need import NOTHING, Amounts, Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob
from deskgrid.scheduler.parallel.choices import DecisionView, Size
from deskgrid.scheduler.parallel.hosts import kept_idle, seats


def capped(look: DecisionView, job: ParallelJob, size: Size) -> Size:
    """``size``, but no more than the largest site would have for a moldable job if nothing else ran there."""
    need = job.need
    if need.least == need.most:
        return size
    sites = seats_by_site(look, need)
    if not size.power:
        return size._replace(ranks=max(need.least, min(size.ranks, largest(look, need))))
    power = max([sum([size.of(host) * count * need.slots for host, count in hosts]) for hosts in sites], default=0.0)
    return size._replace(power=min(size.power, power)) if power else size


def largest(look: DecisionView, need: Need) -> int:
    """How many ranks the largest site would have for a job if nothing else ran on its PCs that are up."""
    return max([sum([count for _, count in hosts]) for hosts in seats_by_site(look, need)], default=0)


def seats_by_site(look: DecisionView, need: Need) -> list[list[tuple[Host, int]]]:
    """By site: how many ranks each PC could have; the same for all jobs with such a need."""
    what = need.slots, need.amounts, need.labels
    found = look.seats_by_site.get(what)
    if found is None:
        found = look.seats_by_site[what] = []
        for site in look.view.sites:
            occupied: dict[Host, Amounts] = {}
            for running in site.running if need.amounts else ():
                for host, ranks in running.ranks:
                    occupied[host] = occupied.get(host, NOTHING) + running.job.need.amounts * ranks
            suited = [host for host in site.hosts if host.labels >= need.labels]
            whole = {host: host.amounts + occupied.get(host, NOTHING) for host in suited}
            found.append([(host, seats_alone(look, need, host, whole[host])) for host in suited])
    return found


def seats_alone(look: DecisionView, need: Need, host: Host, has: Amounts) -> int:
    """How many ranks a PC could have that ``has`` so much if nothing else ran there."""
    return seats(host.slots - kept_idle(host, look.sharing), has, need, look.sharing)


def smaller(need: Need, size: Size) -> Iterator[Size]:
    """``size``, and of a moldable job smaller ones down to the least, each half of the one before.

    A size may be one that PCs never have together for long enough, because of their windows.
    """
    yield size
    if need.least == need.most:
        return
    power, ranks = size.power, need.most if size.power else size.ranks
    while (ranks := ranks // 2) > need.least:
        power /= 2.0
        yield size._replace(power=power) if size.power else size._replace(ranks=ranks)
    yield Size(need.least)
