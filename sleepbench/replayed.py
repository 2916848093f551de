"""A replay as tables: the real outcome beside that of each policy, for the whole journal and then bag by bag.

And how well the broker's own estimates held: when bags would end, as it told, against when they ended.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, median

from rich.table import Table

from deskgrid.broker.store.rows import ToldEtaRow
from deskgrid.scheduler.forecast.correction import STAGES, stage_of
from deskgrid.screen.drawing import counted
from deskgrid.sleepbench.history import History
from deskgrid.sleepbench.replay import Played, Replay
from deskgrid.sleepbench.scenarios import MINUTE_S
from deskgrid.sleepbench.tables import new_table
from deskgrid.wire import clean

# The stages of a bag, by the percentage of its tasks that had ended.
_EDGES = [0, *(round(100 * edge) for edge in STAGES), 100]
HEADINGS = ("", "makespan", "mean turnaround", "kills", "planned", "wasted s", "idle s")
# How many bags, the last ones of the journal, are listed one by one; the JSON has all.
BAGS_SHOWN = 40
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class HeldRow:
    """The estimates at one stage. The JSON has exactly these fields, which mean the same as those of sleepbench eta.

    ``stage``: which percentage of the tasks had ended; ``etas``: how many estimates of how many ``bags``.
    ``coverage90``: each bag counts alike. ``width_median``: None if most intervals had no end.
    """

    stage: str
    etas: int
    bags: int
    coverage90: float
    width_median: float | None
    point_error_median: float


def held(history: History) -> Iterator[HeldRow]:
    """A row for each stage with estimates. Bags that never ended, or of which tasks were cancelled, do not count."""
    ends = _ends(history)
    by_stage: defaultdict[int, list[ToldEtaRow]] = defaultdict(list)
    for each in history.etas:
        if each.bag in ends and each.made < ends[each.bag]:
            by_stage[stage_of(each.ended)].append(each)
    for stage, told in sorted(by_stage.items()):
        yield _row(f"{_EDGES[stage]} to {_EDGES[stage + 1]} %", told, ends)


def _ends(history: History) -> dict[int, float]:
    """When each bag ended that did, POSIX seconds."""
    found: dict[int, float] = {}
    for batch in history.batches:
        if not batch.bag.cancelled and not batch.bag.open:
            ended = [task.ended for task in batch.tasks if task.ended is not None]
            found[batch.bag.number] = max([found.get(batch.bag.number, 0.0), *ended])
    return found


def _row(stage: str, told: list[ToldEtaRow], ends: dict[int, float]) -> HeldRow:
    covered: defaultdict[int, list[bool]] = defaultdict(list)
    for each in told:
        covered[each.bag].append(each.low <= ends[each.bag] <= each.high)
    left = [ends[each.bag] - each.made for each in told]
    width = median((each.high - each.low) / seconds for each, seconds in zip(told, left, strict=True))
    return HeldRow(
        stage,
        len(told),
        len(covered),
        sum(sum(its) / len(its) for its in covered.values()) / len(covered),
        width if isfinite(width) else None,
        median(abs(each.median - ends[each.bag]) / seconds for each, seconds in zip(told, left, strict=True)),
    )


def tables(past: Replay, played: Sequence[Played]) -> Iterator[Table]:
    """The table of the whole journal, and the table of its bags."""
    title = (
        f"{counted(past.tasks, 'task')} of {counted(len(past.bags), 'bag')}, {clock(past.work_s)} of work, "
        f"on {counted(len(past.pcs), 'PC')}"
    )
    caption = "kills: attempts that ran when their PC went; planned: those whose PC went as planned"
    yield new_table(title, HEADINGS, caption, [*map(_cells, played), ("lower bound", clock(past.lower_bound_s))])
    shown = list(past.bags.items())[-BAGS_SHOWN:]
    left = len(past.bags) - len(shown)
    bags = new_table("Turnaround of each bag", ("bag", "name", *(one.policy for one in played)), _left_out(left))
    for number, bag in shown:
        turnarounds = (one.turnarounds_s.get(number) for one in played)
        bags.add_row(bag.id, clean(bag.name), *(NOTHING if s is None else clock(s) for s in turnarounds))
    yield bags


def held_table(told: Sequence[HeldRow]) -> Iterator[Table]:
    """The table of the broker's own estimates, if there are any."""
    if not told:
        return
    caption = "held: bags that ended within the 90 % interval; width and error: to the time that was left, medians"
    headings = ("tasks ended", "etas", "bags", "held", "width", "error")
    drawn = new_table("Its own estimates of when bags end", headings, caption)
    for row in told:
        width = NOTHING if row.width_median is None else f"{row.width_median:.2f}"
        error = f"{row.point_error_median:.2f}"
        drawn.add_row(row.stage, f"{row.etas:,}", f"{row.bags:,}", f"{row.coverage90:.1%}", width, error)
    yield drawn


def _cells(one: Played) -> tuple[str, ...]:
    if one.row is None:
        return (one.policy, NOTHING)
    row = one.row
    return (
        one.policy,
        clock(row.makespan_min * MINUTE_S),
        clock(fmean(one.turnarounds_s.values())),
        f"{row.kills:,}",
        f"{row.planned_kills:,}",
        f"{row.wasted_s:,.1f}",
        f"{row.idle_s:,.0f}",
    )


def _left_out(number: int) -> str:
    return f"and {counted(number, 'earlier bag')}" if number else ""


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: ``0:41.3``, ``26:04:10``."""
    if seconds < 3600 - 0.05:
        tenths = round(seconds * 10)
        return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
