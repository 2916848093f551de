"""A scenario of gangs in virtual time: every policy's rows.

A gang may have been submitted before time 0. So the simulation begins with the first submission, and the PCs open their
first windows at time 0; what runs there then is found on them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.simulation.simulator import IDEAL, Arrival, Conditions, SimulatedPC, Simulator
from deskgrid.sleepbench.gangs.scenario import GangRunRow, GangScenario, RunningGang, WaitingGang

# Times are rounded to this many digits: subtracting the begin of the simulation again must not show.
DIGITS = 9


@dataclass(frozen=True, slots=True)
class GangProblem:
    """What is simulated. ``zero``: the scenario's time 0. ``names``: of the gang of each task, or None if it ran."""

    pcs: tuple[SimulatedPC, ...]
    arrivals: tuple[Arrival, ...]
    names: tuple[str | None, ...]
    zero: float


def gang_problem(scenario: GangScenario) -> GangProblem:
    """The problem of ``scenario``."""
    zero = max(0.0, -min([gang.at for gang in scenario.gangs]))
    sites = {site.name: list(site.pcs(zero)) for site in scenario.sites}
    arrivals: list[tuple[Arrival, str | None]] = []
    idle = {name: iter(pcs) for name, pcs in sites.items()}
    for running in scenario.running:
        pcs = [next(idle[running.site]) for _ in range(running.slots)]
        arrivals.append((_found(running, pcs, zero), None))
    arrivals += [(_submitted(gang, zero), gang.name) for gang in scenario.gangs]
    arrivals.sort(key=lambda arrival: arrival[0].at)
    pcs = [pc for site in sites.values() for pc in site]
    return GangProblem(tuple(pcs), tuple([a for a, _ in arrivals]), tuple([name for _, name in arrivals]), zero)


def _found(running: RunningGang, pcs: list[SimulatedPC], zero: float) -> Arrival:
    """A gang that runs at time 0. Its seconds are of speed 1, as those of all gangs."""
    power = pcs[0].speed * (1.0 - pcs[0].load)
    need = Need(running.slots, running.slots, gang=True)
    ranks = [(pc.name, 1) for pc in pcs]
    return Arrival([running.ends * pcs[0].speed], [running.really * power], zero, need=need, running=ranks)


def _submitted(gang: WaitingGang, zero: float) -> Arrival:
    return Arrival([gang.runtime], [gang.really], zero + gang.at, need=gang.need)


def simulate_gangs(
    scenario: GangScenario, name: str, policy: Policy, conditions: Conditions = IDEAL
) -> Iterator[GangRunRow]:
    """A row for each gang, in the scenario's order; raises `Stalled`."""
    problem = gang_problem(scenario)
    run = Simulator(policy, problem.pcs, problem.arrivals, conditions).run()
    rows: dict[str, GangRunRow] = {}
    at = {gang.name: gang.at for gang in scenario.gangs}
    for done in run.gangs:
        gang = problem.names[done.task]
        if done.done and gang is not None:
            start, end = round(done.start - problem.zero, DIGITS), round(done.end - problem.zero, DIGITS)
            slots = sum([ranks for _, ranks in done.ranks])
            considered = None if done.considered is None else dict(done.considered)
            turnaround = round(end - at[gang], DIGITS)
            rows[gang] = GangRunRow(name, gang, done.site, slots, start, end, turnaround, considered)
    return iter([rows[gang.name] for gang in scenario.gangs])
