"""Gangs whose times differ only by rounding: what is one instant on paper is one in the simulator, too."""

import pytest

from deskgrid.scheduler.model import SchedulerError
from deskgrid.scheduler.policies import policy_names
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedPC, cycle
from tests.scheduler.simulation.test_gangs import gang, pcs, simulator, times


@pytest.mark.parametrize("policy", policy_names())
def test_a_gang_that_ends_when_another_one_arrives_makes_room_for_it(policy: str) -> None:
    grid = [
        SimulatedPC(f"{site}{number}", site=site, speed=speed)
        for site, speed in (("A", 2.0), ("B", 1.0))
        for number in (1, 2)
    ]
    run = simulator(grid, [gang(2, 0.4, at=0.1), gang(2, 1.0, at=0.3)], policy=policy).run()
    assert [(one.site, one.start, round(one.end, 9)) for one in run.gangs] == [("A", 0.1, 0.3), ("A", 0.3, 0.8)]


def test_a_gang_that_ends_when_a_window_closes_is_not_lost() -> None:
    run = simulator(pcs(1, cycle(3.3, 5.0)), [gang(1, 0.5, at=0.1, actual=3.2)], policy="easy").run()
    assert times(run) == [(0, 0.1, 3.3, True)]  # 0.1 + 3.2 is more than 3.3


def test_single_tasks_end_when_they_end() -> None:
    run = simulator(pcs(1), [Arrival([0.2], at=0.1)], policy="packing").run()
    assert run.makespan_s == 0.1 + 0.2


def test_rounding_can_be_left_to_decide() -> None:
    grid = [SimulatedPC("a", site="A", speed=2.0), SimulatedPC("b", site="B")]
    arrivals = [gang(1, 0.4, at=0.1), gang(1, 1.0, at=0.3)]
    run = simulator(grid, arrivals, Conditions(instant_s=0.0)).run()
    assert [(one.site, one.start) for one in run.gangs] == [("A", 0.1), ("B", 0.3)]


def test_an_instant_is_no_negative_time() -> None:
    with pytest.raises(SchedulerError, match="from 0 up"):
        Conditions(instant_s=-1.0)
