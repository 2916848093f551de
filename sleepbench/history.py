"""What a stopped broker's journal tells of its past: tasks as they came and ended, windows of PCs as they were.

Rule 1: the journal is only read. A broker that runs has it locked.
Rule 2: times are POSIX seconds here, as they were written down; `deskgrid.sleepbench.replay` counts from the first
submission.
"""

import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from deskgrid.broker.store.journal import NAME
from deskgrid.broker.store.result_blocks import recorded
from deskgrid.broker.store.rows import How
from deskgrid.broker.store.schema import FORMAT, format_of
from deskgrid.wire import Outcome

# Two times that are said to be the same may differ by this much: a window's closing as it was planned and as the
# broker heard of it, or as it was announced before and after a restart. Seconds.
SLACK_S = 2.0


class HistoryError(Exception):
    """The journal cannot be replayed; one line that says why."""


class PastTask(NamedTuple):
    """A task that ended with a known runtime. ``ended``: None when that was not written down."""

    predicted: float
    elapsed: float
    ended: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class PastBag:
    """A bag that was not forgotten. ``cancelled``, ``open``: tasks that ended so, and that never ended."""

    number: int
    id: str
    name: str
    predicted: bool
    cancelled: int
    open: int


@dataclass(frozen=True, slots=True)
class PastBatch:
    """Tasks that were submitted together."""

    bag: PastBag
    arrived: float
    tasks: tuple[PastTask, ...]


@dataclass(frozen=True, slots=True)
class PastWindow:
    """A window of a worker. ``planned``: the closing it announced, None when it was open-ended."""

    worker: str
    session: str
    slots: int
    opened: float
    planned: float | None
    closed: float
    how: How
    kills: int
    wasted_s: float


@dataclass(frozen=True, slots=True)
class History:
    """All of it. Batches in the order of their arrival, windows in that of their opening; ``until``: where it ends."""

    bags: tuple[PastBag, ...]
    batches: tuple[PastBatch, ...]
    windows: tuple[PastWindow, ...]
    until: float


def read_history(home: Path) -> History:
    """What the journal in ``home`` tells; raises `HistoryError`."""
    path = home / NAME
    if not path.is_file():
        raise HistoryError(f"there is no journal in {home}: it is not the home of a broker")
    try:
        with closing(_opened(path)) as db:
            found = format_of(db)
            if found != FORMAT:
                raise HistoryError(_other_format(home, found))
            return _Reader(db).history()
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise HistoryError(f"a broker runs on {home}: stop it first, or copy the folder") from error
        raise HistoryError(f"cannot read {path}: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    # Without a log beside it nobody has it open, and nothing but this file need be looked at, or made.
    mode = "mode=ro" if path.with_name(f"{NAME}-wal").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=0.5)


def _other_format(home: Path, found: int) -> str:
    if found > FORMAT:
        return f"{home} has a journal of format {found}; this deskgrid reads {FORMAT}"
    return f"{home} has a journal of format {found}; a broker of today that is started on it brings it up to {FORMAT}"


class _Reader:
    """The tables of one journal."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # In the order of the tasks; what they came to is not needed.
        rows = (row for _, row in recorded(db, lambda _: b""))
        self._ended = sorted(rows, key=attrgetter("task"))
        self._counts = Counter(key for row in self._ended for key in (row.bag, (row.bag, row.outcome)))

    def history(self) -> History:
        """All that there is."""
        # Without an id it was forgotten, and the broker killed before all of it was gone.
        query = "SELECT number, id, name, predicted, created FROM bags WHERE id IS NOT NULL ORDER BY number"
        rows = self._db.execute(query).fetchall()
        bags = {row[0]: self._bag(*row[:4]) for row in rows}
        batches = sorted(self._batches(bags, {row[0]: row[4] for row in rows}), key=lambda batch: batch.arrived)
        until = self._until()
        return History(tuple(bags.values()), tuple(batches), tuple(self._windows(until)), until)

    def _bag(self, number: int, bag_id: str, name: str, predicted: int) -> PastBag:
        query = "SELECT coalesce(sum(count), 0) FROM batches WHERE bag = ?"
        total = self._db.execute(query, (number,)).fetchone()[0]
        ended, cancelled = self._counts[number], self._counts[number, Outcome.CANCELLED]
        return PastBag(number, bag_id, name, bool(predicted), cancelled, total - ended)

    def _batches(self, bags: dict[int, PastBag], created: dict[int, float]) -> Iterator[PastBatch]:
        query = "SELECT first, bag, count, arrived, coalesce(first_runtimes, runtimes) FROM batches ORDER BY first"
        for first, bag, count, arrived, packed in self._db.execute(query):
            tasks = tuple(self._tasks(first, count, array("d", packed)))
            if tasks and bag in bags:
                yield PastBatch(bags[bag], created[bag] if arrived is None else arrived, tasks)

    def _tasks(self, first: int, count: int, runtimes: "array[float]") -> Iterator[PastTask]:
        begin, end = (bisect_left(self._ended, task, key=attrgetter("task")) for task in (first, first + count))
        for row in self._ended[begin:end]:
            if row.outcome != Outcome.CANCELLED:
                predicted = runtimes[row.task - first] if len(runtimes) > 1 else runtimes[0]
                yield PastTask(predicted, row.elapsed, row.ended, row.outcome != Outcome.DONE)

    def _until(self) -> float:
        queries = (
            "SELECT max(value) FROM meta WHERE key = 'seen'",
            "SELECT max(ended) FROM results",
            "SELECT max(max(opened), max(coalesce(closed, 0))) FROM windows",
        )
        return max(self._db.execute(query).fetchone()[0] or 0.0 for query in queries)

    def _windows(self, until: float) -> Iterator[PastWindow]:
        columns = "worker, session, slots, opened, planned, closed, how, kills, wasted_s"
        rows = self._db.execute(f"SELECT {columns} FROM windows ORDER BY opened, number")
        for *opening, closed, how, kills, wasted_s in rows:
            # Open still: the broker was killed.
            end = (max(opening[3], until), "broker", 0, 0.0) if closed is None else (closed, how, kills, wasted_s)
            yield PastWindow(*opening, *end)


# --- windows as they really were --------------------------------------------------------------------------------------


def whole(windows: tuple[PastWindow, ...], until: float, idle_from: float) -> dict[str, list[PastWindow]]:
    """The windows of each worker, in order, without what the broker's own absences and the clock did to them.

    A window that was open before and after a restart of the broker is one. Where the broker was not there to see one
    close, it closed as planned; one that was open-ended at the end of the record stays for ever. The same holds for one
    that somebody stopped from ``idle_from`` on, when all work was done: with work it might have stayed.
    """
    workers: dict[str, list[PastWindow]] = {}
    for window in windows:
        before = workers.setdefault(window.worker, [])
        if before and _goes_on(before[-1], window):
            before.append(_joined(before.pop(), window))
        else:
            before.append(window)
    return {worker: [*_closed(found, until, idle_from)] for worker, found in workers.items()}


def _joined(first: PastWindow, second: PastWindow) -> PastWindow:
    kills, wasted_s = first.kills + second.kills, first.wasted_s + second.wasted_s
    return replace(second, opened=first.opened, kills=kills, wasted_s=wasted_s)


def _goes_on(last: PastWindow, window: PastWindow) -> bool:
    if last.how != "broker" or last.session != window.session:
        return False
    if last.planned is None or window.planned is None:
        return last.planned is window.planned
    return abs(last.planned - window.planned) <= SLACK_S


def _closed(windows: list[PastWindow], until: float, idle_from: float) -> Iterator[PastWindow]:
    for place, window in enumerate(windows):
        after = windows[place + 1].opened if place + 1 < len(windows) else float("inf")
        closed = window.closed
        needless = window.how == "stop" and closed >= idle_from
        if window.how == "broker" or needless:
            if window.planned is not None:
                closed = max(closed, window.planned)
            elif needless or closed >= until - SLACK_S:
                closed = float("inf")
        elif window.how == "departure" and window.planned is not None and abs(closed - window.planned) <= SLACK_S:
            closed = window.planned
        yield replace(window, closed=min(closed, after))
