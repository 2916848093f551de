"""The rows of bags on the status screen, and the headings above them. Pure."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from deskgrid.durations import duration
from deskgrid.screen import tables
from deskgrid.screen.drawing import BarPart, Column, bar
from deskgrid.screen.tables import left, right
from deskgrid.wire import clean
from deskgrid.wire.status import BagState, Totals

DONE = BarPart("█", "green", "done")
FAILED = BarPart("×", "bold red", "failed or cancelled")
ONGOING = BarPart("▒", "yellow", "running")
WAITING = BarPart("─", "blue", "waiting")
BAG_PARTS = (DONE, FAILED, ONGOING, WAITING)

# Cells of a bag's id.
BAG_ID = 12


def complete(bag: BagState) -> bool:
    """Whether the bag is closed and all its tasks have ended."""
    return bag["closed"] and bag["running"] + bag["waiting"] == 0


def bag_order(bag: BagState) -> tuple[bool, float]:
    """Return a sort key: bags under way, oldest first, then ended bags, newest first."""
    return (True, bag["age_s"]) if complete(bag) else (False, -bag["age_s"])


def bag_heading(totals: Totals) -> Iterable[Text]:
    """Draw the numbers of bags, and the legend of the bars."""
    yield Text("Bags", "bold")
    if not bag_count(totals):
        yield Text("none yet", "dim")
        return
    yield Text(other_bags(totals, ()))
    yield tables.legend(BAG_PARTS)


def bag_count(totals: Totals) -> int:
    """Return the number of all bags."""
    return totals["bags_under_way"] + totals["bags_ended"]


def other_bags(totals: Totals, shown: Sequence[BagState]) -> str:
    """Describe the bags without a row on the screen in a few words."""
    ended = sum(complete(bag) for bag in shown)
    under_way = totals["bags_under_way"] - (len(shown) - ended)
    return f"{under_way:,} under way, {totals['bags_ended'] - ended:,} ended"


def bag_columns(bags: Sequence[BagState], width: int, *, owners: bool = False) -> list[Column]:
    """The columns of a table of bags. ``owners``: with the owner of each."""
    tallies = max((len(tally(bag)) for bag in bags), default=4)
    failed = max((len(failures(bag).plain) for bag in bags if bag["failed"] or bag["cancelled"]), default=0)
    waiting = max((len(f"{bag['waiting']:,}") for bag in bags), default=0)
    names = tables.name_width((title(bag) for bag in bags), width)
    of = tables.name_width((bag["owner"] for bag in bags), width // 2) if owners else 0
    wide = width >= tables.WIDE
    columns = [
        left(names, "name", lambda bag: clean(title(bag))),
        Column(1, "left", "tasks", bag_bar),
        right(tables.DURATION, "to go", to_go),
        right(max(5, tallies), "done", tally),
        right(failed, "failed", failures),
        left(of, "owner", lambda bag: clean(bag["owner"])),
        left(BAG_ID if width >= tables.MEDIUM else 0, "id", lambda bag: clean(bag["bag"])),
        right(7 if wide else 0, "running", lambda bag: f"{bag['running']:,}"),
        right(max(7, waiting) if wide else 0, "waiting", lambda bag: f"{bag['waiting']:,}"),
    ]
    return tables.filled_up(width, columns, flexible=1)


def bag_bar(bag: BagState, width: int) -> Text:
    """Draw the tasks of a bag as a bar."""
    return tasks_bar(bag["done"], bag["failed"] + bag["cancelled"], bag["running"], bag["waiting"], width)


def tasks_bar(done: int, gone: int, running: int, waiting: int, width: int) -> Text:
    """Draw numbers of tasks as a bar; ``gone``: failed or cancelled."""
    return bar(list(zip((done, gone, running, waiting), BAG_PARTS, strict=True)), width)


def bag_notes(bag: BagState) -> list[Text]:
    """Draw the note of a bag, if it has one."""
    return [Text(f"  {clean(bag['note'])}", "yellow")] if bag["note"] else []


def title(bag: BagState) -> str:
    """The name of a bag, or its id if it has none."""
    return bag["name"] or bag["bag"]


def tally(bag: BagState) -> str:
    """How many tasks of a bag are done, and how many there are."""
    return f"{bag['done']:,}/{bag['total']:,}"


def failures(bag: BagState) -> Text:
    """Draw the numbers of failed and of cancelled tasks, if there are any."""
    said = [f"{bag['failed']:,} failed"] if bag["failed"] else []
    said += [f"{bag['cancelled']:,} cancelled"] if bag["cancelled"] else []
    return Text(", ".join(said), "bold red" if bag["failed"] else "dim")


def to_go(bag: BagState) -> Text:
    """How long a bag still takes."""
    if complete(bag):
        return Text("ended", "green" if not bag["failed"] else "")
    if bag["eta_s"] is None:
        return Text("paused" if bag["paused"] else "unknown", "yellow")
    return Text(duration(bag["eta_s"]))
