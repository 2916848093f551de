"""Live beside simulated: what is simulated, and when both agree."""

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest
from rich.console import Console

from deskgrid.scheduler.simulation.simulator import RealWindow
from deskgrid.sleepbench.compare import LOTS, Comparison, RunSetting, Underway, trials
from deskgrid.sleepbench.costs import Cost, Costs
from deskgrid.sleepbench.report import compared
from deskgrid.sleepbench.scenarios import Row, Scenario, paper_scenario
from deskgrid.sleepbench.simulated import rows_of

COSTS = Costs(Cost(0.002, 0.1, 10), Cost(0.003, 0.2, 5), Cost(0.02, 0.3, 4), Cost(0.001, 0.004, 8), 0.03, {"pc1": 1.5})
SMALL = Scenario("small", tuple(float(seconds) for seconds in range(2, 80, 2)), (84.0, 117.0, 228.0), 1.0)


def rows(*minutes: float, kills: Sequence[int] = ()) -> list[Row]:
    """Runs of these makespans."""
    counts = [*kills, *[0] * (len(minutes) - len(kills))]
    return [
        Row(3, "pgs", place, place, makespan, 60.25, 87.88, 240, count, count, 0.0, 0.0)
        for place, (makespan, count) in enumerate(zip(minutes, counts, strict=True))
    ]


def comparison(live: list[Row], simulated: list[Row], *, by_lot: bool = False) -> Comparison:
    return Comparison(0.02, by_lot, live, rows(50.0), simulated, [COSTS])


# --- what is simulated -----------------------------------------------------------------------------------------------


def test_an_ideal_grid_is_the_scaled_scenario_without_costs() -> None:
    (trial,) = trials(RunSetting(paper_scenario(3), 0.02, "pgs", {"margin": 0.15}), None)
    assert (trial.parameters.overhead_s, trial.parameters.opening_s, trial.parameters.jitter) == (0.0, 0.0, 0.0)
    assert trial.parameters.options == {"pgs": {"margin": 0.15}}
    assert next(trial.problem.pcs[0].timetable()) == RealWindow(0.0, 1.68, 1.68)


def test_the_costs_of_a_run_are_simulated_as_they_were_measured_and_as_nobody_predicted_them() -> None:
    (trial,) = trials(RunSetting(paper_scenario(3), 0.02, "pgs", {}), COSTS)
    measured = trial.parameters.overhead_s, trial.parameters.gap_s, trial.parameters.opening_s
    assert measured == (0.002, 0.003, 0.02)
    assert [bag.at for bag in trial.problem.arrivals] == pytest.approx([0.027])
    assert not trial.parameters.overhead_known
    first, second = islice(trial.problem.pcs[0].timetable(), 2)
    assert (first.opens, first.closes, second.opens, second.closes) == pytest.approx((0.0, 1.5, 1.52, 3.2))
    assert next(trial.problem.pcs[1].timetable()).closes == pytest.approx(2.34)


def test_a_window_may_also_open_after_the_start() -> None:
    assert next(Underway(2.0, 1.0, 5.0)()) == RealWindow(3.0, 5.0, 5.0)


def test_a_policy_that_draws_lots_is_simulated_with_many() -> None:
    setting = RunSetting(SMALL, 0.02, "fcfs", {})
    assert setting.by_lot
    assert [trial.seed for trial in trials(setting, COSTS)] == list(range(LOTS))
    assert not replace(setting, policy="packing").by_lot


def test_each_task_costs_its_slot_the_overhead_and_the_first_what_comes_before_it() -> None:
    setting = RunSetting(Scenario("one", (10.0, 20.0), (math.inf,), 0.0), 0.5, "pgs", {"queue_s": 0})
    made = rows_of([*trials(setting, None), *trials(setting, replace(COSTS, first_closings={}))])
    makespans = [row.makespan_min * 60 for row in made if isinstance(row, Row)]
    # In the scenario's seconds, two of which are one that passes.
    assert makespans == pytest.approx([30.0, 30.0 + 2 * (0.03 + 2 * 0.002 + 0.003)])
    later = replace(COSTS, opening=Cost(0.07, 0.07, 1), first_closings={})
    (row,) = rows_of(trials(setting, later))
    assert isinstance(row, Row)
    assert row.makespan_min * 60 == pytest.approx(30.0 + 2 * (0.07 + 2 * 0.002 + 0.003))


# --- whether they agree ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("live", "close"), [(102.9, True), (103.1, False), (97.1, True), (96.9, False)])
def test_medians_agree_within_three_percent_of_the_simulated_one(live: float, close: bool) -> None:
    found = comparison(rows(live, 1.0, 1000.0), rows(100.0, 100.0, 400.0))
    assert found.off == pytest.approx(live / 100.0 - 1.0)
    assert found.off_ideal == pytest.approx(live / 50.0 - 1.0)
    assert found.close is found.makespans_agree is found.agrees is close


def test_by_lot_a_median_agrees_that_might_have_been_drawn() -> None:
    simulated = rows(90.0, 100.0, 110.0)
    assert not comparison(rows(109.0), simulated).makespans_agree
    assert comparison(rows(109.0), simulated, by_lot=True).makespans_agree
    assert not comparison(rows(109.0), simulated, by_lot=True).close
    assert not comparison(rows(111.0), simulated, by_lot=True).agrees


@pytest.mark.parametrize(("live", "agree"), [((2, 1), True), ((1, 1), False), ((3, 1), False)])
def test_there_are_as_many_kills_in_all_runs_together(live: tuple[int, ...], agree: bool) -> None:
    found = comparison(rows(100.0, 100.0, kills=live), rows(100.0, 100.0, kills=(0, 3)))
    assert found.kills_agree is found.agrees is agree


@pytest.mark.parametrize(("live", "agree"), [(198, True), (206, True), (193, False), (207, False)])
def test_by_lot_there_are_about_as_many_kills(live: int, agree: bool) -> None:
    found = comparison(rows(100.0, kills=(live,)), rows(100.0, 100.0, 100.0, kills=(199, 200, 201)), by_lot=True)
    assert found.kills_agree is agree


@pytest.mark.parametrize(("live", "agree"), [((5, 9, 3), True), ((4, 7, 4), False), ((10, 7, 10), False)])
def test_by_lot_a_median_count_of_kills_agrees_that_might_have_been(live: tuple[int, ...], agree: bool) -> None:
    found = comparison(rows(*[100.0] * 3, kills=live), rows(*[100.0] * 3, kills=(9, 5, 7)), by_lot=True)
    assert found.kills_agree is agree


def test_costs_of_several_runs_are_those_of_all_that_was_measured() -> None:
    other = replace(COSTS, gap=Cost(0.009, 0.1, 10))
    found = replace(comparison(rows(1.0), rows(1.0)), costs=[COSTS, other])
    assert found.overall(lambda costs: costs.gap) == Cost(pytest.approx(0.007), 0.2, 15)  # type: ignore[arg-type]
    none = replace(COSTS, gap=Cost(0.0, 0.0, 0))
    assert replace(found, costs=[none]).overall(lambda costs: costs.gap) == Cost(0.0, 0.0, 0)


# --- what is shown ---------------------------------------------------------------------------------------------------


def test_the_tables_have_a_line_for_each_comparison() -> None:
    found = [
        comparison(rows(103.0, kills=(2,)), rows(101.0, kills=(1,))),
        comparison(rows(104.0, kills=(2,)), rows(90.0, 100.0, 110.0, kills=(1, 5, 4)), by_lot=True),
    ]
    both, costs = compared(found)
    assert [list(column.cells) for column in both.columns[1:]] == [
        ["103.00", "104.00"],
        ["50.00", "50.00"],
        ["101.00", "100.00"],
        ["+2.0%", "+4.0%"],
        ["yes", "lots"],
        ["2", "2"],
        ["1", "1-5"],
        ["no", "yes"],
    ]
    line = [next(iter(column.cells)) for column in costs.columns]
    assert line == ["3 pgs", "2.0 / 100", "3.0 / 200", "20.0 / 300", "1.0 / 4", "30.0 / 30"]


@pytest.mark.parametrize("place", [0, 1])
def test_each_table_fits_a_terminal(place: int) -> None:
    found = comparison(rows(103.0, kills=(261,)), rows(101.0, 101.0, kills=(260, 279)), by_lot=True)
    table = list(compared([replace(found, live=[replace(found.live[0], policy="packing")])]))[place]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table)
    assert "…" not in console.export_text()


def test_the_json_says_what_agrees_and_what_was_measured() -> None:
    document = comparison(rows(103.0), rows(101.0)).as_json()
    assert (document["live_min"], document["simulated_min"], document["close"]) == (103.0, 101.0, True)
    assert document["costs"] == [
        {
            "oversleep": {"mean": 0.002, "most": 0.1, "count": 10},
            "gap": {"mean": 0.003, "most": 0.2, "count": 5},
            "opening": {"mean": 0.02, "most": 0.3, "count": 4},
            "late": {"mean": 0.001, "most": 0.004, "count": 8},
            "submission_s": 0.03,
            "first_closings": {"pc1": 1.5},
        }
    ]
