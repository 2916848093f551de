"""One run as a Gantt chart: a row for each slot, with its windows and the attempts in them.

Rule 1: idle time is the visible part of a window; the time between windows is white.
Rule 2: a killed attempt differs in colour and in hatching, so that it can be seen in print without colours.
Rule 3: the same code draws an hour of a few long tasks and a night of thousands of short ones. Each of the three kinds
of blocks is one collection, and only blocks that are wide enough have an edge.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deskgrid.scheduler.simulation.simulator import Execution, Run, SimulatedPC
from deskgrid.sleepbench.pictures.style import INK, VERMILLION, WIDTH, drawing, new_figure

# Inches. Rows share the height of a page, within limits; the rest is for legend and axis. The last is the maximum
# height.
PAGE_HEIGHT = 6.4
ROW_MOST = 0.27
ROW_LEAST = 0.1
REST_HEIGHT = 0.95
HEIGHT_MOST = 30.0
# The height of a name, in inches. If rows are lower, only some have a name.
NAME_HEIGHT = 0.1
# The maximum height of the colour scale, in inches.
SCALE_HEIGHT = 2.4

# Fractions of a row's height: windows, blocks, and the gap between PCs that have several slots.
WINDOW = 0.86
BLOCK = 0.66
GAP = 0.5
# Points. Blocks at least this wide have an edge, which separates them from the next block: a PC may be back in a
# second.
EDGE_FROM = 2.5
EDGE = 0.5
# The approximate width of all blocks, as a fraction of the figure's width.
PANEL = 0.82

WINDOW_COLOUR = "#e6e6e6"
# From short to long. The lightest shade must not look like an idle window.
SHADES = LinearSegmentedColormap.from_list("runtimes", ["#a6cee3", "#4f9fd0", "#0072b2", "#003a5d"])

# The time axis uses the largest unit of which the run has at least this many.
UNITS_LEAST = 5.0
UNITS: Sequence[tuple[str, float]] = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


# A row, and the start and the end of a block in it, in seconds.
Placed = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of each slot's row (`y`, from the top), and the length of a second, in `unit`s and in points."""

    rows: dict[tuple[str, int], float]
    unit: str
    per_second: float
    points_per_second: float

    def box(self, row: float, start: float, end: float, height: float) -> list[tuple[float, float]]:
        """The corners of a block in a row."""
        left, right = start * self.per_second, end * self.per_second
        low, high = row - height / 2, row + height / 2
        return [(left, low), (left, high), (right, high), (right, low)]


def gantt(run: Run, pcs: Sequence[SimulatedPC], title: str) -> Figure:
    """Draw ``run``, which was made with a trace on ``pcs``. ``title``: a description of the run and its result."""
    layout = layout_of(run, pcs)
    with drawing():
        figure = new_figure(_height(len(layout.rows)))
        axes = figure.add_subplot()
        norm = Normalize(0.0, max((length(each) for each in run.executions if each.done), default=1.0))
        _draw_windows(axes, run, layout)
        _draw_attempts(axes, run, layout, norm)
        _draw_announced(axes, run, layout)
        _set_axes(axes, run, pcs, layout)
        axes.set_title(title, loc="left")
        _draw_scale(figure, axes, norm)
        figure.legend(loc="outside upper center", ncols=4)
    return figure


def _draw_scale(figure: Figure, axes: Axes, norm: Normalize) -> None:
    """Draw the scale of the shades beside the rows, no higher than `SCALE_HEIGHT`."""
    shrink = min(1.0, SCALE_HEIGHT / (figure.get_figheight() - REST_HEIGHT))
    colours = figure.colorbar(
        ScalarMappable(norm, SHADES), ax=axes, shrink=shrink, aspect=30, pad=0.01, anchor=(0.0, 1.0)
    )
    colours.set_label("seconds a task took")
    colours.outline.set_visible(False)


def length(execution: Execution) -> float:
    """Seconds."""
    return execution.end - execution.start


def layout_of(run: Run, pcs: Sequence[SimulatedPC]) -> Layout:
    """Rows in the order of the PCs; the rows of one PC are adjacent."""
    gap = GAP if any(pc.slots > 1 for pc in pcs) else 0.0
    rows, row = {}, 0.0
    for pc in pcs:
        rows.update({(pc.name, slot): row + slot for slot in range(pc.slots)})
        row += pc.slots + gap
    unit, seconds = next((each for each in UNITS if run.makespan_s >= UNITS_LEAST * each[1]), UNITS[-1])
    return Layout(rows, unit, 1.0 / seconds, WIDTH * PANEL * 72.0 / run.makespan_s)


def _height(rows: int) -> float:
    return min(REST_HEIGHT + rows * max(ROW_LEAST, min(ROW_MOST, PAGE_HEIGHT / rows)), HEIGHT_MOST)


def _draw_windows(axes: Axes, run: Run, layout: Layout) -> None:
    windows = [
        (row, span.opens, min(span.closes, run.makespan_s))
        for name, span in run.spans
        if span.opens < run.makespan_s
        for row in _rows(name, layout)
    ]
    axes.add_collection(_boxes(windows, WINDOW, layout, facecolors=WINDOW_COLOUR, label="window, idle"))


def _rows(name: str, layout: Layout) -> Iterator[float]:
    return (row for (pc, _), row in layout.rows.items() if pc == name)


def _draw_attempts(axes: Axes, run: Run, layout: Layout, norm: Normalize) -> None:
    done = [each for each in run.executions if each.done]
    killed = [each for each in run.executions if not each.done]
    shades = SHADES(norm([length(each) for each in done]))
    axes.add_collection(_boxes(_placed(done, layout), BLOCK, layout, facecolors=shades, label="task"))
    if killed:
        look = {"facecolors": VERMILLION, "hatch": "//////", "label": "killed by a departure"}
        axes.add_collection(_boxes(_placed(killed, layout), BLOCK, layout, **look))


def _placed(executions: Iterable[Execution], layout: Layout) -> list[Placed]:
    return [(layout.rows[each.pc, each.slot], each.start, each.end) for each in executions]


def _boxes(placed: Sequence[Placed], height: float, layout: Layout, **look: Any) -> PolyCollection:
    edge_from = EDGE_FROM / layout.points_per_second
    return PolyCollection(
        [layout.box(row, start, end, height) for row, start, end in placed],
        edgecolors="white",
        linewidths=[EDGE if end - start >= edge_from else 0.0 for _, start, end in placed],
        **look,
    )


def _draw_announced(axes: Axes, run: Run, layout: Layout) -> None:
    """A tick at each announced closing at which the window did not close."""
    ticks = [
        [(closing * layout.per_second, row + side * WINDOW / 2) for side in (-1, 1)]
        for name, span in run.spans
        for closing in span.closings
        if closing != span.closes and closing < run.makespan_s
        for row in _rows(name, layout)
    ]
    if ticks:
        axes.add_collection(LineCollection(ticks, colors=INK, linewidths=0.8, label="announced closing"))


def _set_axes(axes: Axes, run: Run, pcs: Sequence[SimulatedPC], layout: Layout) -> None:
    axes.set_xlim(0.0, run.makespan_s * layout.per_second)
    axes.set_ylim(max(layout.rows.values()) + 0.6, -0.6)
    axes.set_xlabel(f"time ({layout.unit})")
    axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 1.5, 2, 3, 5, 6, 10]))
    step = math.ceil(NAME_HEIGHT * len(pcs) / (_height(len(layout.rows)) - REST_HEIGHT))
    named = list(names(pcs, layout))[::step]
    axes.set_yticks([row for row, _ in named], [name for _, name in named])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def names(pcs: Sequence[SimulatedPC], layout: Layout) -> Iterator[tuple[float, str]]:
    """The name of each PC, and its position, the middle of its rows."""
    for pc in pcs:
        rows = list(_rows(pc.name, layout))
        yield sum(rows) / len(rows), pc.name
