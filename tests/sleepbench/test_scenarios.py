"""The paper's numbers, and the arithmetic from a scaled run back to the paper's minutes."""

import json
import math
from dataclasses import replace

import pytest

from deskgrid.sleepbench.scenarios import (
    PAPER_MIN,
    UPTIMES_S,
    Measurements,
    Row,
    Scenario,
    ScenarioError,
    paper_min,
    paper_row,
    paper_scenario,
    rows_as_json,
)


@pytest.mark.parametrize(
    ("number", "count", "shortest", "longest", "copies"),
    [(0, 960, 0.25, 60.0, 4), (1, 960, 0.25, 60.0, 4), (2, 480, 0.5, 120.0, 2), (3, 240, 1.0, 240.0, 1)],
)
def test_the_job_lists_are_those_of_section_4_2(
    number: int, count: int, shortest: float, longest: float, copies: int
) -> None:
    tasks = paper_scenario(number).tasks
    assert (len(tasks), min(tasks), max(tasks)) == (count, shortest, longest)
    assert all(tasks.count(seconds) == copies for seconds in tasks)


@pytest.mark.parametrize("number", range(4))
def test_tasks_come_in_ascending_order_and_add_up_to_482_minutes(number: int) -> None:
    scenario = paper_scenario(number)
    assert list(scenario.tasks) == sorted(scenario.tasks)
    assert scenario.work_s == 482 * 60


@pytest.mark.parametrize("number", range(4))
def test_the_lower_bound_is_60_minutes_and_15_seconds(number: int) -> None:
    assert paper_scenario(number).lower_bound_s == 60 * 60 + 15


def test_scenario_0_is_scenario_1_on_pcs_that_stay() -> None:
    stays, leaves = paper_scenario(0), paper_scenario(1)
    assert stays.tasks == leaves.tasks
    assert (stays.stays, leaves.stays) == (True, False)
    assert (len(stays.uptimes), leaves.uptimes, leaves.restart) == (8, UPTIMES_S, 1.0)


def test_the_gain_over_fcfs_is_the_one_the_paper_states() -> None:
    gains = [100 * (fcfs - pgs) / pgs for pgs, fcfs in zip(PAPER_MIN["pgs"], PAPER_MIN["fcfs"], strict=True)]
    assert gains == pytest.approx([-0.51, 13.31, 27.51, 38.64], abs=0.02)


@pytest.mark.parametrize("number", [-1, 4])
def test_a_scenario_that_the_paper_does_not_have_is_refused(number: int) -> None:
    with pytest.raises(ScenarioError, match="0 to 3"):
        paper_scenario(number)


def test_scaling_multiplies_every_time_and_nothing_else() -> None:
    scaled = paper_scenario(3).scaled(0.02)
    assert scaled.uptimes[0] == pytest.approx(1.68)
    assert scaled.restart == pytest.approx(0.02)
    assert scaled.tasks[0] == pytest.approx(0.02)
    assert scaled.tasks[-1] == pytest.approx(4.8)
    assert scaled.lower_bound_s == pytest.approx(72.3)
    assert (scaled.number, len(scaled.tasks)) == (3, 240)


def test_pcs_that_stay_still_stay_when_scaled() -> None:
    assert paper_scenario(0).scaled(0.02).stays


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_scale_is_refused(scale: float) -> None:
    with pytest.raises(ScenarioError, match="scale"):
        paper_scenario(1).scaled(scale)


@pytest.mark.parametrize(
    ("tasks", "uptimes", "restart"),
    [
        ((), (1.0,), 1.0),
        ((1.0,), (), 1.0),
        ((0.0,), (1.0,), 1.0),
        ((math.inf,), (1.0,), 1.0),
        ((1.0,), (0.0,), 1.0),
        ((1.0,), (1.0,), -1.0),
        ((1.0,), (1.0,), math.nan),
    ],
)
def test_an_impossible_scenario_is_refused(
    tasks: tuple[float, ...], uptimes: tuple[float, ...], restart: float
) -> None:
    with pytest.raises(ScenarioError):
        Scenario(9, tasks, uptimes, restart)


# A run of scenario 3 at scale 0.02, in round numbers: 90 s for what would take 75 minutes.
MEASURED = Measurements(makespan_s=90.0, window_s=700.0, slept_s=578.4, wasted_s=20.0, kills=7, planned_kills=6)


def test_a_row_is_in_paper_minutes_and_seconds() -> None:
    row = paper_row(paper_scenario(3), "fcfs", MEASURED, scale=0.02, run=2, seed=5)
    assert (row.scenario, row.policy, row.run, row.seed) == (3, "fcfs", 2, 5)
    assert row.makespan_min == pytest.approx(75.0)
    assert (row.lower_bound_min, row.paper_min) == (60.25, 121.83)
    assert (row.tasks, row.kills, row.planned_kills) == (240, 7, 6)
    assert row.wasted_s == pytest.approx(1000.0)
    assert row.idle_s == pytest.approx((700.0 - 578.4 - 20.0) / 0.02)


def test_a_policy_that_is_not_in_the_paper_has_no_figure_beside_it() -> None:
    row = paper_row(paper_scenario(3), "other", MEASURED, scale=0.02, run=1, seed=0)
    assert row.paper_min is None


def test_the_json_has_exactly_the_documented_fields() -> None:
    row = Row(3, "pgs", 1, 0, 71.5, 60.25, 87.88, 240, 0, 0, 0.0, 5120.5)
    fields = "scenario policy run seed makespan_min lower_bound_min paper_min tasks kills planned_kills wasted_s idle_s"
    (written,) = json.loads(json.dumps(rows_as_json([row])))
    assert list(written) == fields.split()
    assert written["makespan_min"] == 71.5


def test_only_the_papers_own_scenarios_under_its_own_policies_have_a_figure() -> None:
    figures = [paper_min(*which) for which in ((3, "pgs"), (0, "fcfs"), (4, "pgs"), ("mine", "pgs"), (3, "packing"))]
    assert figures == [87.88, 63.21, None, None, None]


def test_a_scenario_that_is_shuffled_has_an_order_for_each_seed() -> None:
    shuffled = replace(paper_scenario(3), shuffled=True)
    assert paper_scenario(3).in_order(1) == paper_scenario(3).tasks
    assert shuffled.in_order(1) == shuffled.in_order(1) != shuffled.in_order(2)
    assert sorted(shuffled.in_order(1)) == list(shuffled.tasks)
    assert shuffled.scaled(0.5).shuffled
