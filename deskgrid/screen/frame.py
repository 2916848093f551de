"""Draws the whole screen: the views, the page that is open with its cursor, and the keys. Pure."""

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group
from rich.text import Text

from deskgrid.durations import duration
from deskgrid.screen import opened, pcs, work
from deskgrid.screen.drawing import fitted, flow
from deskgrid.screen.keys import FOLDED, help_page, hints
from deskgrid.screen.listing import Listing, Position, position
from deskgrid.screen.questions import STATUS
from deskgrid.screen.screen import AWAY_S, TALL, render
from deskgrid.screen.view import VIEWS, Kind, ScreenData, ScreenView

# The least terminal. Cells and lines.
NARROWEST = 40
LOWEST = 8
# Left of each row, the cursor or a blank; and the cells that they take.
CURSOR, BLANK = "> ", "  "
MARK = len(CURSOR)


# What makes the rows of each page; the overview has none, because it is always whole.
_PAGES: Mapping[Kind, Callable[[ScreenView, ScreenData, int], Listing]] = {
    "overview": lambda view, seen, width: Listing([], []),
    "pcs": pcs.listing,
    "bags": work.bags,
    "people": work.people,
    "timeline": pcs.timeline,
    "events": work.events,
    "pc": opened.pc,
    "bag": opened.bag,
    "log": opened.log,
    "task": opened.task,
    "keys": lambda view, seen, width: help_page(),
}


def listing(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """The rows of the page that is open."""
    return _PAGES[view.page.kind](view, seen, max(1, width - MARK))


def room_for(rows: Listing, width: int, height: int) -> int:
    """For how many rows there is room."""
    return max(1, height - len(_top(rows, width, height)) - 3)


def draw(
    view: ScreenView, seen: ScreenData, rows: Listing, width: int, height: int, *, ascii_only: bool = False
) -> Group:
    """The screen. ``rows``: the `listing` of the page. ``ascii_only``: for a terminal that takes only ASCII."""
    if width < NARROWEST or height < LOWEST:
        said = f"{width}x{height} is too small: {NARROWEST}x{LOWEST} is the least"
        return Group(fitted(Text(said), width, ascii_only))
    if view.page.kind == "overview":
        hint = view.message or seen.error(STATUS) or Text("  ").join(hints("overview")).plain
        return render(seen.snapshot, width, height, seen.age_s, hint=hint, ascii_only=ascii_only)
    at = position(view.page, rows, room_for(rows, width, height))
    lines = [_views(view), *_top(rows, width, height), *_rows(rows, at, room_for(rows, width, height))]
    if seen.age_s >= AWAY_S:
        for each in lines:
            each.stylize("dim")
    lines += [Text()] * (height - 2 - len(lines))
    lines += [_said(view, seen, rows, at, room_for(rows, width, height)), _keys(view, width)]
    return Group(*(fitted(each, width, ascii_only) for each in lines[:height]))


def _views(view: ScreenView) -> Text:
    """The views by their keys; the one that you are in, or came from, is in brackets."""
    line = Text()
    for number, (kind, name) in enumerate(VIEWS.items(), start=1):
        here = kind == view.pages[0].kind
        line.append(f"[{number} {name}]" if here else f" {number} {name} ", "bold reverse" if here else "dim")
    return line


def _top(rows: Listing, width: int, height: int) -> list[Text]:
    lines = flow(rows.heading, width, 1 + (height >= TALL))
    return lines + [Text(BLANK).append_text(title) for title in rows.titles]


def _rows(rows: Listing, at: Position, room: int) -> list[Text]:
    lines = []
    for place, entry in enumerate(rows.entries[at.top : at.top + room], start=at.top):
        line = Text(CURSOR if place == at.row else BLANK).append_text(entry.draw())
        if place == at.row:
            line.stylize("bold reverse")
        lines.append(line)
    return lines


def _said(view: ScreenView, seen: ScreenData, rows: Listing, at: Position, room: int) -> Text:
    """One line: what is asked of you, what is wrong, what the last key did, or what the rows are."""
    if view.asking is not None:
        return Text(f"{view.asking.text}? y/n", "bold yellow")
    if view.typing:
        return Text(f"search: {view.page.search}_", "bold")
    if seen.age_s >= AWAY_S:
        return Text(f"broker away for {duration(seen.age_s)}, retrying", "bold red")
    if trouble := view.message or seen.error(STATUS):
        return Text(trouble, "yellow")
    return Text(", ".join(_about(view, rows, at, room)), "dim")


def _about(view: ScreenView, rows: Listing, at: Position, room: int) -> Sequence[str]:
    page, count = view.page, len(rows.entries)
    said = [f"{at.top + 1}-{min(count, at.top + room)} of {count:,}"] if count else ["nothing here"]
    if page.order:
        said.append(f"sorted by {page.order}" if page.kind != "events" else f"{page.order} first")
    if page.kind in FOLDED and view.folding != "nothing":
        said.append(f"folded by {view.folding}")
    if page.search:
        said.append(f'only with "{page.search}" (Esc shows all)')
    return said


def _keys(view: ScreenView, width: int) -> Text:
    (line,) = flow(hints(view.page.kind), width, 1)
    line.stylize("dim")
    return line
