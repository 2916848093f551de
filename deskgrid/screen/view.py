"""What you have chosen to see: the page, the cursor, the search, the order of rows, and what is folded. Pure.

Keys change it (`deskgrid.screen.keys`); drawing only reads it (`deskgrid.screen.frame`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from deskgrid.wire.details import EventRow
from deskgrid.wire.status import BagState, StatusDocument

Kind = Literal["overview", "pcs", "bags", "people", "timeline", "events", "pc", "bag", "log", "task", "keys"]
Folding = Literal["nothing", "site", "name"]

# The views, in the order of their keys 1, 2, 3 and so on.
VIEWS: Mapping[Kind, str] = {
    "overview": "overview",
    "pcs": "PCs",
    "bags": "bags",
    "people": "people",
    "timeline": "time line",
    "events": "events",
}
# By what the rows of a view can be sorted; the first is the usual one.
SORTS: Mapping[Kind, tuple[str, ...]] = {
    "pcs": ("trouble", "name", "time left", "busy slots"),
    "timeline": ("trouble", "name", "time left", "busy slots"),
    "bags": ("trouble", "age", "name", "owner", "time to go"),
    "people": ("trouble", "name", "work left", "used"),
    "events": ("newest", "oldest"),
}
FOLDINGS: tuple[Folding, ...] = ("nothing", "site", "name")


class ScreenQuestion(NamedTuple):
    """A question or an order to the broker, with its arguments as (name, value)."""

    what: str
    args: tuple[tuple[str, Any], ...] = ()


def progress_of(bag: str) -> ScreenQuestion:
    """The row of one bag."""
    return ScreenQuestion("progress", (("bag", bag),))


class BrokerAnswer(NamedTuple):
    """An answer of the broker; if it refused, why."""

    answer: dict[str, Any] | None
    error: str = ""


class Happened(NamedTuple):
    """An event, and when it happened by the clock of this machine."""

    at: datetime
    row: EventRow


@dataclass(frozen=True, slots=True)
class ScreenData:
    """All that the broker has told. ``age_s``: of its last answer. ``now``: by the clock of this machine."""

    snapshot: StatusDocument
    bags: Sequence[BagState]
    now: datetime
    events: Sequence[Happened] = ()
    told: Mapping[ScreenQuestion, BrokerAnswer] = field(default_factory=dict)
    age_s: float = 0.0

    def answer(self, question: ScreenQuestion) -> dict[str, Any]:
        """The answer to a question; empty if there is none."""
        return self.told.get(question, BrokerAnswer(None)).answer or {}

    def error(self, question: ScreenQuestion) -> str:
        """Why the broker did not answer a question; empty if it did."""
        return self.told.get(question, BrokerAnswer(None)).error

    def bag(self, bag_id: str) -> BagState | None:
        """The row of a bag, if it is known: as it was asked for by itself, or as it is in the list."""
        own = self.answer(progress_of(bag_id))
        listed = next((bag for bag in self.bags if bag["bag"] == bag_id), None)
        return cast("BagState | None", own or listed)


@dataclass(slots=True)
class Page:
    """A view, or what was opened from it, and where you are in it.

    ``name`` and ``item``: the PC, the bag, or the task that was opened. ``cursor``: the key of the chosen row;
    ``row``: its place when it was last seen, in case it vanishes; -1 before any was chosen. ``top``: the first row on
    the screen.
    """

    kind: Kind
    name: str = ""
    item: int = 0
    cursor: str = ""
    row: int = -1
    top: int = 0
    search: str = ""
    sort: int = 0

    @property
    def order(self) -> str:
        """By what its rows are sorted; empty for a page that cannot be sorted."""
        sorts = SORTS.get(self.kind, ("",))
        return sorts[self.sort % len(sorts)]


class PendingOrder(NamedTuple):
    """An order that waits for your yes, or for the broker. ``text``: what it does, in words."""

    question: ScreenQuestion
    text: str


@dataclass(slots=True)
class ScreenView:
    """All that you have chosen. ``pages``: a view, and above it what was opened from it.

    ``typing``: keys are letters of the search. ``asking``: the order that waits for your yes. ``message``: one line
    about the last key. ``quit``: the screen is to close.
    """

    pages: list[Page] = field(default_factory=lambda: [Page("overview")])
    folding: Folding = "nothing"
    unfolded: set[str] = field(default_factory=set)
    typing: bool = False
    asking: PendingOrder | None = None
    message: str = ""
    quit: bool = False
    left: dict[Kind, Page] = field(default_factory=dict)  # the views that you have left, as they were

    @property
    def page(self) -> Page:
        """What is on the screen."""
        return self.pages[-1]

    def show(self, kind: Kind) -> Page:
        """Go to a view, as you left it."""
        self.left[self.pages[0].kind] = self.pages[0]
        self.pages = [self.left.get(kind) or Page(kind)]
        return self.page

    def open(self, page: Page) -> None:
        """Open something from what is on the screen."""
        self.pages.append(page)

    def back(self) -> None:
        """Close what was opened last."""
        if len(self.pages) > 1:
            self.pages.pop()
