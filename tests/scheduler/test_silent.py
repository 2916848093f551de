"""Black holes: PCs that take work and never answer, in whole simulated runs under every policy."""

import math

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, RealWindow, Run, SimulatedPC, Simulator, cycle

POLICIES = ("packing", "pgs", "longest", "fcfs")


def run(policy: str, *arrivals: Arrival, holes: int = 1, slots: int = 64) -> Run:
    """Two honest PCs, of two slots each, beside PCs that answer nothing and were there first."""
    silent = [SimulatedPC(f"hole{number}", slots=slots, silent=True) for number in range(holes)]
    pcs = [*silent, SimulatedPC("a", slots=2), SimulatedPC("b", slots=2)]
    return Simulator(make_policy(policy), pcs, arrivals).run()


@pytest.mark.parametrize("policy", POLICIES)
def test_fifty_short_tasks_with_a_timeout_are_done_within_fifteen_seconds(policy: str) -> None:
    ended = run(policy, Arrival([0.05] * 50, timeout=1.0))
    assert ended.counters.done == 50
    assert (ended.counters.timeouts, ended.counters.errors) == (0, 0)
    assert ended.makespan_s < 15.0


@pytest.mark.parametrize("policy", POLICIES)
def test_without_a_timeout_what_others_of_the_bag_took_tells(policy: str) -> None:
    ended = run(policy, Arrival([60.0] * 100, actual=[0.05] * 100))
    assert ended.counters.done == 100
    assert ended.makespan_s < 30 * 60.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bag_that_was_swallowed_as_a_whole_comes_back(policy: str) -> None:
    ended = run(policy, Arrival([2.0] * 8))
    assert ended.counters.done == 8
    assert ended.makespan_s < 180.0


@pytest.mark.parametrize("policy", POLICIES)
def test_three_black_holes_delay_a_bag_and_do_not_keep_it(policy: str) -> None:
    ended = run(policy, Arrival([1.0] * 300, timeout=5.0), holes=3)
    assert ended.counters.done == 300
    assert ended.makespan_s < 300.0


def test_a_black_hole_that_comes_and_goes_says_nothing_while_it_is_away() -> None:
    pcs = [SimulatedPC("hole", cycle(3.0, 2.0), slots=8, silent=True), SimulatedPC("a", slots=2)]
    ended = Simulator(make_policy("pgs"), pcs, [Arrival([1.0] * 40, timeout=1.0)]).run()
    assert ended.counters.done == 40
    assert ended.counters.departures > 1
    assert 20.0 <= ended.makespan_s < 60.0


def test_an_honest_pc_that_was_doubted_stops_when_another_begins_and_takes_other_work() -> None:
    """Its task takes 3,000 s instead of 1; it says at 100 s and at 1,200 s that it stays."""
    late = SimulatedPC("late", lambda: iter([RealWindow(0.0, math.inf, 100.0, (1200.0, math.inf))]), slots=2)
    other = SimulatedPC("other", cycle(10_000.0, 0.0))
    arrivals = [Arrival([1.0], actual=[3000.0]), Arrival([400.0, 400.0], at=1500.0)]
    ended = Simulator(make_policy("pgs"), [late, other], arrivals, trace=True).run()
    assert {(each.pc, each.task, each.start, each.end) for each in ended.executions} == {
        ("late", 0, 0.0, 1200.0),
        ("late", 1, 1500.0, 1900.0),
        ("late", 2, 1500.0, 1900.0),
        ("other", 0, 1200.0, 4200.0),
    }
    assert (ended.counters.overdue, ended.counters.stale) == (1, 0)
