"""The paper's Figure 2, makespan by scenario, with our bars beside its own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from deskgrid.sleepbench.pictures.means import Means, Name, Spread, means, of_the_paper, policies_of, scenarios_of
from deskgrid.sleepbench.pictures.style import COLUMN, INK, WIDTH, draw_bars, drawing, looks, new_figure
from deskgrid.sleepbench.scenarios import PAPER_MIN, Row

HEIGHT = 3.2
# The width of a scenario's bars, as a fraction of the distance between scenarios; the width of a bar in its place.
GROUP = 0.84
BAR = 0.92
# The name of a scenario below its bars is wrapped after this many characters.
NAME_MOST = 24
# The strength of the policy's colour in the paper's bars; 0 is white.
PALE = 0.25


@dataclass(frozen=True, slots=True)
class Series:
    """A bar in each scenario that has a value."""

    policy: str
    paper: bool
    values: tuple[Spread | None, ...]

    @property
    def label(self) -> str:
        """The label in the legend."""
        return f"{self.policy}, the paper" if self.paper else self.policy


def figure2(rows: Iterable[Row]) -> Figure:
    """Grouped bars: the makespan of each policy, mean and deviation over its runs, and the paper's figures."""
    drawn = means(rows)
    scenarios, series = scenarios_of(drawn), all_series(drawn)
    with drawing():
        figure = new_figure(HEIGHT, WIDTH if len(scenarios) > 1 else COLUMN)
        axes = figure.add_subplot()
        _draw_bars(axes, series)
        _draw_bounds(axes, drawn, scenarios)
        axes.set_xticks(range(len(scenarios)), [fill(str(scenario), NAME_MOST) for scenario in scenarios])
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.5, len(scenarios) - 0.5)
        axes.set_xlabel("scenario")
        axes.set_ylabel("makespan (minutes)")
        axes.grid(axis="y")
        handles, labels = axes.get_legend_handles_labels()  # lines first; here they come last
        figure.legend(
            handles[1:] + handles[:1],
            labels[1:] + labels[:1],
            loc="outside upper center",
            ncols=4 if len(scenarios) > 1 else 3,
        )
    return figure


def all_series(drawn: Sequence[Means]) -> list[Series]:
    """The paper's and ours side by side for each policy: first the paper's two, then the others as they come."""
    scenarios = scenarios_of(drawn)
    return [
        series
        for policy in dict.fromkeys([*PAPER_MIN, *policies_of(drawn)])
        for series in _of_policy(policy, scenarios, drawn)
        if any(series.values)
    ]


def _of_policy(policy: str, scenarios: Sequence[Name], drawn: Sequence[Means]) -> Iterator[Series]:
    ours = {each.scenario: each.makespan_min for each in drawn if each.policy == policy}
    yield Series(policy, True, tuple(of_the_paper(scenario).get(policy) for scenario in scenarios))
    yield Series(policy, False, tuple(ours.get(scenario) for scenario in scenarios))


def _draw_bars(axes: Axes, all_of_them: Sequence[Series]) -> None:
    colours = {policy: colour for policy, (colour, _) in looks([series.policy for series in all_of_them]).items()}
    step = GROUP / len(all_of_them)
    for place, series in enumerate(all_of_them):
        offset = step * (place - (len(all_of_them) - 1) / 2)
        bars = {at + offset: value for at, value in enumerate(series.values) if value}
        colour = colours[series.policy]
        shade = pale(colour) if series.paper else colour
        draw_bars(axes, series.label, bars, step * BAR, color=shade, edgecolor=colour, linewidth=0.7)


def pale(colour: str) -> tuple[float, ...]:
    """A pale shade of the colour."""
    return tuple(1.0 - PALE * (1.0 - part) for part in to_rgb(colour))


def _draw_bounds(axes: Axes, drawn: Sequence[Means], scenarios: Sequence[Name]) -> None:
    """A line across each group. Groups with the same bound, like the paper's, get what looks like one line."""
    bounds = {each.scenario: each.lower_bound_min for each in drawn}
    places = range(len(scenarios))
    axes.hlines(
        [bounds[scenario] for scenario in scenarios],
        [place - 0.5 for place in places],
        [place + 0.5 for place in places],
        colors=INK,
        linestyles="--",
        linewidth=0.8,
        label="lower bound",
        zorder=3,
    )
