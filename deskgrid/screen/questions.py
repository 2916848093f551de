"""What the screen has to ask for what it shows, and how often. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from deskgrid.screen import bag_rows
from deskgrid.screen.view import Page, ScreenData, ScreenQuestion, ScreenView, progress_of
from deskgrid.wire.status import BagState

# Seconds between two drawings, and between two questions: often enough to seem live, rarely enough to be read.
TICK_S = 0.5
# What the broker may spend on the rows of one screen: in a large grid they are asked for less often. Rows a second.
ROWS_PER_S = 400
# Seconds between two questions about what was opened.
DETAIL_S = 1.0

# The states of tasks that are asked for, those in trouble first; each with how many tasks of a bag may be in it. Tasks
# that were handed out ahead of need count as waiting, and are listed with those that run.
GROUPS: Mapping[str, Callable[[BagState], int]] = {
    "failed": lambda bag: bag["failed"],
    "running": lambda bag: bag["running"] + bag["waiting"],
    "waiting": lambda bag: bag["waiting"],
    "cancelled": lambda bag: bag["cancelled"],
    "done": lambda bag: bag["done"],
}

STATUS = ScreenQuestion("status")
GRID = ScreenQuestion("status", (("rows", False),))
BAGS = ScreenQuestion("bags")  # all of them: the status has the first only
EVENTS = ScreenQuestion("events")
PLAN = ScreenQuestion("plan")
SHARES = ScreenQuestion("shares")
OUTPUT = "output"
# Orders, which may take longer than questions.
ORDERED = ("cancel", "pause", "resume", "drain", "drain undo")


class WantedAnswer(NamedTuple):
    """A question that is asked again and again."""

    question: ScreenQuestion
    every_s: float


def wanted(view: ScreenView, seen: ScreenData) -> list[WantedAnswer]:
    """The questions for what is on the screen."""
    snapshot, page = seen.snapshot, view.page
    bags = bag_rows.bag_count(snapshot["totals"])
    all_bags = view.pages[0].kind in ("bags", "people") and bags > len(snapshot["bags"])
    rows = len(snapshot["workers"]) + len(snapshot["bags"]) + all_bags * bags
    rows_s = max(TICK_S, rows / ROWS_PER_S)
    questions = [WantedAnswer(STATUS, rows_s)]
    if rows_s > TICK_S:
        questions.append(WantedAnswer(GRID, TICK_S))
    if all_bags:
        questions.append(WantedAnswer(BAGS, rows_s))
    if page.kind == "timeline":
        questions.append(WantedAnswer(PLAN, rows_s))
    if page.kind == "people":
        questions.append(WantedAnswer(SHARES, max(DETAIL_S, rows_s)))
    if page.kind in ("events", "pc"):
        questions.append(WantedAnswer(EVENTS, TICK_S))
    return questions + [WantedAnswer(question, DETAIL_S) for question in _details(page, seen)]


def _details(page: Page, seen: ScreenData) -> Iterable[ScreenQuestion]:
    if page.kind == "pc":
        yield worker_of(page.name)
    elif page.kind == "log":
        yield output_of(page.name)
    elif page.kind == "task":
        yield explain_of(page.name, page.item)
        yield logs_of(page.name, page.item)
    elif page.kind == "bag" and (bag := seen.bag(page.name)) is not None:
        yield progress_of(page.name)
        if bag["waiting"]:
            yield explain_of(page.name)
        for group, count in GROUPS.items():
            if count(bag):
                yield tasks_of(page.name, group)


def worker_of(name: str) -> ScreenQuestion:
    """A PC with all its slots."""
    return ScreenQuestion("worker", (("name", name),))


def explain_of(bag: str, item: int | None = None) -> ScreenQuestion:
    """Why a task waits, or where it is; without an item, the longest task that waits."""
    return ScreenQuestion("explain", (("bag", bag), ("item", item)))


def logs_of(bag: str, item: int) -> ScreenQuestion:
    """What a task printed."""
    return ScreenQuestion("logs", (("bag", bag), ("item", item)))


def output_of(bag: str) -> ScreenQuestion:
    """What the tasks of a bag print, as they end."""
    return ScreenQuestion(OUTPUT, (("bag", bag),))


def tasks_of(bag: str, group: str) -> ScreenQuestion:
    """The first tasks of a bag in some state."""
    return ScreenQuestion("tasks", (("bag", bag), ("state", group)))


def gate_of(bag: str, *, paused: bool) -> ScreenQuestion:
    """The order to pause a bag, or to resume one that is paused."""
    return ScreenQuestion("resume" if paused else "pause", (("bag", bag),))


def cancel_of(bag: str, item: int | None = None) -> ScreenQuestion:
    """The order to cancel a bag, or one of its tasks."""
    return ScreenQuestion("cancel", (("bag", bag), ("items", None if item is None else (item,))))


def drain_of(pc: str, *, drained: bool) -> ScreenQuestion:
    """The order to drain a PC until somebody undoes it, or to undo that."""
    return ScreenQuestion("drain undo" if drained else "drain", (("pcs", (pc,)),))
