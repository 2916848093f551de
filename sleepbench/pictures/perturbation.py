"""Makespan, kills and waste against the error factor F of the predictions: a line for each policy."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from deskgrid.sleepbench.pictures.means import Means, Name, Spread, called, means, policies_of, scenarios_of
from deskgrid.sleepbench.pictures.style import INK, draw_line, drawing, looks, new_figure
from deskgrid.sleepbench.scenarios import MINUTE_S, Row

# Inches: the height of a row of panels; the height of the legend and of the labels at the bottom.
ROW_HEIGHT = 2.0
REST_HEIGHT = 0.6
# Points: the size of the last policy's markers, and how much larger each policy's markers are than the next one's.
# Where all values are equal (nothing killed), the markers below can still be seen.
MARKER = 3.2
LARGER = 1.4

# The three panels of a row: the label of the axis, and the values.
PANELS: Sequence[tuple[str, Callable[[Means], Spread]]] = (
    ("makespan (minutes)", lambda each: each.makespan_min),
    ("attempts killed", lambda each: each.kills),
    ("slot time wasted (minutes)", lambda each: minutes(each.wasted_s)),
)

# The means at each F.
Points = Mapping[float, Sequence[Means]]


def minutes(seconds: Spread) -> Spread:
    """Convert seconds to minutes."""
    return Spread(seconds.mean / MINUTE_S, seconds.deviation / MINUTE_S)


def against_error(rows: Mapping[float, Sequence[Row]], of: str) -> Figure:
    """Three panels for each scenario. ``rows``: the runs at each F; ``of``: the wrong predictions, "the runtimes"."""
    points = {factor: means(some) for factor, some in sorted(rows.items())}
    drawn = [each for some in points.values() for each in some]
    scenarios = scenarios_of(drawn)
    with drawing():
        figure = new_figure(REST_HEIGHT + ROW_HEIGHT * len(scenarios))
        grid = figure.subplots(len(scenarios), len(PANELS), sharex=True, squeeze=False)
        for scenario, row in zip(scenarios, grid, strict=True):
            _draw_row(row, scenario, points, policies_of(drawn))
            row[0].set_title(called(scenario), loc="left")
        for axes in grid[-1]:
            axes.set_xlabel(f"error factor F of {of}")
        handles, labels = grid[0][0].get_legend_handles_labels()  # the bound first; here it comes last
        figure.legend(handles[1:] + handles[:1], labels[1:] + labels[:1], loc="outside upper center", ncols=6)
    return figure


def _draw_row(row: Sequence[Axes], scenario: Name, points: Points, policies: Sequence[str]) -> None:
    for axes, (label, value) in zip(row, PANELS, strict=True):
        _draw_lines(axes, scenario, points, policies, value)
        axes.set_ylabel(label)
        _set_axes(axes, list(points))
    bounds = [each.lower_bound_min for some in points.values() for each in some if each.scenario == scenario]
    row[0].axhline(bounds[0], color=INK, linestyle="--", linewidth=0.8, label="lower bound")
    for axes in row[1:]:
        axes.set_ylim(bottom=0.0)


def _draw_lines(
    axes: Axes, scenario: Name, points: Points, policies: Sequence[str], value: Callable[[Means], Spread]
) -> None:
    for place, (policy, look) in enumerate(looks(policies).items()):
        values = {
            factor: value(each)
            for factor, some in points.items()
            for each in some
            if (each.scenario, each.policy) == (scenario, policy)
        }
        draw_line(axes, policy, values, look, MARKER + LARGER * (len(policies) - 1 - place))


def _set_axes(axes: Axes, factors: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(factors)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.grid()
