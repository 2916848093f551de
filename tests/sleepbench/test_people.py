"""Fair share in simulated grids: what each person gets, how soon a newcomer begins, and what it costs everybody."""

from collections.abc import Sequence
from random import Random
from statistics import median

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Run, SimulatedPC, Simulator, always, cycle
from deskgrid.sleepbench.grids import random_grid
from deskgrid.sleepbench.scenarios import paper_scenario
from deskgrid.sleepbench.simulated import scenario_problem

pytestmark = pytest.mark.slow

HOUR_S = 3600.0
DAY_S = 86_400.0


def simulated(arrivals: Sequence[Arrival], pcs: Sequence[SimulatedPC]) -> Run:
    policy = make_policy("packing", queue_s=0.0, margin=0.0)
    return Simulator(policy, pcs, arrivals, trace=True).run()


def used_s(run: Run, tasks: range, start: float, end: float) -> float:
    """The slot-seconds of some tasks in a span of time."""
    its = [each for each in run.executions if each.task in tasks]
    return sum(max(0.0, min(each.end, end) - max(each.start, start)) for each in its)


def runtimes(seed: int, least: float, most: float, count: int) -> list[float]:
    chance = Random(f"people {seed}")
    return [chance.uniform(least, most) for _ in range(count)]


@pytest.mark.parametrize(
    ("ann", "ben"),
    [
        (runtimes(1, 30, 300, 500), runtimes(2, 5, 60, 2_000)),
        ([600.0] * 200, [20.0] * 2_500),
        (runtimes(3, 30, 300, 500), runtimes(4, 30, 300, 500)),
    ],
)
def test_two_equal_people_get_the_same_within_a_tenth_in_an_hour(ann: list[float], ben: list[float]) -> None:
    pcs = [SimulatedPC(f"pc{number}", always) for number in range(20)]
    run = simulated([Arrival(ann, owner="ann"), Arrival(ben, owner="ben")], pcs)
    anns = used_s(run, range(len(ann)), 0.0, HOUR_S)
    bens = used_s(run, range(len(ann), len(ann) + len(ben)), 0.0, HOUR_S)
    assert anns + bens == pytest.approx(20 * HOUR_S, rel=0.01)
    assert anns == pytest.approx(bens, rel=0.1)


def test_a_newcomer_begins_when_the_next_slot_is_free_beside_a_bag_of_tasks_of_25_hours() -> None:
    pcs = [SimulatedPC(f"pc{number}", always, 2) for number in range(10)]
    long = [25 * HOUR_S - 60.0 * number for number in range(20)] + [25 * HOUR_S] * 20
    run = simulated([Arrival(long, owner="ann"), Arrival([20.0] * 30, at=DAY_S / 2, owner="ben")], pcs)
    first = min(each.start for each in run.executions if each.task >= len(long))
    free = min(each.end for each in run.executions if each.task < len(long))
    assert first == free


def split(arrivals: Sequence[Arrival], people: int) -> list[Arrival]:
    """The same tasks, of several people."""
    chance = Random("split")
    its: list[list[float]] = [[] for _ in range(people)]
    for arrival in arrivals:
        for runtime in arrival.runtimes:
            its[chance.randrange(people)].append(runtime)
    return [Arrival(some, owner=f"person {number}") for number, some in enumerate(its)]


def lab(count: int) -> tuple[list[Arrival], list[SimulatedPC]]:
    """A lab that is free for twelve hours of each day, and work for a night and a half."""
    pcs = [SimulatedPC(f"pc{number}", cycle(12 * HOUR_S, 12 * HOUR_S)) for number in range(count)]
    return [Arrival(runtimes(count, 60, 3000, 42 * count))], pcs


@pytest.mark.parametrize("grid", ["scenario 1", "scenario 2", "lab"])
def test_everything_is_done_at_most_a_hundredth_later(grid: str) -> None:
    if grid == "lab":
        arrivals, pcs = lab(20)
    else:
        problem = scenario_problem(paper_scenario(int(grid[-1])), 0)
        arrivals, pcs = list(problem.arrivals), list(problem.pcs)
    alone = simulated(arrivals, pcs).makespan_s
    for people in (2, 3):
        assert simulated(split(arrivals, people), pcs).makespan_s <= 1.01 * alone


def test_plans_for_many_short_windows_survive_fair_shares() -> None:
    problems = [scenario_problem(paper_scenario(3), 0), *map(random_grid, (4, 10, 14))]
    later = []
    for problem in problems:
        alone = simulated(problem.arrivals, problem.pcs).makespan_s
        later.append(simulated(split(problem.arrivals, 3), problem.pcs).makespan_s / alone)
    assert median(later) <= 1.01
    assert max(later) <= 1.03
