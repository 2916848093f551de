"""Makespan, kills and waste against F: the panels, and the points of their lines."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from deskgrid.sleepbench.pictures.perturbation import against_error
from deskgrid.sleepbench.scenarios import Row
from tests.sleepbench.pictures.rows import ROWS, row


def at(factor: float) -> list[Row]:
    """Runs that take longer, kill more and waste more the larger F is; two of each policy."""
    return [
        row(3, policy, minutes * factor, run=run, kills=round(10 * factor) + run, wasted_s=600.0 * factor)
        for policy, minutes in (("fcfs", 120.0), ("packing", 64.0))
        for run in (1, 3)
    ]


def points(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """What each line goes through."""
    lines = {str(each.get_label()): each.lines[0] for each in axes.containers if isinstance(each, ErrorbarContainer)}
    return {label: [(x, y) for x, y in np.asarray(line.get_xydata()).tolist()] for label, line in lines.items()}


@pytest.fixture
def figure() -> Figure:
    return against_error({4.0: at(4.0), 1.0: at(1.0), 2.0: at(2.0)}, "the runtimes")


def test_there_is_a_panel_for_makespan_for_kills_and_for_waste(figure: Figure) -> None:
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["makespan (minutes)", "attempts killed", "slot time wasted (minutes)"]


def test_a_line_goes_through_the_means_in_the_order_of_the_factors(figure: Figure) -> None:
    makespan, kills, wasted = (points(axes) for axes in figure.axes)
    assert makespan["packing"] == [(1.0, 64.0), (2.0, 128.0), (4.0, 256.0)]
    assert kills["fcfs"] == [(1.0, 12.0), (2.0, 22.0), (4.0, 42.0)]
    assert wasted["fcfs"] == [(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]
    assert set(makespan) == set(kills) == set(wasted) == {"fcfs", "packing"}


def test_error_bars_are_one_deviation_long(figure: Figure) -> None:
    (fcfs, _) = (each for each in figure.axes[1].containers if isinstance(each, ErrorbarContainer))
    assert fcfs.lines[2][0].get_segments()[0][:, 1] == pytest.approx([12.0 - 2**0.5, 12.0 + 2**0.5])


def test_the_x_axis_doubles_and_is_marked_where_there_are_points(figure: Figure) -> None:
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "error factor F of the runtimes"
    figure.draw_without_rendering()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4"]
    start, middle, end = (axes.transData.transform((factor, 0.0))[0] for factor in (1.0, 2.0, 4.0))
    assert middle - start == pytest.approx(end - middle)


def test_kills_and_waste_start_at_nothing(figure: Figure) -> None:
    assert [axes.get_ylim()[0] for axes in figure.axes[1:]] == [0.0, 0.0]


def test_the_bound_is_a_line_in_the_first_panel_and_last_in_the_legend(figure: Figure) -> None:
    (bound,) = (line for line in figure.axes[0].lines if line.get_label() == "lower bound")
    assert np.asarray(bound.get_ydata()).tolist() == [60.25, 60.25]
    assert not any(line.get_label() == "lower bound" for axes in figure.axes[1:] for line in axes.lines)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fcfs", "packing", "lower bound"]


def test_each_scenario_has_a_row_of_panels_of_its_own() -> None:
    figure = against_error({1.0: ROWS, 2.0: ROWS}, "the uptimes")
    assert [axes.get_title(loc="left") for axes in figure.axes[::3]] == ["scenario 0", "scenario 3"]
    assert points(figure.axes[0])["pgs"] == [(1.0, 64.0), (2.0, 64.0)]
    assert points(figure.axes[3])["pgs"] == [(1.0, 86.0), (2.0, 86.0)]


def test_what_lies_below_an_equal_line_can_still_be_seen() -> None:
    figure = against_error({1.0: ROWS, 2.0: ROWS}, "the uptimes")
    containers = [each for each in figure.axes[0].containers if isinstance(each, ErrorbarContainer)]
    sizes = [each.lines[0].get_markersize() for each in containers]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len({each.lines[0].get_marker() for each in containers}) == 3
