"""TLA: temporal look-ahead (Shih, Huang, Lee, Chung, Chung 2013, Section 3).

Each site that has room is scored by a simulation: if the jobs that wait now were the last, how long would they take on
average from submission to end, if this one started there? The site with the lowest score is chosen.
"""

import random
from itertools import islice

from deskgrid.papers.tla.policies.sites import Arrange, SimulatedJob, Sites, ahead
from deskgrid.scheduler.fitting import ROUNDING
from deskgrid.scheduler.parallel.base import ParallelJob, Start
from deskgrid.scheduler.parallel.choices import PLAIN, DecisionView, HeadReservation, Size
from deskgrid.scheduler.parallel.hosts import offers, site_of

INNER = ("ff", "bf", "wf", "random")
# No depth is larger.
MOST = 1_000_000_000


class TemporalLookAhead:
    """``simulation_depth``: how many of the waiting jobs are simulated; None: all (Section 5.2).

    ``allocation_depth``: how many decisions are taken from one simulation (Section 5.4). ``inner``: where the others
    start in the simulation: ``ff``, ``bf``, ``wf`` (worst fit) or ``random``, drawn by ``seed`` (Section 5.3).
    ``explain``: score the only possible site, too, for people who watch.
    """

    sharing = PLAIN

    def __init__(
        self,
        simulation_depth: int | None = 640,
        allocation_depth: int = 1,
        inner: str = "ff",
        seed: int = 0,
        explain: bool = True,
    ) -> None:
        if simulation_depth is not None and not _is_depth(simulation_depth):
            raise ValueError(f"simulation_depth is a whole number from 1 up, or none, not {simulation_depth!r}")
        if not _is_depth(allocation_depth):
            raise ValueError(f"allocation_depth is a whole number from 1 up, not {allocation_depth!r}")
        if inner not in INNER:
            raise ValueError(f"inner is one of {', '.join(INNER)}, not {inner!r}")
        self.simulation_depth = simulation_depth
        self.allocation_depth = allocation_depth
        self.inner = inner
        self.explain = explain
        self._arrange = _arranger(inner, seed)
        self._decided: dict[int, str] = {}  # the sites of the next jobs, by task, from the last simulation

    def place(
        self, look: DecisionView, job: ParallelJob, size: Size, reserved: HeadReservation | None = None
    ) -> Start | None:
        """The possible start with the lowest score; of those with the same, the one that takes the least time."""
        starts = list(offers(look, job, size, reserved))
        if not starts or (len(starts) == 1 and not self.explain):
            return starts[0] if starts else None
        decided = self._decided.pop(job.task, None)
        for start in starts:
            if site_of(start).name == decided:
                return start
        sites = Sites(look)
        others = [each for each in islice(look.queue, self._depth) if each is not job]
        rows = ahead(look, others)
        slots = size.ranks * job.need.slots
        scored = []
        for start in starts:
            place = sites.place[site_of(start).name]
            row = SimulatedJob(slots, start.seconds * sites.speeds[place], job.arrived)
            scored.append((*sites.turnaround(place, row, rows, self._arrange), start))
        least = min([score for score, _, _ in scored]) + ROUNDING
        _, places, chosen = min([each for each in scored if each[0] <= least], key=lambda each: each[2].seconds)
        if self.allocation_depth > 1:
            names = [site.name for site in look.view.sites]
            following = zip(others[: self.allocation_depth - 1], places, strict=False)
            self._decided = {each.task: names[place] for each, place in following if place >= 0}
        return chosen._replace(considered={site_of(start).name: score for score, _, start in scored})

    @property
    def _depth(self) -> int | None:
        return None if self.simulation_depth is None else self.simulation_depth + 1


def _is_depth(value: object) -> bool:
    """Whether so many jobs can be looked at: whoever sets a policy may give any number."""
    return isinstance(value, int) and 1 <= value <= MOST


def _arranger(inner: str, seed: int) -> Arrange | None:
    """How sites are tried in the simulation; None: the fastest first."""
    if inner == "ff":
        return None
    if inner == "random":
        drawn = random.Random(seed)
        return lambda free: drawn.sample(range(len(free)), len(free))
    return lambda free: sorted(range(len(free)), key=free.__getitem__, reverse=inner == "wf")
