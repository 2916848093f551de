"""The status screen as text: one snapshot in, lines out, for any width and height.

Rules:

1. Pure: the drawing depends only on the arguments.
2. Never more lines than the height, never a line wider than the width. Workers and bags that do not fit are counted:
   "... and 412 more".
3. If possible, rows keep their positions from one snapshot to the next, so that you can watch one row.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import wrap
from typing import Any, Generic, TypeVar

from rich.console import Group
from rich.text import Text

from deskgrid.durations import duration
from deskgrid.screen import bag_rows, tables, worker_rows
from deskgrid.screen.drawing import Column, counted, fitted, flow
from deskgrid.wire import clean
from deskgrid.wire.status import BagState, BrokerFacts, StatusDocument, WorkerState

# The broker is considered away once the snapshot is this old: several later ones are missing. Seconds.
AWAY_S = 3.0

# Lines of trouble besides the usual ones above all.
LONG = 6
# The least heights for headings of two lines, and for blank lines and column names.
TALL = 14
ROOMY = 28

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Section(Generic[Row]):
    """A heading and the items below it in their usual order, as a table; an item is drawn only if it is shown.

    ``count``: how many items there are, including items without a row in the snapshot.
    """

    heading: list[Text]
    items: Sequence[Row]
    count: int
    columns: Sequence[Column]
    details: Callable[[Row], list[Text]]  # lines below an item, if there is room
    interest: Callable[[Row], Any]  # a sort key: if not all items fit, those with the smallest keys are shown
    rest: Callable[[Sequence[Row]], str]  # describes all items except these, in a few words


def render(
    snapshot: StatusDocument, width: int, height: int | None, age_s: float, *, hint: str = "", ascii_only: bool = False
) -> Group:
    """Return the screen for ``snapshot``, which was received ``age_s`` seconds ago.

    ``height`` None: as many lines as necessary. ``hint``: a text for the bottom line, such as the keys.
    ``ascii_only``: for a terminal or a pipe that takes only ASCII.
    """
    away = age_s >= AWAY_S
    lines = _lines(snapshot, width, height)
    if away:
        for line in lines:
            line.stylize("dim")
    lines = _closed(lines, _footer(age_s, away, hint), height)
    return Group(*(fitted(line, width, ascii_only) for line in lines))


def _lines(snapshot: StatusDocument, width: int, height: int | None) -> list[Text]:
    """Draw everything except the footer, for which one of ``height`` lines is kept free."""
    room = 10**6 if height is None else height - 1
    above = 1 + (room >= TALL)
    gap = [Text()] if room >= ROOMY else []
    trouble = _trouble(snapshot["broker"], width)
    whole = sum(map(len, trouble)) if room >= TALL else len(trouble)
    top = flow(_header(snapshot, trouble), width, above + min(whole - len(trouble), LONG))
    bottom = flow(_queues(snapshot), width, 1) + flow(_counters(snapshot), width, 1 + above)
    workers, bags = _workers(snapshot, width, room), _bags(snapshot, width, room)
    room -= len(top) + len(bottom) + 3 * len(gap) + len(workers.heading) + len(bags.heading)
    # Bags may use a third of the lines, or as many as workers leave.
    bag_lines = _within(bags, max(1, room // 3, room - len(workers.items)))
    worker_lines = _within(workers, room - len(bag_lines))
    return [*top, *gap, *workers.heading, *worker_lines, *gap, *bags.heading, *bag_lines, *gap, *bottom]


def _within(section: Section[Row], room: int) -> list[Text]:
    """Draw at most ``room`` lines: all rows before any detail, and a last line that counts rows that do not fit."""
    items = section.items
    if max(len(items), section.count) > room or section.count > len(items):
        order = sorted(items, key=section.interest)[: max(0, room - 1)]
        rest = Text(f"... and {section.count - len(order):,} more: {section.rest(order)}", "dim")
        return ([tables.item_row(item, section.columns) for item in order] + [rest])[: max(0, room)]
    spare = room - len(items)
    lines: list[Text] = []
    for item in items:
        details = section.details(item) if spare else []
        details = details if len(details) <= spare else []
        spare -= len(details)
        lines += [tables.item_row(item, section.columns), *details]
    return lines


def _closed(lines: list[Text], footer: list[Text], height: int | None) -> list[Text]:
    """Return the lines and the footer; if these are too many, the last lines are dropped, but not the footer."""
    if height is None:
        return lines + footer
    return (lines[: max(0, height - len(footer))] + footer)[:height]


# --- what is above and below -----------------------------------------------------------------------------------------


def _header(snapshot: StatusDocument, trouble: Sequence[Sequence[Text]]) -> list[Text]:
    facts = snapshot["broker"]
    return [
        Text(f"deskgrid {clean(facts['address'])}", "bold"),
        *chain.from_iterable(trouble),
        Text(f"{snapshot['throughput']['per_s']:.1f} tasks/s", "bold"),
        Text(f"policy {facts['policy']}"),
        Text(f"up {duration(facts['age_s'])}"),
        Text("encrypted", "green") if facts["encrypted"] else Text("not encrypted", "yellow"),
        Text(counted(facts["clients"], "client")),
        Text(_options(facts), "dim"),
        Text(clean(f"version {facts['version']} on Python {facts['python']}"), "dim"),
    ]


def _trouble(facts: BrokerFacts, width: int) -> list[list[Text]]:
    """Describe trouble that everybody must know about first, each in as many lines as it needs."""
    said = [clean(problem) for problem in facts["problems"]]
    if facts["disk"] != "ok":
        what = "disk full: nothing can be stored" if facts["disk"] == "full" else "disk nearly full"
        said.insert(0, f"{what}, new submissions are refused")
    return [[Text(line, "bold red") for line in wrap(each, max(1, width))] for each in said]


def _options(facts: BrokerFacts) -> str:
    return clean(", ".join(f"{name} {value}" for name, value in facts["options"].items())) or "default options"


def _footer(age_s: float, away: bool, hint: str) -> list[Text]:
    if away:
        return [Text.assemble((f"broker away for {duration(age_s)}, retrying", "bold red"), f"  {hint}")]
    return [Text(hint, "dim")] if hint else []


def _queues(snapshot: StatusDocument) -> Iterable[Text]:
    queues = snapshot["queues"]
    waiting = queues["priority"] + queues["regular"]
    yield Text("Waiting", "bold")
    yield Text(f"first in line {queues['priority']:,}", "yellow" if queues["priority"] else "")
    yield Text(f"behind them {queues['regular']:,}")
    if waiting:
        yield Text(f"longest task {duration(queues['longest_s'])}")


def _counters(snapshot: StatusDocument) -> Iterable[Text]:
    """Show the kills by planned departures first, so that a narrow screen does not cut them off."""
    counters = snapshot["counters"]
    kills = counters["planned_kills"]
    yield Text("Since the broker was started", "bold")
    yield Text(f"killed by a planned departure {kills:,}", "bold red" if kills else "bold green")
    for name in ("departures", "losses", "crashes", "errors", "timeouts"):
        bad = name != "departures" and counters[name]
        yield Text(f"{name} {counters[name]:,}", "yellow" if bad else "")
    yield Text(f"done {counters['done']:,}")
    yield Text(f"attempts {counters['attempts']:,}")
    yield Text(f"wasted {duration(counters['wasted_s'])}")
    yield Text(f"stale answers {counters['stale']:,}")
    yield Text(f"overdue {counters['overdue']:,}")
    if counters["pieces"]:
        yield Text(f"pieces {counters['pieces']:,}")
    if counters["no_room"]:
        yield Text(f"no room {counters['no_room']:,}", "yellow")
    if counters["no_start"]:
        yield Text(f"no start {counters['no_start']:,}", "yellow")
    if counters["copies"]:
        yield Text(f"copies {counters['copies']:,}")


# --- the two sections ------------------------------------------------------------------------------------------------


def _heading(words: Iterable[Text], width: int, room: int, columns: Sequence[Column]) -> list[Text]:
    heading = flow(words, width, 1 + (room >= TALL))
    return [*heading, tables.titles(columns)] if columns and room >= ROOMY else heading


def _workers(snapshot: StatusDocument, width: int, room: int) -> Section[WorkerState]:
    workers = sorted(snapshot["workers"], key=lambda worker: tables.natural(worker["name"]))
    names = {bag["bag"]: bag["name"] for bag in snapshot["bags"]}
    columns = worker_rows.worker_columns(workers, width)
    totals = snapshot["totals"]
    return Section(
        _heading(worker_rows.worker_heading(snapshot), width, room, columns if workers else ()),
        workers,
        worker_rows.worker_count(totals),
        columns,
        details=lambda worker: worker_rows.slot_rows(worker, columns, names),
        interest=worker_rows.interest,
        rest=lambda shown: worker_rows.other_workers(totals, shown),
    )


def _bags(snapshot: StatusDocument, width: int, room: int) -> Section[BagState]:
    bags = sorted(snapshot["bags"], key=bag_rows.bag_order)
    columns = bag_rows.bag_columns(bags, width)
    totals = snapshot["totals"]
    return Section(
        _heading(bag_rows.bag_heading(totals), width, room, columns if bags else ()),
        bags,
        bag_rows.bag_count(totals),
        columns,
        details=bag_rows.bag_notes,
        interest=bag_rows.bag_order,
        rest=lambda shown: bag_rows.other_bags(totals, shown),
    )
