"""The benchmark's rows as tables: each run on both clocks, or one line for many; the bound, the paper's figure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, stdev

from rich.table import Table

from deskgrid.sleepbench.compare import KINDS, TOLERANCE, Comparison, middle
from deskgrid.sleepbench.scenarios import MINUTE_S, Row
from deskgrid.sleepbench.tables import new_table

# Makespan and waste are given in real time, and beside it in the paper's minutes and seconds.
COLUMNS = ("", "makespan", "paper min", "kills", "planned", "wasted s", "paper s", "idle")
CAPTION = (
    "kills: attempts that ran when their PC went; planned: those whose PC went as planned; "
    "idle: the paper's seconds of open windows in which no task ran"
)

Line = tuple[str, ...]


def tables(rows: Iterable[Row], scale: float) -> Iterator[Table]:
    """A table for each scenario and policy, whose rows have to be adjacent; all were measured at ``scale``."""
    for (scenario, policy), runs in groupby(rows, key=lambda row: (row.scenario, row.policy)):
        title = f"Scenario {scenario} under {policy}, every time multiplied by {scale:g}"
        yield new_table(title, COLUMNS, CAPTION, lines(list(runs), scale))


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


# --- simulated -------------------------------------------------------------------------------------------------------

SUMMARY = ("", "makespan", "±", "the paper", "off by", "kills", "wasted s", "idle s")
SUMMARY_CAPTION = (
    "minutes, mean and standard deviation of the runs; off by: from the paper's figure; kills: attempts that ran when "
    "their PC went; idle: open windows in which no task ran"
)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs that one line summarizes. ``title``: of its table; ``name``: of the line."""

    title: str
    name: str
    rows: Sequence[Row]


def summaries(groups: Iterable[RunGroup]) -> Iterator[Table]:
    """A table for each title, with a line per group and the lower bound. Groups of one title have to be adjacent."""
    parts = [(title, list(members)) for title, members in groupby(groups, key=lambda group: group.title)]
    for place, (title, members) in enumerate(parts, start=1):
        caption = SUMMARY_CAPTION if place == len(parts) else None
        yield new_table(title, SUMMARY, caption, [*map(summary, members), *_bounds(members)])


def summary(group: RunGroup) -> Line:
    """The cells for a group."""
    makespans = [row.makespan_min for row in group.rows]
    mean, paper = fmean(makespans), group.rows[0].paper_min
    return (
        group.name,
        f"{mean:.2f}",
        f"{stdev(makespans):.2f}" if len(makespans) > 1 else "",
        f"{paper:.2f}" if paper is not None else "",
        f"{100 * (mean / paper - 1):+.1f} %" if paper is not None else "",
        f"{fmean(row.kills for row in group.rows):,.1f}",
        f"{fmean(row.wasted_s for row in group.rows):,.0f}",
        f"{fmean(row.idle_s for row in group.rows):,.0f}",
    )


def _bounds(groups: Sequence[RunGroup]) -> list[Line]:
    """The line of the lower bound; a mean if the runs have different bounds."""
    return [("lower bound", f"{fmean(row.lower_bound_min for group in groups for row in group.rows):.2f}")]


# --- live beside simulated -------------------------------------------------------------------------------------------

COMPARED = ("", "live", "ideal", "simul.", "off", "agree", "kills", "expected", "agree")
COMPARED_CAPTION = (
    "medians, in the scenario's minutes; ideal: simulated without costs; simul.: with those measured live; off: live "
    f"from that; agree: within {TOLERANCE:.0%}, or (lots) as it might have come with other lots; kills: of any live "
    "run; expected: of any simulated one"
)
COSTS = ("mean / most, ms", "oversleep", "gap", "opening", "late", "submission")
COSTS_CAPTION = (
    "measured live, while tasks waited. oversleep: by how much tasks took longer; gap: from the end of a task to the "
    "start of the next; opening: from when a window should open to the start of its first task; late: the part of that "
    "until the broker knew; submission: until the first task of all started"
)


def compared(comparisons: Sequence[Comparison]) -> Iterator[Table]:
    """Two tables, one of agreement and one of measured costs, with a line per comparison; all have the same scale."""
    title = f"Live and simulated, every time multiplied by {comparisons[0].scale:g}"
    yield new_table(title, COMPARED, COMPARED_CAPTION, map(_compared, comparisons))
    yield new_table("What the grid cost beside the work", COSTS, COSTS_CAPTION, map(_costs, comparisons))


def _compared(one: Comparison) -> Line:
    return (
        f"{one.scenario} {one.policy}",
        f"{middle(one.live):.2f}",
        f"{middle(one.ideal):.2f}",
        f"{middle(one.simulated):.2f}",
        f"{100 * one.off:+.1f}%",
        "yes" if one.close else "lots" if one.makespans_agree else "no",
        _range([row.kills for row in one.live]),
        _range([row.kills for row in one.simulated]),
        "yes" if one.kills_agree else "no",
    )


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least}-{most}"


def _costs(one: Comparison) -> Line:
    submissions = [costs.submission_s for costs in one.costs]
    found = [one.overall(kind) for kind in KINDS.values()]
    pairs = [*((cost.mean, cost.most) for cost in found), (fmean(submissions), max(submissions))]
    return f"{one.scenario} {one.policy}", *(f"{1000 * mean:.1f} / {1000 * most:.0f}" for mean, most in pairs)
