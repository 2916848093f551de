"""Which PCs of a site a job gets: those that are free now, and whose windows last until it ends.

A job takes as long as its slowest rank. So it gets the fastest PCs that allow it to start, and of those that are not
slower than the slowest of them, the slowest, and those whose windows close first: others may need the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.need import Amounts, Need
from deskgrid.scheduler.parallel.base import Host, ParallelJob, Site, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Sharing, Size
from deskgrid.scheduler.parallel.patience import tolerance

# PCs of a site can all have different speeds. At most about so many are tried as that of the slowest rank.
LEVELS = 8

_SPEED = itemgetter(0)

# Takes PCs, each with the number of ranks that it can have, and returns those that a job gets; none if it gets none.
Choose = Callable[[list[tuple[Host, int]]], list[tuple[Host, int]]]


def offers(
    look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
) -> Iterator[Start]:
    """Where a job can start now, one possibility for each site."""
    slots = size.ranks * job.need.slots
    for site in look.view.sites:
        if site.idle >= slots and (start := offer(look, site, job, size, reserved)) is not None:
            yield start


def offer(
    look: DecisionView, site: Site, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
) -> Start | None:
    """How a job can start now at a site."""
    hosts = site.hosts
    if len(hosts) == 1 and not size.power and reserved is None:
        return _on_one(look, hosts[0], job, size.ranks)
    if size.power:
        return _by_power(look, site, job, size, reserved)
    return _by_ranks(look, site, job, size.ranks, reserved)


def places(host: Host, need: Need, sharing: Sharing = PLAIN) -> int:
    """How many ranks it can have now."""
    if not host.labels >= need.labels:
        return 0
    idle = host.idle if sharing is PLAIN else host.idle - kept_idle(host, sharing)
    return seats(idle, host.amounts, need, sharing)


def kept_idle(host: Host, sharing: Sharing) -> int:
    """How many of its slots stay idle, so that its processors are not shared by too many."""
    return max(0, host.slots - int(min(sharing.mpl * host.processors, host.slots)))


def expected_end(at: float, now: float, tolerance: float = 0.0) -> float:
    """When what should be over ``at`` will be, as far as anybody knows ``now``.

    What is late will take as long again as it is late: nothing else is known of it, and if everybody waited for its
    end at every moment, what waits for it would keep others from the PCs without limit. If it is late by no more than
    ``tolerance``, it may end at any moment (`deskgrid.scheduler.parallel.patience`).
    """
    late = now - at
    return at if late <= 0.0 else now if late <= tolerance else now + late


def frees(host: Host, job: ParallelJob, now: float) -> Sequence[tuple[float, int]]:
    """When slots that are occupied will be free, as believed ``now`` while ``job`` waits; ascending, (time, slots)."""
    if not host.frees or host.frees[0][0] >= now:
        return host.frees
    late = tolerance(job, now)
    return sorted([(expected_end(at, now, late), slots) for at, slots in host.frees])


def seats(idle: int, has: Amounts, need: Need, sharing: Sharing) -> int:
    """How many ranks fit on so many slots of one PC that ``has`` so much."""
    count = idle if need.slots == 1 else idle // need.slots
    if need.amounts:
        count = need.amounts.times(has, count)
    if sharing.apart:
        count = min(count, 1)
    return max(count, 0)


def _on_one(look: DecisionView, host: Host, job: ParallelJob, ranks: int) -> Start | None:
    seconds = job.need.seconds(job.runtime, ranks) / host.speed
    if places(host, job.need, look.sharing) >= ranks and look.fits(seconds, host.closes - look.now):
        return Start(job, ((host, ranks),), seconds)
    return None


def _by_ranks(
    look: DecisionView, site: Site, job: ParallelJob, ranks: int, reserved: HeadReservation | None
) -> Start | None:
    need = job.need
    base = need.seconds(job.runtime, ranks)
    free = _free(look, site, need)
    if sum([count for _, _, count in free]) < ranks:
        return None
    for last in _slowest(free, ranks):
        seconds = base / free[last][0]
        usable = _usable(look, free[: last + 1], need, seconds, reserved)
        if sum([count for *_, count in usable]) >= ranks:
            return Start(job, _tightest(usable, ranks), seconds)
    return None


def _slowest(free: list[tuple[float, Host, int]], ranks: int) -> Iterator[int]:
    """Which of these PCs may be the slowest that it gets: of all that are equally fast the last, and not too many."""
    held, skipped = 0, len(free)  # the first is not skipped
    least = len(free) // LEVELS
    for last, (speed, _, count) in enumerate(free):
        held += count
        skipped += 1
        end = last + 1 == len(free)
        if held >= ranks and (end or (skipped > least and free[last + 1][0] < speed)):
            yield last
            skipped = 0


def _free(look: DecisionView, site: Site, need: Need) -> list[tuple[float, Host, int]]:
    """The PCs with room, the fastest first; the same for all jobs with such a need, until one of them starts."""
    what = site, need.slots, need.amounts, need.labels
    idle, free = look.free.get(what, (-1, []))
    if idle != site.idle:
        sharing = look.sharing
        free = [
            (host.speed, host, count) for host in site.hosts if host.idle and (count := places(host, need, sharing))
        ]
        free.sort(key=_SPEED, reverse=True)
        look.free[what] = site.idle, free
    return free


def _usable(
    look: DecisionView,
    free: list[tuple[float, Host, int]],
    need: Need,
    seconds: float,
    reserved: HeadReservation | None,
) -> list[tuple[float, Host, int]]:
    """Those on which a job of so many seconds ends in time for their windows, and for what is reserved."""
    end = look.now + seconds
    latest = look.now + look.needs(seconds)
    usable = [each for each in free if each[1].closes > latest]
    if reserved is None or end <= reserved.at + ROUNDING:
        return usable
    by_host, now = reserved.by_host, look.now
    return [
        (speed, host, least)
        for speed, host, count in usable
        if (least := count if host not in by_host else min(count, _beside(host, need, reserved, now))) > 0
    ]


def _beside(host: Host, need: Need, reserved: HeadReservation, now: float) -> int:
    """How many ranks it can have beyond the time at which ranks of another job are to start on it."""
    theirs = reserved.by_host[host] * reserved.job.need.slots
    by_then = reserved.at + ROUNDING
    free = host.idle + sum([slots for at, slots in frees(host, reserved.job, now) if at <= by_then]) - theirs
    return free // need.slots


def _tightest(usable: list[tuple[float, Host, int]], ranks: int) -> tuple[tuple[Host, int], ...]:
    """So many ranks, first on slow PCs, on those that close first, and on those with the fewest free slots."""
    return tuple(first([(host, count) for _, host, count in sorted(usable, key=_spare)], ranks))


def first(hosts: list[tuple[Host, int]], ranks: int) -> list[tuple[Host, int]]:
    """So many ranks on the first of these PCs; none if they have no room for them."""
    chosen = []
    for host, count in hosts:
        taken = min(count, ranks)
        chosen.append((host, taken))
        ranks -= taken
        if not ranks:
            return chosen
    return []


def _spare(each: tuple[float, Host, int]) -> tuple[float, float, int]:
    speed, host, _ = each
    return speed, host.closes, host.idle


def _by_power(
    look: DecisionView, site: Site, job: ParallelJob, size: Size, reserved: HeadReservation | None
) -> Start | None:
    """The PCs with the greatest effective power, until they have ``size.power`` together."""
    hosts = sorted([host for host in site.hosts if host.idle], key=size.of, reverse=True)
    return in_order(look, job, hosts, lambda free: strongest(free, job.need, size)[1], reserved)


def in_order(
    look: DecisionView, job: ParallelJob, hosts: Sequence[Host], choose: Choose, reserved: HeadReservation | None
) -> Start | None:
    """How a job can start now on those of ``hosts`` that ``choose`` takes, without those that close too early."""
    need = job.need
    free = [(host.speed, host, count) for host in hosts if (count := places(host, need, look.sharing))]
    while chosen := choose([(host, count) for _, host, count in free]):
        seconds = need.seconds(job.runtime, sum([count for _, count in chosen]))
        seconds /= min([host.speed * look.sharing.pace(host, need.slots) for host, _ in chosen])
        usable = _usable(look, free, need, seconds, reserved)
        if usable == free:
            return Start(job, tuple(chosen), seconds)
        free = usable
    return None


def strongest(hosts: list[tuple[Host, int]], need: Need, size: Size) -> tuple[int, list[tuple[Host, int]]]:
    """As few of ``hosts``, in their order, as have ``size.power`` together; nothing if even all have less."""
    chosen: list[tuple[Host, int]] = []
    ranks, lacks = 0, size.power
    for host, count in hosts:
        taken = 0
        while taken < count and ranks < need.most and (lacks > ROUNDING or ranks < need.least):
            taken += 1
            ranks += 1
            lacks -= size.of(host)
        if taken:
            chosen.append((host, taken))
    enough = ranks >= need.least and (lacks <= ROUNDING or ranks == need.most)
    return (ranks, chosen) if enough else (0, [])


def site_of(start: Start) -> Site:
    """Where it starts."""
    return start.ranks[0][0].site
