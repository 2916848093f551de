"""Pages as lists of rows: which are there, in which order, folded or not, and which of them are on the screen. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.text import Text

from deskgrid.screen.tables import natural
from deskgrid.screen.view import Folding, Page
from deskgrid.wire import clean
from deskgrid.wire.status import WorkerState

# Stands for the last row: a page that is scrolled there follows what is added.
END = 10**9


class ListRow(NamedTuple):
    """One row. ``key``: what it is about, such as "pc NAME"; empty for plain text, on which no key does anything."""

    key: str
    draw: Callable[[], Text]


@dataclass(frozen=True, slots=True)
class Listing:
    """A page: words about it, lines that stay above its rows, such as the names of columns, and its rows."""

    heading: Sequence[Text]
    entries: Sequence[ListRow]
    titles: Sequence[Text] = ()

    @property
    def is_text(self) -> bool:
        """Whether no row can be chosen: then keys scroll the page instead of moving the cursor."""
        return not any(entry.key for entry in self.entries)


def line(text: Text | str, style: str = "", key: str = "") -> ListRow:
    """A row that is drawn already."""
    drawn = Text(clean(text), style) if isinstance(text, str) else text
    return ListRow(key, drawn.copy)


class Position(NamedTuple):
    """``row``: the chosen row; -1 if none is. ``top``: the first row on the screen."""

    row: int
    top: int


def position(page: Page, listing: Listing, room: int) -> Position:
    """Where the cursor is, and what is on a screen with room for so many rows: the cursor stays on its row."""
    count = len(listing.entries)
    last_top = max(0, count - room)
    if listing.is_text:
        return Position(-1, min(page.top, last_top))
    row = min(page.row, count - 1)
    if row < 0:
        row = next(place for place, entry in enumerate(listing.entries) if entry.key)
        row = row if row < room else 0
    if page.cursor and listing.entries[row].key != page.cursor:
        row = next((place for place, entry in enumerate(listing.entries) if entry.key == page.cursor), row)
    top = max(row - room + 1, min(page.top, row, last_top))
    return Position(row, top)


def move(page: Page, listing: Listing, room: int, to: Callable[[int], int]) -> None:
    """Move the cursor, or scroll a text; ``to``: the new row or top, from the present one."""
    now, last = position(page, listing, room), len(listing.entries) - 1
    if listing.is_text:
        page.top = max(0, to(now.top))
        return
    page.row = max(0, min(last, to(now.row)))
    page.cursor = listing.entries[page.row].key
    page.top = now.top
    page.top = position(page, listing, room).top


def chosen(page: Page, listing: Listing, room: int) -> str:
    """The key of the chosen row; empty if there is none."""
    row = position(page, listing, room).row
    return listing.entries[row].key if 0 <= row < len(listing.entries) else ""


def matches(search: str, *texts: str) -> bool:
    """Whether each word of the search is in one of the texts, whatever their case."""
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in search.casefold().split())


# --- folding ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Fold:
    """PCs that share one summary line."""

    name: str
    workers: list[WorkerState] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The key of its summary line."""
        return f"fold {self.name}"


def folds(workers: Iterable[WorkerState], by: Folding) -> list[Fold]:
    """Gather PCs by their sites, or by the pattern of their names, in the order of the first of each."""
    found: dict[str, Fold] = {}
    for worker in workers:
        name = (worker["site"] or "(no site)") if by == "site" else pattern(worker["name"])
        found.setdefault(name, Fold(name)).workers.append(worker)
    return list(found.values())


def pattern(name: str) -> str:
    """The name without its last number: ``lab3-*`` for ``lab3-07``."""
    return re.sub(r"\d+(\D*)$", r"*\1", name)


def by_name(fold: Fold) -> tuple[tuple[int, str], ...]:
    """A sort key."""
    return natural(fold.name)
