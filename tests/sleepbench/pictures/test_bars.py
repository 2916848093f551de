"""Figure 2: the heights, the order and the names of its bars, read from what matplotlib holds."""

from dataclasses import replace
from itertools import pairwise

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from deskgrid.sleepbench.pictures.bars import figure2, pale
from deskgrid.sleepbench.pictures.means import of_the_paper
from deskgrid.sleepbench.scenarios import PAPER_MIN
from tests.sleepbench.pictures.rows import ROWS, row


def heights(figure: Figure) -> dict[str, list[float]]:
    """The bars of each series, by its name, from left to right."""
    return {str(bars.get_label()): [bar.get_height() for bar in bars] for bars in containers(axes_of(figure))}


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def containers(axes: Axes) -> list[BarContainer]:
    return [container for container in axes.containers if isinstance(container, BarContainer)]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_each_policy_stands_beside_what_it_did_in_the_paper() -> None:
    assert heights(figure2(ROWS)) == {
        "pgs, the paper": [63.54, 87.88],
        "pgs": [64.0, 86.0],
        "fcfs, the paper": [63.21, 121.83],
        "fcfs": [64.0, 120.0],
        "packing": pytest.approx([61.3, 63.5]),
    }


def test_bars_do_not_overlap_and_stay_within_their_scenario() -> None:
    bars = [bar for container in containers(axes_of(figure2(ROWS))) for bar in container]
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in bars)
    assert all(end < start for (_, end), (start, _) in pairwise(edges))
    assert sorted(round((start + end) / 2) for start, end in edges) == [0] * 5 + [1] * 5


def test_error_bars_are_one_deviation_long_on_either_side() -> None:
    (pgs, paper) = (
        next(bars for bars in containers(axes_of(figure2(ROWS))) if bars.get_label() == name)
        for name in ("pgs", "pgs, the paper")
    )
    assert ends(pgs)[1] == pytest.approx((86.0 - 2**0.5, 86.0 + 2**0.5))
    assert ends(paper) == [pytest.approx((63.35, 63.73)), pytest.approx((85.85, 89.91))]


def ends(bars: BarContainer) -> list[tuple[float, float]]:
    assert bars.errorbar is not None
    (lines,) = bars.errorbar.lines[2]
    return [tuple(segment[:, 1]) for segment in lines.get_segments()]


def test_a_single_run_has_no_error_bar() -> None:
    figure = figure2([row(3, "packing", 63.5)])
    (ours,) = (bars for bars in containers(axes_of(figure)) if bars.get_label() == "packing")
    assert ours.errorbar is None


def test_the_paper_is_there_for_its_scenarios_whatever_was_run() -> None:
    figure = figure2([row(1, "packing", 60.5)])
    assert heights(figure) == {"pgs, the paper": [65.54], "fcfs, the paper": [74.26], "packing": [60.5]}


def test_a_scenario_of_a_file_has_its_name_its_bound_and_no_paper() -> None:
    rows = [replace(row(0, "pgs", 12.0), scenario="evenings", lower_bound_min=10.0)]
    figure = figure2(rows)
    assert heights(figure) == {"pgs": [12.0]}
    assert [label.get_text() for label in axes_of(figure).get_xticklabels()] == ["evenings"]
    assert bounds(figure) == [((-0.5, 0.5), 10.0)]


def bounds(figure: Figure) -> list[tuple[tuple[float, float], float]]:
    lines = next(lines for lines in axes_of(figure).collections if lines.get_label() == "lower bound")
    assert isinstance(lines, LineCollection)
    return [((float(a[0]), float(b[0])), float(a[1])) for a, b in lines.get_segments()]


def test_the_lower_bound_runs_across_all_scenarios() -> None:
    assert bounds(figure2(ROWS)) == [((-0.5, 0.5), 60.25), ((0.5, 1.5), 60.25)]


def test_the_axes_say_what_is_measured_in_what_and_start_at_nothing() -> None:
    axes = axes_of(figure2(ROWS))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("scenario", "makespan (minutes)")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "3"]
    assert axes.get_ylim()[0] == 0.0


def test_the_legend_names_every_series_and_the_bound_last() -> None:
    assert legend(figure2(ROWS)) == ["pgs, the paper", "pgs", "fcfs, the paper", "fcfs", "packing", "lower bound"]


def test_the_legend_shows_the_bound_as_a_line_and_the_rest_as_bars() -> None:
    *others, bound = figure2(ROWS).legends[0].legend_handles
    assert isinstance(bound, Line2D)
    assert all(isinstance(other, Rectangle) for other in others)


def test_the_paper_is_a_paler_shade_of_the_same_colour() -> None:
    faces = {str(bars.get_label()): first(bars).get_facecolor()[:3] for bars in containers(axes_of(figure2(ROWS)))}
    assert faces["pgs, the paper"] == pytest.approx(pale("#0072b2"))
    assert len(set(faces.values())) == 5


def first(bars: BarContainer) -> Rectangle:
    return bars.patches[0]


def test_the_papers_deviations_belong_to_its_means() -> None:
    for number in range(4):
        for policy in PAPER_MIN:
            spread = of_the_paper(number)[policy]
            assert spread.mean == PAPER_MIN[policy][number]
            assert 0.001 < spread.deviation / spread.mean < 0.03
