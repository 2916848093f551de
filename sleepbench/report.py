"""Rows of the benchmark as tables: each run on both clocks, the mean of several, the bound, the paper's figure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import fmean, stdev

from rich import box
from rich.table import Table

from sleepbench.scenarios import MINUTE_S, Row

# Makespan and waste are given as they passed, and beside it in the paper's minutes and seconds.
COLUMNS = ("", "makespan", "paper min", "kills", "planned", "wasted s", "paper s", "idle")
CAPTION = (
    "kills: attempts that ran when their PC went; planned: those whose PC went as planned; "
    "idle: the paper's seconds of open windows in which no task ran"
)

Line = tuple[str, ...]


def tables(rows: Iterable[Row], scale: float) -> Iterator[Table]:
    """A table for each scenario and policy, whose runs have to stand together; all were made at ``scale``."""
    for (scenario, policy), runs in groupby(rows, key=lambda row: (row.scenario, row.policy)):
        drawn = Table(
            title=f"Scenario {scenario} under {policy}, every time multiplied by {scale:g}",
            caption=CAPTION,
            box=box.SIMPLE_HEAD,
            padding=(0, 0, 0, 1),
            pad_edge=False,
        )
        for number, name in enumerate(COLUMNS):
            drawn.add_column(name, justify="right" if number else "left", no_wrap=True)
        for line in lines(list(runs), scale):
            drawn.add_row(*line)
        yield drawn


def lines(rows: Sequence[Row], scale: float) -> Iterator[Line]:
    """The cells for some runs of one scenario and policy."""
    for row in rows:
        counted = row.kills, row.planned_kills, row.wasted_s, row.idle_s
        yield f"run {row.run}", *_makespan(row.makespan_min, scale), *_counts(counted, scale, "d")
    if len(rows) > 1:
        means = (
            fmean(row.kills for row in rows),
            fmean(row.planned_kills for row in rows),
            fmean(row.wasted_s for row in rows),
            fmean(row.idle_s for row in rows),
        )
        makespans = [row.makespan_min for row in rows]
        yield "mean", *_makespan(fmean(makespans), scale), *_counts(means, scale, ".1f")
        yield "deviation", *_makespan(stdev(makespans), scale)
    yield "lower bound", *_makespan(rows[0].lower_bound_min, scale)
    if (figure := rows[0].paper_min) is not None:
        yield "the paper", *_makespan(figure, scale)


def _makespan(minutes: float, scale: float) -> Line:
    return clock(minutes * scale), f"{minutes:.2f}"


def _counts(counts: tuple[float, float, float, float], scale: float, form: str) -> Line:
    kills, planned, wasted_s, idle_s = counts
    return f"{kills:{form}}", f"{planned:{form}}", f"{wasted_s * scale:.1f}", f"{wasted_s:.1f}", f"{idle_s:.1f}"


def clock(minutes: float) -> str:
    """Minutes and seconds, ``1:18.3``."""
    tenths = round(minutes * MINUTE_S * 10)
    return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
