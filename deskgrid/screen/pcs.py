"""The views of all PCs: their windows now, and the next 24 hours. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, groupby

from rich.text import Text

from deskgrid.durations import DAY_S, HOUR_S, duration
from deskgrid.screen import tables, worker_rows
from deskgrid.screen.drawing import GAP, BarPart, Column, counted, row
from deskgrid.screen.listing import Fold, Listing, ListRow, by_name, folds, line, matches
from deskgrid.screen.questions import PLAN
from deskgrid.screen.view import Page, ScreenData, ScreenView
from deskgrid.wire import clean
from deskgrid.wire.details import PlannedRow
from deskgrid.wire.status import WorkerState

# Rows of PCs below the summary line of their fold.
INDENT = "  "
# In the time line: the row that stands for all, cells of names at most, and hours between two marks on its scale.
EVERYBODY = "all PCs"
NAMES = 24
SCALE_H = 3
PLANNED = BarPart("▒", "yellow", "planned")
OPEN = BarPart("─", "blue", "there")


def trouble(worker: WorkerState) -> int:
    """How much a PC needs somebody's attention; 0: most."""
    if worker["quarantine_s"] is not None:
        return 0
    if worker["state"] == "lost":
        return 1
    if worker["state"] == "up":
        return 2 if any(worker_rows.beyond(worker, slot) for slot in worker["slots"]) else 3
    return 4


def listing(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """The view of PCs."""
    workers = _chosen(view.page, seen)
    columns = worker_rows.worker_columns(workers, width)
    if view.folding != "nothing":
        columns = _wider(columns, [fold.name for fold in folds(workers, view.folding)], width)
    entries = _entries(
        view,
        workers,
        lambda worker, indent: tables.item_row(worker, _indented(columns, indent)),
        lambda fold, mark: _summary(fold, mark, columns),
    )
    heading = [*worker_rows.worker_heading(seen.snapshot)]
    return Listing(heading, entries + _missing(seen), [tables.titles(columns)])


def _wider(columns: Sequence[Column], names: Iterable[str], width: int) -> list[Column]:
    """Columns with room for the names of folds, and for the indents of PCs."""
    first = max(columns[0].width + len(INDENT), tables.name_width([f"- {name}" for name in names], width))
    spare = columns[0].width + columns[1].width - first
    return [columns[0]._replace(width=first), columns[1]._replace(width=max(0, spare)), *columns[2:]]


def _indented(columns: Sequence[Column], indent: str) -> list[Column]:
    return [columns[0]._replace(cell=lambda worker, _: indent + clean(worker["name"])), *columns[1:]]


def _chosen(page: Page, seen: ScreenData) -> list[WorkerState]:
    """The PCs that match the search, sorted as you asked."""
    found = [worker for worker in seen.snapshot["workers"] if not page.search or matches(page.search, *_texts(worker))]
    found.sort(key=lambda worker: tables.natural(worker["name"]))
    order = page.order
    if order == "trouble":
        found.sort(key=trouble)
    elif order == "time left":
        found.sort(key=lambda worker: (worker["state"] != "up", _seconds(worker["uptime_s"])))
    elif order == "busy slots":
        found.sort(key=lambda worker: -worker["busy"])
    return found


def _texts(worker: WorkerState) -> tuple[str, ...]:
    about = worker["name"], worker["host"], worker["site"], worker["state"], worker["plan"], worker["note"]
    return *about, *worker["labels"]


def _seconds(uptime_s: float | None) -> float:
    return math.inf if uptime_s is None else uptime_s


def _entries(
    view: ScreenView,
    workers: Sequence[WorkerState],
    draw: Callable[[WorkerState, str], Text],
    summary: Callable[[Fold, str], Text],
) -> list[ListRow]:
    """A row for each PC, or a summary line for each fold, with its PCs below it if it is unfolded."""
    if view.folding == "nothing":
        return [ListRow(f"pc {worker['name']}", partial(draw, worker, "")) for worker in workers]
    entries: list[ListRow] = []
    groups = folds(workers, view.folding)
    if view.page.order == "name":
        groups.sort(key=by_name)
    for fold in groups:
        is_open = fold.key in view.unfolded
        entries.append(ListRow(fold.key, partial(summary, fold, "- " if is_open else "+ ")))
        if is_open:
            entries += [ListRow(f"pc {worker['name']}", partial(draw, worker, INDENT)) for worker in fold.workers]
    return entries


def _missing(seen: ScreenData) -> list[ListRow]:
    """A row that says how many PCs the broker does not list."""
    missing = worker_rows.worker_count(seen.snapshot["totals"]) - len(seen.snapshot["workers"])
    return [line(f"... and {counted(missing, 'PC')} more than the broker lists", "dim")] if missing > 0 else []


def _summary(fold: Fold, mark: str, columns: Sequence[Column]) -> Text:
    """A fold on one line: its words take the place of the window and of the time left."""
    up = [worker for worker in fold.workers if worker["state"] == "up"]
    slots = f"{sum(worker['busy'] for worker in up)}/{sum(worker['slot_count'] for worker in up)}"
    ended = f"{sum(worker['ended'] for worker in fold.workers):,}"
    name, words, time_left, of_slots, *others = columns
    wider = max(of_slots.width, len(slots)) if of_slots.width else 0
    room = words.width + (GAP + time_left.width if time_left.width else 0) - (wider - of_slots.width)
    cells = (Text(mark + clean(fold.name), "bold"), _states(fold), slots, ended)
    blank = [""] * (len(others) + 3 - len(cells))
    return row((*cells, *blank), (name, Column(max(0, room)), Column(wider), *others))


def _states(fold: Fold) -> Text:
    """How many PCs of a fold are up, away, lost, drained and in quarantine; trouble first, so that it is not cut."""
    states = Counter(worker["state"] for worker in fold.workers)
    quarantined = sum(worker["quarantine_s"] is not None for worker in fold.workers)
    said = Text(f"{counted(len(fold.workers), 'PC')}: ")
    parts = [(f"{states['lost']} lost", "bold red")] if states["lost"] else []
    parts += [(f"{quarantined} in quarantine", "bold red")] if quarantined else []
    drained = sum(worker["drained_by"] is not None for worker in fold.workers)
    parts += [(f"{drained} drained", "yellow")] if drained else []
    parts += [(f"{states['up']} up", ""), (f"{states['away']} away", "")]
    for place, (text, style) in enumerate(parts):
        said.append(", " if place else "").append(text, style)
    return said


# --- the time line ---------------------------------------------------------------------------------------------------


def timeline(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """The next 24 hours: when PCs are there, and until when they have work."""
    workers = _chosen(view.page, seen)
    names = [EVERYBODY, *(worker["name"] for worker in workers), *(fold.name for fold in folds(workers, view.folding))]
    columns = [Column(min(NAMES, 2 + tables.name_width(names, width))), Column(1)]
    columns = tables.filled_up(width, columns, flexible=1)
    cells = columns[1].width
    planned: dict[str, list[PlannedRow]] = {}
    for work in seen.answer(PLAN).get("planned", ()):
        planned.setdefault(work["worker"], []).append(work)

    def draw(worker: WorkerState, indent: str) -> Text:
        return row((indent + clean(worker["name"]), hours(worker, planned.get(worker["name"], ()), cells)), columns)

    entries = _entries(
        view,
        workers,
        draw,
        lambda fold, mark: row((Text(mark + clean(fold.name), "bold"), presence(fold.workers, cells)), columns),
    )
    everybody = row((Text(EVERYBODY, "bold"), presence(workers, cells)), columns)
    legend = tables.legend((worker_rows.RUNNING, PLANNED, OPEN))
    heading = [Text("The next 24 hours", "bold"), legend, Text("▁▄█ how many of several PCs are there", "dim")]
    return Listing(heading, entries + _missing(seen), [row(("", scale(seen, cells)), columns), everybody])


def scale(seen: ScreenData, cells: int) -> Text:
    """The hours of the day, each above the cell where it begins."""
    now = seen.now
    into_hour = now.minute * 60 + now.second
    text = Text("now", "dim")
    for hour in range(1, 25):
        place = int((hour * HOUR_S - into_hour) * cells / DAY_S)
        mark = f"{(now.hour + hour) % 24:02}:00"
        if (now.hour + hour) % SCALE_H == 0 and text.cell_len < place <= cells - len(mark):
            text.append(" " * (place - text.cell_len) + mark)
    return text


def hours(worker: WorkerState, planned: Iterable[PlannedRow], cells: int) -> Text:
    """A PC's next 24 hours, or why it has none. ``planned``: what the policy intends for it."""
    if worker["state"] == "lost" and not worker["windows"]:
        return Text(f"lost, silent for {duration(worker['silent_s'])}", "bold red")
    parts: list[BarPart | None] = [None] * cells
    for starts, ends in _stretches(worker):
        _paint(parts, starts, ends, OPEN)
    for work in planned:
        _paint(parts, work["starts_in"], work["starts_in"] + work["lasts"], PLANNED)
    if worker["state"] == "up":
        runs, queued = worker_rows.seconds_of_work(worker)
        _paint(parts, runs, min(runs + queued, _seconds(worker["uptime_s"])), PLANNED)
        _paint(parts, 0.0, min(runs, _seconds(worker["uptime_s"])), worker_rows.RUNNING)
    text = Text()
    for part, some in groupby(parts):
        text.append((" " if part is None else part.glyph) * len(list(some)), "" if part is None else part.style)
    return text


def presence(workers: Sequence[WorkerState], cells: int) -> Text:
    """How many of these PCs are there, cell by cell, in eighths."""
    changes = [0] * (cells + 1)
    for worker in workers:
        for starts, ends in _stretches(worker):
            first, last = _cells(starts, ends, cells)
            changes[first] += 1
            changes[max(first, last)] -= 1
    shares = (count / max(1, len(workers)) for count in accumulate(changes[:-1]))
    return Text("".join(worker_rows.STEPS[min(7, int(8 * share))] if share else " " for share in shares), "blue")


def _stretches(worker: WorkerState) -> list[tuple[float, float]]:
    """When a PC is there, as planned: seconds from now."""
    now = [(0.0, _seconds(worker["uptime_s"]))] if worker["state"] == "up" else []
    return now + [(starts, starts + lasts) for starts, lasts in worker["windows"]]


def _paint(parts: list[BarPart | None], starts: float, ends: float, part: BarPart) -> None:
    """Fill the cells of a stretch; one that is there at all has a cell."""
    first, last = _cells(starts, ends, len(parts))
    if ends > starts:
        for cell in range(first, min(len(parts), max(last, first + 1))):
            parts[cell] = part


def _cells(starts: float, ends: float, cells: int) -> tuple[int, int]:
    """The cells whose middles are in a stretch of time: the first, and the one behind the last."""
    first, last = (math.ceil(min(max(0.0, at), DAY_S) * cells / DAY_S - 0.5) for at in (starts, ends))
    return max(0, first), max(0, last)
