"""Which picture is drawn of what was simulated."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from deskgrid.sleepbench.pictures.trials import TITLE_MOST, gantt_of, plot_of
from deskgrid.sleepbench.scenarios import Row, Scenario
from deskgrid.sleepbench.simulated import Trial, row_of, scenario_problem, simulate

# Two PCs, of which one is never there long enough for the longer tasks.
SMALL = Scenario(3, (10.0, 20.0, 30.0, 40.0, 50.0, 60.0), (35.0, 200.0), 5.0)
TRIAL = Trial(scenario_problem(SMALL, seed=1), "fcfs", run=2, seed=1)


def made(*trials: Trial) -> list[tuple[Trial, Row]]:
    return [(trial, row_of(trial, simulate(trial))) for trial in trials]


def x_labels(figure: Figure) -> list[str]:
    return [axes.get_xlabel() for axes in figure.axes]


def test_runs_without_errors_stand_beside_the_papers() -> None:
    assert x_labels(plot_of(made(TRIAL, replace(TRIAL, policy="pgs")))) == ["scenario"]


def test_two_factors_are_enough_for_a_line() -> None:
    labels = x_labels(plot_of(made(TRIAL, replace(TRIAL, runtime_error=2.0))))
    assert labels == ["error factor F of the runtimes"] * 3


def test_runs_under_one_error_are_no_line() -> None:
    assert x_labels(plot_of(made(replace(TRIAL, runtime_error=2.0)))) == ["scenario"]


PGS = replace(TRIAL, policy="pgs")


@pytest.mark.parametrize(
    ("label", "trials"),
    [
        ("error factor F of the runtimes", [replace(PGS, runtime_error=factor) for factor in (2.0, 1.0, 1.5)]),
        ("error factor F of the uptimes", [replace(PGS, uptime_error=factor) for factor in (2.0, 1.0, 1.5)]),
    ],
)
def test_runs_under_several_errors_are_drawn_against_them(label: str, trials: list[Trial]) -> None:
    rows = made(*trials)
    figure = plot_of(rows)
    assert x_labels(figure) == [label] * 3
    (line,) = (each.lines[0] for each in figure.axes[0].containers if isinstance(each, ErrorbarContainer))
    points = np.asarray(line.get_xydata()).tolist()
    assert points == [[factor, rows[place][1].makespan_min] for factor, place in ((1.0, 1), (1.5, 2), (2.0, 0))]


def test_the_gantt_of_a_run_shows_that_run_and_says_what_it_came_to() -> None:
    run = simulate(TRIAL)
    assert run.counters.kills > 0
    figure = gantt_of(TRIAL)
    axes = figure.axes[0]
    minutes = f"{run.makespan_s / 60:.2f} minutes, {run.counters.kills} killed"
    assert axes.get_title(loc="left") == f"scenario 3, fcfs, run 2 (seed 1): {minutes}"
    counts = {str(each.get_label()): len(each.get_paths()) for each in axes.collections}
    assert (counts["task"], counts["killed by a departure"]) == (6, run.counters.kills)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["pc1", "pc2"]


def test_the_gantt_of_a_scaled_run_says_that_its_clock_is_another() -> None:
    title = gantt_of(Trial(scenario_problem(SMALL, 1, scale=0.5), "pgs")).axes[0].get_title(loc="left")
    assert title.startswith("scenario 3, pgs, run 1 (seed 0), every time multiplied by 0.5: ")


def test_the_gantt_names_the_errors_it_was_made_under() -> None:
    trial = replace(TRIAL, policy="pgs", runtime_error=2.0, uptime_error=1.5)
    title = gantt_of(trial).axes[0].get_title(loc="left")
    assert "F = 2 of the runtimes, F = 1.5 of the uptimes" in title
    assert max(map(len, title.splitlines())) <= TITLE_MOST
