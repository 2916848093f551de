"""Makespans as bars on a terminal, below the table, if no file was asked for.

Rule 1: the chart is as wide as the console. Names and figures take the width they need, the bars the rest.
Rule 2: a bar starts at 0, and all bars have the same scale. The lower bound and the paper's figure are marks on it. If
both fall on the same place, the paper's is shown, because the bound is the same in all bars of a scenario.
Rule 3: on a terminal that cannot show more, everything is ASCII.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from deskgrid.sleepbench.pictures.means import Means, called, means, of_the_paper, policies_of, scenarios_of
from deskgrid.sleepbench.scenarios import Row

# The least and the most columns for the bars, however narrow or wide the terminal is. Longer bars are hard to compare.
BARS_LEAST = 10
BARS_MOST = 100

# Longer names of scenarios are cut.
NAME_MOST = 28

COLOURS: Mapping[str, str] = {"pgs": "blue", "fcfs": "red", "packing": "green"}
SPARE = ("magenta", "yellow", "cyan")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a bar: a whole cell; parts of a cell, from small to large; the marks; the cut of a name."""

    full: str
    parts: str
    bound: str
    paper: str
    cut: str


BLOCKS = Glyphs("█", "▏▎▍▌▋▊▉", "│", "◆", "…")
ASCII = Glyphs("=", "", "|", "*", "~")


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of ``rows`` for `rich`: a group for each scenario, with a bar for each policy."""

    rows: Sequence[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, as wide as the console allows."""
        plain = options.ascii_only or options.legacy_windows
        yield from chart_lines(means(self.rows), options.max_width, ASCII if plain else BLOCKS)


def chart_lines(drawn: Sequence[Means], width: int, glyphs: Glyphs) -> Iterator[Text]:
    """The legend, and a line for each bar. No line is wider than ``width``, unless that is very narrow."""
    names = {each.scenario: _short(called(each.scenario), glyphs) for each in drawn}
    first, second = _widest(names.values()) + 2, _widest(policies_of(drawn)) + 2
    figures = [f"{each.makespan_min.mean:.2f}" for each in drawn]
    bars = min(max(width - first - second - 1 - _widest(figures), BARS_LEAST), BARS_MOST)
    per_minute = bars / max(_ends(drawn))
    colours = _colours(policies_of(drawn))
    yield _legend(glyphs, any(of_the_paper(scenario) for scenario in scenarios_of(drawn)))
    before = None
    for each, figure in zip(drawn, figures, strict=True):
        line = Text(names[each.scenario].ljust(first) if each.scenario != before else " " * first, no_wrap=True)
        line.append(each.policy.ljust(second), style=colours[each.policy])
        line.append_text(_bar(each, per_minute, bars, glyphs, colours[each.policy]))
        yield line.append(f" {figure:>{_widest(figures)}}")
        before = each.scenario


def _short(name: str, glyphs: Glyphs) -> str:
    return name if len(name) <= NAME_MOST else name[: NAME_MOST - 1] + glyphs.cut


def _widest(words: Iterable[str]) -> int:
    return max(map(len, words))


def _ends(drawn: Iterable[Means]) -> Iterator[float]:
    """How far the bars and marks of the chart reach, in minutes."""
    for each in drawn:
        yield max(each.makespan_min.mean, each.lower_bound_min)
        if (paper := of_the_paper(each.scenario).get(each.policy)) is not None:
            yield paper.mean


def _colours(policies: Sequence[str]) -> dict[str, str]:
    others = [policy for policy in policies if policy not in COLOURS]
    return {**COLOURS, **{policy: SPARE[place % len(SPARE)] for place, policy in enumerate(others)}}


def _legend(glyphs: Glyphs, paper: bool) -> Text:
    text = f"makespan, minutes   {glyphs.bound} lower bound"
    return Text(f"{text}   {glyphs.paper} the paper's" if paper else text, no_wrap=True, overflow="ellipsis")


def _bar(each: Means, per_minute: float, width: int, glyphs: Glyphs, colour: str) -> Text:
    bar = Text(bar_of(each.makespan_min.mean * per_minute, glyphs).ljust(width), style=colour)
    marks = [(each.lower_bound_min, glyphs.bound)]
    if (paper := of_the_paper(each.scenario).get(each.policy)) is not None:
        marks.append((paper.mean, glyphs.paper))
    for minutes, mark in marks:
        place = min(int(minutes * per_minute), width - 1)
        bar = bar[:place] + Text(mark, style="bold") + bar[place + 1 :]
    return bar


def bar_of(cells: float, glyphs: Glyphs) -> str:
    """A bar of this many cells, rounded to the smallest part of a cell that can be shown."""
    steps = len(glyphs.parts) + 1
    whole, part = divmod(round(cells * steps), steps)
    return glyphs.full * whole + (glyphs.parts[part - 1] if part else "")
