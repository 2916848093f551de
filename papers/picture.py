"""The experiments of a paper: a panel each, with a line for each policy, or bars where the cases are no numbers."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deskgrid.papers.base import Experiment, Paper, TrialRow
from deskgrid.sleepbench.pictures.means import spread
from deskgrid.sleepbench.pictures.style import draw_bars, draw_line, drawing, looks, new_figure

# Inches: the height of a panel; the height of the legend.
PANEL_HEIGHT = 2.6
REST_HEIGHT = 0.5
MARKER = 4.0
# The width of a case's bars, as a fraction of the distance between cases; the width of a bar in its place.
GROUP = 0.84
BAR = 0.92


def figure_of(paper: Paper, rows: Sequence[TrialRow]) -> Figure:
    """The means of all runs, with their standard deviations."""
    panels = {
        name: (experiment, [row for row in rows if row.experiment == name])
        for name, experiment in paper.experiments.items()
    }
    panels = {name: (experiment, some) for name, (experiment, some) in panels.items() if some}
    colours = looks(list(dict.fromkeys(row.policy for row in rows)))
    with drawing():
        figure = new_figure(REST_HEIGHT + PANEL_HEIGHT * len(panels))
        grid = figure.subplots(len(panels), 1, squeeze=False)
        for (experiment, some), (axes,) in zip(panels.values(), grid, strict=True):
            _draw(axes, experiment, some, colours)
        known = {
            str(label): handle
            for (axes,) in grid
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(list(known.values()), list(known), loc="outside upper center", ncols=6)
    return figure


def _draw(axes: Axes, experiment: Experiment, rows: Sequence[TrialRow], colours: dict[str, tuple[str, str]]) -> None:
    cases = [case for case in experiment.cases if any(row.case == case for row in rows)]
    policies = [policy for policy in experiment.policies if any(row.policy == policy for row in rows)]
    for place, policy in enumerate(policies):
        values = {case: [row.value for row in rows if (row.case, row.policy) == (case, policy)] for case in cases}
        known = {case: spread(some) for case, some in values.items() if some}
        if numbers(cases):
            points = {float(case): each for case, each in known.items()}
            draw_line(axes, policy, points, colours[policy], MARKER)
        else:
            step = GROUP / len(policies)
            offset = step * (place - (len(policies) - 1) / 2)
            bars = {cases.index(case) + offset: each for case, each in known.items()}
            draw_bars(axes, policy, bars, step * BAR, color=colours[policy][0])
    if not numbers(cases):
        axes.set_xticks(range(len(cases)), cases)
        axes.tick_params(axis="x", length=0)
    axes.set_title(experiment.title, loc="left")
    axes.set_xlabel(experiment.by)
    axes.set_ylabel(f"{experiment.value} ({experiment.unit})")
    axes.set_ylim(bottom=0.0)
    axes.grid(axis="y")


def numbers(cases: Sequence[str]) -> bool:
    """Whether the cases are points on an axis."""
    return all(case.replace(".", "", 1).isdigit() for case in cases)
