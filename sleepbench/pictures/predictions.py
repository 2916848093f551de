"""Pictures of predictions: how often intervals hold, what is predicted of a bag's tasks, and a bag that is awaited."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from deskgrid.sleepbench.etas import METHODS, SMALL, SMALL_NAME, EtaRow
from deskgrid.sleepbench.pictures.style import INK, LOOKS, PALE_INK, SPARE, drawing, new_figure
from deskgrid.sleepbench.prequential import Life

# Inches.
HEIGHT = 2.6
# Percent: where nine of ten intervals should hold, and where they nearly do.
WANTED, LEAST, MOST = 90.0, 86.0, 94.0
# Colour and marker of each method, our own in the colour of the default policy.
METHOD_LOOKS = dict(zip(METHODS, (SPARE[2], LOOKS["packing"]), strict=True))
OWN = LOOKS["packing"][0]
BAND = 0.22


class ToldEnd(NamedTuple):
    """What was told of a bag ``at`` some instant: when it will be done. Seconds from its submission."""

    at: float
    median: float
    low: float
    high: float


def coverage(rows: Sequence[EtaRow]) -> Figure:
    """Bags that ended within their interval, and how wide that was, by stage: a line for each method."""
    by_stage = [row for row in rows if row.stage != SMALL_NAME]
    stages = list(dict.fromkeys(row.stage for row in by_stage))
    with drawing():
        figure = new_figure(HEIGHT)
        holds, width = figure.subplots(1, 2)
        holds.axhspan(LEAST, MOST, color=OWN, alpha=BAND / 2, linewidth=0)
        holds.axhline(WANTED, color=PALE_INK, linewidth=0.8, linestyle="--")
        for method, (colour, marker) in METHOD_LOOKS.items():
            its = {row.stage: row for row in by_stage if row.method == method}
            places = [place for place, stage in enumerate(stages) if stage in its]
            for axes, values in (
                (holds, [100.0 * row.coverage90 for row in its.values()]),
                (width, [row.width_median for row in its.values()]),
            ):
                axes.plot(places, values, color=colour, marker=marker, markersize=4.0, linewidth=1.1, label=method)
        _finish(holds, "bags that ended within the interval (%)", stages)
        holds.set_ylim(0.0, 100.0)
        _finish(width, "width of the interval / time left", stages)
        width.set_ylim(bottom=0.0)
        figure.legend(*holds.get_legend_handles_labels(), loc="outside upper center", ncols=len(METHOD_LOOKS))
    return figure


def _finish(axes: Axes, label: str, stages: Sequence[str]) -> None:
    axes.set_xticks(range(len(stages)), stages)
    axes.set_xlabel(f"tasks that had ended (bags below {SMALL} tasks included)")
    axes.set_ylabel(label)
    axes.grid(axis="y")


def life(bag: Life) -> Figure:
    """What each task of a bag took, and what was predicted when it started."""
    numbers = range(1, len(bag.seconds) + 1)
    low, median, high, highest = zip(*bag.quantiles, strict=True)
    with _one_panel() as (figure, axes):
        axes.fill_between(
            numbers, low, highest, color=OWN, alpha=BAND, linewidth=0, step="mid", label="quantiles 0.05 to 0.95"
        )
        axes.step(numbers, median, where="mid", color=OWN, linewidth=1.1, label="median")
        axes.step(numbers, high, where="mid", color=OWN, linewidth=0.8, linestyle="--", label="quantile 0.9")
        axes.plot(numbers, bag.seconds, ".", color=INK, markersize=2.0, label="what it took")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(0, len(bag.seconds) + 1)
        axes.set_xlabel(f"tasks of {bag.name}, in the order in which they started")
        axes.set_ylabel("seconds")
        figure.legend(loc="outside upper center", ncols=4)
    return figure


def narrowing(seen: Sequence[ToldEnd], ended: float) -> Figure:
    """When a bag was expected to be done, as told while it ran, and when it was: seconds from its submission."""
    at = [each.at for each in seen]
    with _one_panel() as (figure, axes):
        axes.fill_between(
            at,
            [each.low for each in seen],
            [each.high for each in seen],
            color=OWN,
            alpha=BAND,
            linewidth=0,
            label="expected, nine times in ten",
        )
        axes.plot(at, [each.median for each in seen], color=OWN, linewidth=1.1, label="as likely before as after")
        axes.axhline(ended, color=INK, linewidth=0.8, linestyle="--", label="when it was done")
        axes.set_xlim(0.0, ended)
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("seconds since the bag was submitted")
        axes.set_ylabel("done after (s)")
        figure.legend(loc="outside upper center", ncols=3)
    return figure


@contextmanager
def _one_panel() -> Iterator[tuple[Figure, Axes]]:
    with drawing():
        figure = new_figure(HEIGHT)
        axes = figure.subplots()
        axes.grid()
        yield figure, axes
