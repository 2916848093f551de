"""The views of all bags, of people, and of events. Pure."""

from dataclasses import dataclass
from functools import partial

from rich.text import Text

from deskgrid.durations import duration
from deskgrid.screen import bag_rows, tables
from deskgrid.screen.drawing import Column, counted
from deskgrid.screen.listing import Listing, ListRow, line, matches
from deskgrid.screen.questions import SHARES
from deskgrid.screen.tables import left, right
from deskgrid.screen.view import Happened, Page, ScreenData, ScreenView
from deskgrid.wire import clean
from deskgrid.wire.status import BagState

# Events that mean trouble, and other events that somebody should look at.
BAD = {"worker-lost", "task-crashed", "worker-quarantined", "disk-full"}
ODD = {
    "pc-missing",
    "worker-silent",
    "worker-has-no-room",
    "worker-fails-bag",
    "worker-starts-nothing",
    "worker-not-answering",
    "refused",
    "enrolment-refused",
    "disk-low",
    "home-file-wrong",
    "home-file-doubtful",
    "files-wait",
}

# --- bags ------------------------------------------------------------------------------------------------------------


def trouble(bag: BagState) -> int:
    """How much a bag needs somebody's attention; 0: most."""
    if bag_rows.complete(bag):
        return 4 if not bag["failed"] else 3
    if bag["failed"] or bag["note"]:
        return 0
    return 1 if bag["eta_s"] is None else 2


def bags(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """The view of bags."""
    found = _chosen(view.page, seen)
    columns = bag_rows.bag_columns(found, width, owners=True)
    entries = [ListRow(f"bag {bag['bag']}", partial(tables.item_row, bag, columns)) for bag in found]
    totals = seen.snapshot["totals"]
    missing = bag_rows.bag_count(totals) - len(seen.bags)
    if missing > 0:
        entries.append(line(f"... and {counted(missing, 'bag')} more: {bag_rows.other_bags(totals, seen.bags)}", "dim"))
    return Listing(
        [*bag_rows.bag_heading(totals)],
        _or_none_yet(entries, view.page),
        [tables.titles(columns)],
    )


def _or_none_yet(entries: list[ListRow], page: Page) -> list[ListRow]:
    """Say that there are no rows yet, unless it is the search that hides them: the line below the rows says that."""
    return entries if entries or page.search else [line("none yet", "dim")]


def _chosen(page: Page, seen: ScreenData) -> list[BagState]:
    """The bags that match the search, sorted as you asked."""
    found = [bag for bag in seen.bags if not page.search or matches(page.search, *_texts(bag))]
    found.sort(key=bag_rows.bag_order)
    order = page.order
    if order == "trouble":
        found.sort(key=trouble)
    elif order == "name":
        found.sort(key=lambda bag: tables.natural(bag_rows.title(bag)))
    elif order == "owner":
        found.sort(key=lambda bag: tables.natural(bag["owner"]))
    elif order == "time to go":
        found.sort(key=lambda bag: (bag_rows.complete(bag), bag["eta_s"] is None, bag["eta_s"] or 0.0))
    return found


def _texts(bag: BagState) -> tuple[str, ...]:
    state = "ended" if bag_rows.complete(bag) else "under way"
    return bag["name"], bag["bag"], bag["owner"], bag["note"], state, bag_rows.failures(bag).plain


# --- people ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OwnerRow:
    """All bags of one owner, and the share of the grid that they have. ``used_s``: what all keys of it have used."""

    name: str
    share: str = ""
    weight: float | None = None
    used_s: float = 0.0
    under_way: int = 0
    ended: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    running: int = 0
    waiting: int = 0
    left_s: float = 0.0

    def add(self, bag: BagState) -> None:
        """Count one bag."""
        self.ended += bag_rows.complete(bag)
        self.under_way += not bag_rows.complete(bag)
        self.done += bag["done"]
        self.failed += bag["failed"]
        self.cancelled += bag["cancelled"]
        self.running += bag["running"]
        self.waiting += bag["waiting"]
        self.left_s += bag["left_s"]


def people(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """The view of people: totals by the owner of bags, and their shares."""
    found = _people(view.page, seen)
    known = any(person.weight is not None for person in found)
    # Only where keys have a share together, it is not called like its owner.
    others = [person.share for person in found if person.share not in ("", person.name)]

    def digits(least: int, field: str) -> int:
        return max([least, *(len(f"{getattr(person, field):,}") for person in found)])

    columns = [
        left(tables.name_width((person.name for person in found), width), "owner", lambda person: clean(person.name)),
        Column(1, "left", "tasks", _bar),
        right(digits(4, "under_way"), "bags", lambda person: f"{person.under_way:,}"),
        left(max(5, tables.name_width(others, width)) if others else 0, "share", lambda person: clean(person.share)),
        right(6 * known, "weight", lambda person: "" if person.weight is None else f"{person.weight:g}"),
        right(tables.DURATION * known, "used", lambda person: _time(person.used_s)),
        right(7, "running", lambda person: f"{person.running:,}"),
        right(digits(7, "waiting"), "waiting", lambda person: f"{person.waiting:,}"),
        right(digits(6, "failed"), "failed", _failed),
        right(tables.DURATION, "work left", lambda person: _time(person.left_s)),
        right(digits(5, "done"), "done", lambda person: f"{person.done:,}"),
        right(6, "ended", lambda person: f"{person.ended:,}"),
    ]
    columns = tables.filled_up(width, columns, flexible=1)
    entries = [ListRow(f"person {person.name}", partial(tables.item_row, person, columns)) for person in found]
    heading = [Text("People", "bold"), Text(counted(len(found), "owner")), tables.legend(bag_rows.BAG_PARTS)]
    return Listing(heading, entries or [line("no bags yet", "dim")], [tables.titles(columns)])


def _people(page: Page, seen: ScreenData) -> list[OwnerRow]:
    totals: dict[str, OwnerRow] = {}
    for bag in seen.bags:
        totals.setdefault(bag["owner"], OwnerRow(bag["owner"])).add(bag)
    for share in seen.answer(SHARES).get("shares", ()):
        for key in share["keys"]:
            person = totals.setdefault(key, OwnerRow(key))
            person.share, person.weight, person.used_s = share["share"], share["weight"], share["used_s"]
    found = [person for person in totals.values() if not page.search or matches(page.search, person.name)]
    found.sort(key=lambda person: tables.natural(person.name))
    if page.order == "trouble":
        found.sort(key=lambda person: (not person.failed, not person.under_way))
    elif page.order == "used":
        found.sort(key=lambda person: -person.used_s)
    elif page.order == "work left":
        found.sort(key=lambda person: -person.left_s)
    return found


def _bar(person: OwnerRow, width: int) -> Text:
    gone = person.failed + person.cancelled
    return bag_rows.tasks_bar(person.done, gone, person.running, person.waiting, width)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else ""


def _failed(person: OwnerRow) -> Text:
    return Text(f"{person.failed:,}", "bold red" if person.failed else "")


# --- events ----------------------------------------------------------------------------------------------------------


def events(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """The view of events."""
    search = view.page.search
    found = [each for each in seen.events if not search or matches(search, said_of(each))]
    if view.page.order == "newest":
        found.reverse()
    heading = [Text("Events", "bold"), Text(f"{len(found):,}"), Text("since the broker was started", "dim")]
    entries = [ListRow(f"event {each.row['number']}", partial(event_row, each)) for each in found]
    return Listing(heading, _or_none_yet(entries, view.page))


def event_row(happened: Happened) -> Text:
    """One event: when, what, and of whom."""
    what = happened.row["event"]
    style = "bold red" if what in BAD else "yellow" if what in ODD else ""
    text = Text(f"{happened.at:%a %H:%M:%S}  ", "dim")
    return text.append(clean(said_of(happened)), style)


def said_of(happened: Happened) -> str:
    """An event in words: "worker lost  lab3-07  silent 15 s"."""
    what, facts = happened.row["event"], dict(happened.row["facts"])
    name = facts.pop("name", "")
    rest = ", ".join(_fact(key, value) for key, value in facts.items() if value)
    return "  ".join(filter(None, [f"{what.replace('-', ' '):18}", name, rest]))


def _fact(key: str, value: str) -> str:
    """A fact in words; one that is seconds, as a duration."""
    label = key.removesuffix("_s").replace("_", " ")
    try:
        seconds = float(value) if key.endswith("_s") or key == "uptime" else None
    except ValueError:
        seconds = None
    return f"{label} {value if seconds is None else duration(seconds)}"
