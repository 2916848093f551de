"""Gangs that arrive on sites of PCs, as values; and the scenario that is run on real workers. Pure. Seconds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle as in_turn
from itertools import islice
from random import Random

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC, Timetable, cycle


@dataclass(frozen=True, slots=True)
class SiteOfPCs:
    """``slots`` PCs of one slot each. ``load``: what others use of them, 0 to 1. ``uptimes``, in turn: how long a PC
    stays; ``restart``: how long it is away after that.
    """

    name: str
    slots: int
    speed: float = 1.0
    load: float = 0.0
    uptimes: tuple[float, ...] = (math.inf,)
    restart: float = 0.0

    def pcs(self, opens: float = 0.0) -> Iterator[SimulatedPC]:
        """Its PCs, which open their first windows at ``opens``."""
        for number, up in enumerate(islice(in_turn(self.uptimes), self.slots), start=1):
            timetable = cycle(up, self.restart)
            later = timetable if opens == 0.0 else LaterTimetable(timetable, opens)
            yield SimulatedPC(f"{self.name}-{number}", later, speed=self.speed, site=self.name, load=self.load)

    def staying(self) -> int:
        """How many of its PCs are always there."""
        return sum(up == math.inf for up in islice(in_turn(self.uptimes), self.slots))


@dataclass(frozen=True, slots=True)
class LaterTimetable:
    """A timetable, ``by`` seconds later."""

    timetable: Timetable
    by: float

    def __call__(self) -> Iterator[RealWindow]:
        for span in self.timetable():
            yield RealWindow(span.opens + self.by, span.closes + self.by, span.announced + self.by)


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A gang that runs at time 0 on so many slots of a site, till ``ends`` as everybody believes, and ``really``."""

    site: str
    slots: int
    ends: float
    really: float


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that is submitted at ``at``. ``runtime``: predicted, and ``really``: as `Need.seconds` takes them."""

    name: str
    at: float
    need: Need
    runtime: float
    really: float


@dataclass(frozen=True, slots=True)
class GangScenario:
    """Some sites, what runs on them at time 0, and the gangs in the order in which they are submitted."""

    name: str
    sites: tuple[SiteOfPCs, ...]
    running: tuple[RunningGang, ...]
    gangs: tuple[WaitingGang, ...]

    def scaled(self, scale: float) -> "GangScenario":
        """A copy with every time multiplied by ``scale``."""
        return GangScenario(
            self.name,
            tuple(
                replace(site, uptimes=tuple(up * scale for up in site.uptimes), restart=site.restart * scale)
                for site in self.sites
            ),
            tuple(replace(gang, ends=gang.ends * scale, really=gang.really * scale) for gang in self.running),
            tuple(
                replace(gang, at=gang.at * scale, runtime=gang.runtime * scale, really=gang.really * scale)
                for gang in self.gangs
            ),
        )


@dataclass(frozen=True, slots=True)
class GangRunRow:
    """One gang under one policy. The JSON has exactly these fields.

    ``slots``: how many it had. ``start_s``, ``end_s``: of the attempt that did it. ``considered``: the policy's score
    of each site that was possible when it was placed; None if it has none.
    """

    policy: str
    gang: str
    site: str
    slots: int
    start_s: float
    end_s: float
    turnaround_s: float
    considered: Mapping[str, float] | None


# The scenario that is run live: small enough for a machine with two cores, because the gangs only sleep. Arrivals are
# so dense that gangs wait for each other, which is what policies differ in. The seed is one for which the mean
# turnaround changes by 2 or 3 % if attempts are late by some 2 % each; with others, another gang then comes first, and
# it changes by up to 20 %.
SITES = (SiteOfPCs("A", 8), SiteOfPCs("B", 8))
GANGS = 40
RANKS_MOST = 6
# Seconds, before they are scaled.
MEAN_GAP_S = 18.0
RUNTIMES_S = (20.0, 180.0)
SEED = 83


def default_scenario() -> GangScenario:
    """Two sites of eight slots, and forty gangs of one to six ranks, drawn once for all."""
    chance, at, gangs = Random(SEED), 0.0, list[WaitingGang]()
    for number in range(1, GANGS + 1):
        ranks, runtime = chance.randint(1, RANKS_MOST), round(chance.uniform(*RUNTIMES_S), 1)
        gangs.append(WaitingGang(str(number), at, Need(ranks, ranks, gang=True), runtime, runtime))
        at = round(at + chance.expovariate(1.0 / MEAN_GAP_S), 1)
    return GangScenario("two sites, forty gangs", SITES, (), tuple(gangs))
