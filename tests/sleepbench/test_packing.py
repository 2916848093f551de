"""What `packing` makes of the paper's grid (Section 4.2): restart 1.2 s, no overhead, no margin."""

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, Run, SimulatedPC, Simulator, cycle
from deskgrid.sleepbench.scenarios import MINUTE_S, paper_scenario

RESTART_S = 1.2


def run(number: int, announces: bool = True) -> Run:
    scenario = paper_scenario(number)
    pcs = [SimulatedPC(f"pc{place}", cycle(up, RESTART_S)) for place, up in enumerate(scenario.uptimes)]
    policy = make_policy("packing", margin=0, queue_s=0, confidence=0)
    return Simulator(policy, pcs, [Arrival(scenario.tasks)], Conditions(announces=announces)).run()


@pytest.mark.parametrize(("number", "minutes"), [(0, 60.4), (1, 60.9), (2, 60.9), (3, 64.0)])
def test_the_papers_scenarios_end_close_to_the_bound_and_nothing_is_lost(number: int, minutes: float) -> None:
    made = run(number)
    assert paper_scenario(number).lower_bound_s <= made.makespan_s <= minutes * MINUTE_S
    assert (made.counters.kills, made.counters.unfit) == (0, 0)


@pytest.mark.parametrize(("number", "minutes"), [(1, 60.9), (2, 61.0), (3, 69.0)])
def test_knowing_current_windows_only_they_end_a_little_later(number: int, minutes: float) -> None:
    made = run(number, announces=False)
    assert made.makespan_s <= minutes * MINUTE_S
    assert (made.counters.kills, made.counters.unfit) == (0, 0)
