"""A scenario of gangs on a real grid: broker, PCs and ranks are processes on this machine, and each rank sleeps.

Rule 1: only the time measurement is the benchmark's own. Each gang is a bag that the client submits when it is to
arrive; the broker places it by the policy, and its workers know nothing but their site, speed and windows.
Each PC has its site as a label, too, by which a gang can be begun there.
Rule 2: time 0 is the same moment for all. PCs that come and go open their first windows then, and what runs at time 0
has been begun right before it, on PCs of its site. A gang that is submitted before time 0 is submitted at it; its
turnaround still counts from the time that the scenario says.
Rule 3: all PCs that stay have run a rank before time 0: starting the process for it is no cost of the first gang only.
Rule 4: sleeping takes no CPU, so two cores are enough for sixteen PCs. What others use of a PC cannot be pretended.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any, cast

from deskgrid import Bag, Grid
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.sleepbench.gangs.scenario import GangRunRow, GangScenario, RunningGang, WaitingGang
from deskgrid.sleepbench.live import LiveGrid, LivePC, Progress, live_grid, wait_till
from deskgrid.sleepbench.naps import nap_together
from deskgrid.sleepbench.scenarios import ScenarioError

# Each PC is a process of this machine.
PCS_MOST = 200


@dataclass(frozen=True, slots=True)
class GangCosts:
    """What a gang cost beside its work, in a live run. Seconds.

    ``start_s``, and ``rank_s`` for each of its ranks: from when it could start until all its ranks had begun. It could
    when it arrived, or when another gang ended at its site. ``oversleep_s``, the median: from then until the last one
    had ended, beyond what it was told to sleep.
    """

    start_s: float
    rank_s: float
    oversleep_s: float

    def start_of(self, ranks: int) -> float:
        """How long a gang of so many ranks took to begin."""
        return self.start_s + ranks * self.rank_s


@dataclass(frozen=True, slots=True)
class LiveGangs:
    """The result of a live run. ``rows``: on the scenario's clock and in its order, unscaled."""

    rows: Sequence[GangRunRow]
    costs: GangCosts


@dataclass(frozen=True, slots=True)
class Ran:
    """A gang that has run: seconds after time 0, and how long it was told to sleep."""

    gang: WaitingGang
    pcs: Sequence[str]
    began: float
    ended: float
    asked: float


def checked(scenario: GangScenario) -> GangScenario:
    """``scenario``, if it can be run live; raises `ScenarioError`."""
    if any(site.load for site in scenario.sites):
        raise ScenarioError(f"{scenario.name}: a load of others can be simulated, but not run live")
    if (pcs := sum([site.slots for site in scenario.sites])) > PCS_MOST:
        raise ScenarioError(f"{scenario.name}: {pcs:,} PCs can be simulated, but at most {PCS_MOST} are run live")
    return scenario


def run_gangs(scenario: GangScenario, scale: float, policy: str, seed: int, progress: Progress) -> LiveGangs:
    """One run of ``scenario`` with every time multiplied by ``scale``.

    ``seed``: for a policy that decides at random. ``progress`` is called now and then with the number of gangs that are
    done. Raises `ProcessError`, `ScenarioError`, or the client's errors.
    """
    scaled = _named(checked(scenario).scaled(scale))
    with live_grid(policy, seed) as live:
        ran = _run(live, scaled, scale, progress)
        live.stop()
    sites = {pc.name: site.name for site, named in zip(scenario.sites, scaled.sites, strict=True) for pc in named.pcs()}
    rows = [_row(policy, one, sites, scale) for one in ran]
    return LiveGangs(rows, measured(ran, sites))


def _named(scenario: GangScenario) -> GangScenario:
    """The scenario with names of sites that workers may have, in the same order: policies go by it."""
    names = sorted(site.name for site in scenario.sites)
    new = {name: f"site{place:05}" for place, name in enumerate(names, start=1)}
    sites = tuple(replace(site, name=new[site.name]) for site in scenario.sites)
    running = tuple(replace(gang, site=new[gang.site]) for gang in scenario.running)
    return replace(scenario, sites=sites, running=running)


def _pcs(scenario: GangScenario) -> list[LivePC]:
    return [
        LivePC(pc.name, uptime, site.restart, site.speed, ("--site", site.name, "--label", site.name))
        for site in scenario.sites
        for pc, uptime in zip(site.pcs(), cycle(site.uptimes), strict=False)
    ]


# --- the gangs -------------------------------------------------------------------------------------------------------


def _run(live: LiveGrid, scenario: GangScenario, scale: float, progress: Progress) -> list[Ran]:
    pcs = _pcs(scenario)
    opening = live.start_pcs(pcs, scale)
    _warm_up(live.grid, scenario)
    live.wait_till_open(pcs, opening)
    zero = time.monotonic()
    running = [_begin(live.grid, scenario, gang) for gang in scenario.running]
    for bag in running:
        live.processes.wait_for(partial(_has_begun, bag), "what runs at time 0 to begin")
    if running:
        zero = time.monotonic()
    bags: dict[str, Bag[Any, Any]] = {}
    for gang in sorted(scenario.gangs, key=lambda gang: gang.at):
        wait_till(zero + gang.at)
        bags[gang.name] = _submit(live.grid, gang)
        live.processes.check()
        progress(sum(bag.progress().done for bag in bags.values()))
    live.wait(bags.values(), progress)
    speeds = {pc.name: pc.speed for pc in pcs}
    return [_ran(gang, bags[gang.name].results()[0], zero, speeds) for gang in scenario.gangs]


def _has_begun(bag: Bag[Any, Any]) -> bool:
    return bag.progress().running > 0


def _warm_up(grid: Grid, scenario: GangScenario) -> None:
    """One gang on all PCs of each site that stay: then each has the process in which its ranks run."""
    staying = [(site.name, site.staying()) for site in scenario.sites]
    bags = [
        grid.bag(nap_together, [[0.0]], runtime=0.0, gang=slots, labels={name}, name="warms up")
        for name, slots in staying
        if slots
    ]
    for bag in bags:
        bag.results()


def _begin(grid: Grid, scenario: GangScenario, gang: RunningGang) -> Bag[Any, Any]:
    """Begin what runs at time 0: alone on the grid, it starts at once."""
    speed = next(site.speed for site in scenario.sites if site.name == gang.site)
    return grid.bag(
        nap_together,
        [[gang.really * speed]],
        runtime=gang.ends * speed,
        gang=gang.slots,
        labels={gang.site},
        name="runs at time 0",
    )


def _submit(grid: Grid, gang: WaitingGang) -> Bag[Any, Any]:
    need, speedup = gang.need, cast("Amdahl | Downey | Measured | None", gang.need.speedup)
    return grid.bag(
        nap_together,
        [asked(gang)],
        runtime=gang.runtime,
        gang=need.most if need.least == need.most else (need.least, need.most),
        speedup=dict(speedup.points) if isinstance(speedup, Measured) else speedup,
        name=f"gang {gang.name}",
    )


def asked(gang: WaitingGang) -> list[float]:
    """How long a gang sleeps at speed 1 on 1, 2, ... ranks."""
    return [gang.need.seconds(gang.really, ranks) for ranks in range(1, gang.need.most + 1)]


# --- what came of it -------------------------------------------------------------------------------------------------


def _ran(gang: WaitingGang, ranks: Sequence[tuple[str, float, float]], zero: float, speeds: Mapping[str, float]) -> Ran:
    """What the ranks of a gang have returned."""
    pcs = [pc for pc, _, _ in ranks]
    began, ended = max(began for _, began, _ in ranks) - zero, max(ended for _, _, ended in ranks) - zero
    slept = asked(gang)[len(ranks) - 1] / min(speeds[pc] for pc in pcs)
    return Ran(gang, pcs, began, ended, slept)


def measured(ran: Sequence[Ran], sites: Mapping[str, str]) -> GangCosts:
    """What gangs cost beside their work, from when they began and ended. ``sites``: of the PCs.

    Some began for another reason than the last event at their site, for example because the gang before them began
    elsewhere. So the line through latency by ranks is the one by medians (Theil and Sen), which outliers do not move.
    """
    points: list[tuple[int, float]] = []
    for one in ran:
        ends = [other.ended for other in ran if sites[other.pcs[0]] == sites[one.pcs[0]]]
        could = [moment for moment in (max(0.0, one.gang.at), *ends) if moment <= one.began]
        points.append((len(one.pcs), one.began - max(could, default=0.0)))
    slopes = [(late - soon) / (many - few) for few, soon in points for many, late in points if few < many]
    rank_s = max(0.0, median(slopes)) if slopes else 0.0
    start_s = max(0.0, median([latency - ranks * rank_s for ranks, latency in points]))
    return GangCosts(start_s, rank_s, max(0.0, median([one.ended - one.began - one.asked for one in ran])))


def _row(policy: str, ran: Ran, sites: Mapping[str, str], scale: float) -> GangRunRow:
    start, end = ran.began / scale, ran.ended / scale
    at = ran.gang.at / scale
    return GangRunRow(policy, ran.gang.name, sites[ran.pcs[0]], len(ran.pcs), start, end, end - at, None)
