"""The keys of the status screen: one table, by which they act and from which the help is made. Pure."""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from rich.text import Text

from deskgrid.screen import bag_rows
from deskgrid.screen.drawing import counted
from deskgrid.screen.listing import END, Listing, chosen, line, move
from deskgrid.screen.questions import cancel_of, drain_of, gate_of
from deskgrid.screen.view import FOLDINGS, SORTS, VIEWS, Kind, Page, PendingOrder, ScreenData, ScreenView
from deskgrid.screen.worker_rows import IDLE, LATE, STEPS
from deskgrid.wire import clean

LISTS = frozenset({"pcs", "bags", "people", "timeline", "events"})
FOLDED = frozenset({"pcs", "timeline"})
CANCELLED = frozenset({"bags", "bag", "task"})
OPENING = LISTS - {"events"} | {"pc", "bag"}
OPENED = frozenset({"pc", "bag", "log", "task", "keys"})
ANYWHERE = OPENED | VIEWS.keys()
DRAINED = frozenset({"pcs", "pc"})
LOGGED = frozenset({"bags", "bag"})

# What terminals send for keys without a letter.
SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "esc",
}
# One key each: a sequence as terminals send them, or a character.
_ONE = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)


def split(typed: str) -> list[str]:
    """The keys in what a terminal sent, by their names; those that no table knows are left out."""
    found = [SEQUENCES.get(key, key) for key in _ONE.findall(typed)]
    return [key for key in found if key.isprintable()]


class Context(NamedTuple):
    """What a key may need: the page as it is drawn, and for how many rows there is room."""

    seen: ScreenData
    listing: Listing
    room: int


class Key(NamedTuple):
    """Keys that do the same. ``shown``: what the help calls them; ``brief``: what they do, for the bottom line;
    ``does``: the same in a sentence; ``where``: on which pages.
    """

    keys: tuple[str, ...]
    shown: str
    brief: str
    does: str
    where: Collection[str]
    act: Callable[[ScreenView, Context], None]


def press(view: ScreenView, key: str, context: Context) -> PendingOrder | None:
    """Do what a key does; returns an order that is to be sent to the broker."""
    view.message = ""
    if view.asking is not None:
        order, view.asking = view.asking, None
        if key in ("y", "Y"):
            return order
        view.message = "nothing was done"
    elif view.typing:
        _type(view, key)
    elif (found := _found(view.page.kind, key)) is not None:
        found.act(view, context)
    return None


def _found(kind: Kind, key: str) -> Key | None:
    return next((each for each in KEYS if key in each.keys and kind in each.where), None)


def _type(view: ScreenView, key: str) -> None:
    """One more letter of the search."""
    page = view.page
    if key == "enter":
        view.typing = False
    elif key == "esc":
        view.typing, page.search = False, ""
    elif key == "backspace":
        page.search = page.search[:-1]
    elif len(key) == 1:
        page.search += key


# --- what keys do ----------------------------------------------------------------------------------------------------


def _mover(to: Callable[[int, int], int]) -> Callable[[ScreenView, Context], None]:
    """``to``: the new row, from the present one and the room."""

    def act(view: ScreenView, context: Context) -> None:
        if view.page.kind == "overview":  # it is always whole; its rows that do not fit are among the PCs
            view.show("pcs")
        else:
            move(view.page, context.listing, context.room, lambda row: to(row, context.room))

    return act


def _viewer(kind: Kind) -> Callable[[ScreenView, Context], None]:
    def act(view: ScreenView, context: Context) -> None:
        view.show(kind)

    return act


def _open(view: ScreenView, context: Context) -> None:
    what, _, name = chosen(view.page, context.listing, context.room).partition(" ")
    if what == "fold":
        view.unfolded ^= {f"fold {name}"}
    elif what == "pc":
        view.open(Page("pc", name))
    elif what == "bag":
        view.open(Page("bag", name))
    elif what == "task":
        bag, _, item = name.rpartition(" ")
        view.open(Page("task", bag, int(item)))
    elif what == "person":
        view.show("bags").search = name


def _back(view: ScreenView, context: Context) -> None:
    if view.page.kind in OPENED:
        view.back()
    else:
        view.page.search = ""


def _log(view: ScreenView, context: Context) -> None:
    if bag_id := _bag_at(view, context):
        view.open(Page("log", bag_id, top=END))


def _bag_at(view: ScreenView, context: Context) -> str:
    """The bag that is open, or chosen; empty if there is none."""
    if view.page.kind != "bags":
        return view.page.name
    what, _, name = chosen(view.page, context.listing, context.room).partition(" ")
    return name if what == "bag" else ""


def _search(view: ScreenView, context: Context) -> None:
    view.typing = True


def _sort(view: ScreenView, context: Context) -> None:
    page = view.page
    page.sort = (page.sort + 1) % len(SORTS[page.kind])


def _fold(view: ScreenView, context: Context) -> None:
    view.folding = FOLDINGS[(FOLDINGS.index(view.folding) + 1) % len(FOLDINGS)]
    view.unfolded.clear()
    view.page.cursor, view.page.row, view.page.top = "", -1, 0


def _cancel(view: ScreenView, context: Context) -> None:
    """Ask whether to cancel the chosen bag, or the bag or the task that is open."""
    page, bag_id = view.page, _bag_at(view, context)
    if not bag_id:
        return
    bag = context.seen.bag(bag_id)
    name = clean(bag_rows.title(bag) if bag is not None else bag_id)
    if page.kind == "task":
        view.asking = PendingOrder(cancel_of(bag_id, page.item), f"cancel task {page.item} of bag {name}")
        return
    left = bag["running"] + bag["waiting"] if bag is not None else 0
    if not left:
        view.message = f"bag {name} has no tasks left to cancel"
    else:
        view.asking = PendingOrder(cancel_of(bag_id), f"cancel bag {name} ({counted(left, 'task')})")


def _pause(view: ScreenView, context: Context) -> None:
    """Ask whether to pause the chosen bag, or to resume it."""
    bag = context.seen.bag(_bag_at(view, context))
    if bag is None:
        return
    name = clean(bag_rows.title(bag))
    if bag_rows.complete(bag):
        view.message = f"bag {name} has ended"
    else:
        what = "resume" if bag["paused"] else "pause"
        view.asking = PendingOrder(gate_of(bag["bag"], paused=bag["paused"]), f"{what} bag {name}")


def _drain(view: ScreenView, context: Context) -> None:
    """Ask whether to drain the PC that is chosen or open, or to undo that."""
    name = view.page.name
    if view.page.kind != "pc":
        kind, _, name = chosen(view.page, context.listing, context.room).partition(" ")
        if kind != "pc":
            return
    worker = next((each for each in context.seen.snapshot["workers"] if each["name"] == name), None)
    if worker is not None:
        drained = worker["drained_by"] is not None
        what = "give work again to" if drained else "drain"
        view.asking = PendingOrder(drain_of(worker["pc"], drained=drained), f"{what} {clean(worker['pc'])}")


def _help(view: ScreenView, context: Context) -> None:
    view.open(Page("keys"))


def _quit(view: ScreenView, context: Context) -> None:
    view.quit = True


KEYS: tuple[Key, ...] = (
    *(
        Key((str(number),), str(number), "", f"Show the view: {name}.", ANYWHERE, _viewer(kind))
        for number, (kind, name) in enumerate(VIEWS.items(), start=1)
    ),
    Key(("enter",), "Enter", "open", "Open the PC, the bag or the task; fold or unfold PCs.", OPENING, _open),
    Key(("esc", "backspace"), "Esc", "back", "Go back.", OPENED, _back),
    Key(("/",), "/", "search", "Show only rows that contain the words you type.", LISTS, _search),
    Key(("esc",), "Esc", "", "End the search.", LISTS, _back),
    Key(("s",), "s", "sort", "Change the sort order. At first, problems are on top.", SORTS, _sort),
    Key(("f",), "f", "fold", "Group PCs by site, by name, or not at all.", FOLDED, _fold),
    Key(("l",), "l", "log", "Follow the output of the bag's tasks, each when it ends.", LOGGED, _log),
    Key(("c",), "c", "cancel", "Cancel the bag or the task, after you confirm.", CANCELLED, _cancel),
    Key(("p",), "p", "pause", "Pause the bag, or resume it, after you confirm.", LOGGED, _pause),
    Key(("d",), "d", "drain", "Drain the PC, or give it work again, after you confirm.", DRAINED, _drain),
    Key(("up", "k"), "↑ k", "", "One row up.", ANYWHERE, _mover(lambda row, room: row - 1)),
    Key(("down", "j"), "↓ j", "", "One row down.", ANYWHERE, _mover(lambda row, room: row + 1)),
    Key(("page up", "b"), "PgUp b", "", "One screen up.", ANYWHERE, _mover(lambda row, room: row - room)),
    Key(("page down", " "), "PgDn space", "", "One screen down.", ANYWHERE, _mover(lambda row, room: row + room)),
    Key(("home", "g"), "Home g", "", "To the first row.", ANYWHERE, _mover(lambda row, room: 0)),
    Key(
        ("end", "G"),
        "End G",
        "",
        "To the last row; in a log, follow new output.",
        ANYWHERE,
        _mover(lambda row, room: END),
    ),
    Key(("?",), "?", "keys", "Show all keys, and the meaning of the signs.", ANYWHERE - {"keys"}, _help),
    Key(("q", "Q"), "q", "quit", "Quit.", ANYWHERE, _quit),
)


def hints(kind: Kind) -> list[Text]:
    """The keys of a page, for its bottom line."""
    found = [each for each in KEYS if each.brief and kind in each.where]
    if kind == "overview":
        return [Text(f"{number} {name}") for number, name in enumerate(VIEWS.values(), 1) if number > 1] + [
            Text(f"{each.shown} {each.brief}") for each in found
        ]
    return [
        Text("↑↓ move" if kind not in ("log", "task", "keys") else "↑↓ scroll"),
        *(Text(f"{each.shown} {each.brief}") for each in found),
    ]


# What the columns of PCs hold beside words; the bars have their legends above them.
SIGNS: tuple[tuple[str, str], ...] = (
    (f"{STEPS[1]} {STEPS[4]} {STEPS[7]}", "A slot's task: how much of its predicted runtime has passed."),
    (LATE, "A slot whose task has run longer than predicted."),
    (IDLE, "An idle slot."),
    ("12/40", "A PC with many slots: how many of them run tasks."),
    ("~2 h", "Time left that the broker expects, but the PC did not announce."),
)


def help_page() -> Listing:
    """All keys, and what the signs of PCs mean."""
    keys = [line(f"{each.shown:12}{each.does}") for each in KEYS]
    signs = [line(f"{sign:12}{meaning}") for sign, meaning in SIGNS]
    return Listing([Text("Keys and signs", "bold")], [*keys, line(""), line("PCs: slots, time left", "bold"), *signs])
