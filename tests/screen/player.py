"""Plays keys on a status screen without a terminal, and reads what is on it."""

from io import StringIO

from rich.console import Console

from deskgrid.screen.frame import draw, listing, room_for
from deskgrid.screen.keys import Context, press, split
from deskgrid.screen.listing import position
from deskgrid.screen.view import PendingOrder, ScreenData, ScreenView


class Player:
    """A screen of this size, and somebody at its keys. ``orders``: those that were sent to the broker."""

    def __init__(self, seen: ScreenData, width: int = 80, height: int = 24) -> None:
        self.view = ScreenView()
        self.seen = seen
        self.width, self.height = width, height
        self.orders: list[PendingOrder] = []

    def type(self, *typed: str) -> "Player":
        """Press keys, as a terminal sends them."""
        for key in (key for some in typed for key in split(some)):
            rows = listing(self.view, self.seen, self.width)
            context = Context(self.seen, rows, room_for(rows, self.width, self.height))
            if (order := press(self.view, key, context)) is not None:
                self.orders.append(order)
        return self

    def lines(self, *, ascii_only: bool = False) -> list[str]:
        """The screen as text; fails if a line is too wide, or there are too many."""
        rows = listing(self.view, self.seen, self.width)
        drawn = draw(self.view, self.seen, rows, self.width, self.height, ascii_only=ascii_only)
        console = Console(width=self.width, record=True, file=StringIO())
        console.print(drawn)
        text = console.export_text().split("\n")[:-1]
        assert len(text) == len(drawn.renderables), "a line was wrapped"
        assert len(text) <= self.height
        return text

    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self.lines())

    @property
    def row(self) -> str:
        """The key of the row with the cursor."""
        rows = listing(self.view, self.seen, self.width)
        return rows.entries[position(self.view.page, rows, room_for(rows, self.width, self.height)).row].key

    @property
    def rows(self) -> list[str]:
        """The keys of all rows."""
        return [entry.key for entry in listing(self.view, self.seen, self.width).entries]

    def line_with(self, text: str) -> str:
        """The one line that holds ``text``."""
        (found,) = [line for line in self.lines() if text in line]
        return found
