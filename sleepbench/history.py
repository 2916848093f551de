"""The past of a stopped broker, read from its journal: how its tasks arrived and ended, and the windows of its PCs.

Rule 1: the journal is only read. A running broker holds a lock on it.
Rule 2: times are POSIX seconds, as in the journal; `deskgrid.sleepbench.replay` counts from the first submission.
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

from deskgrid.broker.model.needs import need_of
from deskgrid.broker.store.journal import NAME
from deskgrid.broker.store.result_blocks import recorded
from deskgrid.broker.store.rows import How, ToldEtaRow
from deskgrid.broker.store.schema import FORMAT, format_of
from deskgrid.broker.store.tables import estimates_in
from deskgrid.scheduler.need import NOTHING, SINGLE, Need
from deskgrid.wire import Outcome, read_task_options

# Two records of the same time may differ by this many seconds: a window's closing as planned and as the broker heard of
# it, or as announced before and after a restart.
SLACK_S = 2.0


class HistoryError(Exception):
    """The journal cannot be replayed; one line that says why."""


class PastTask(NamedTuple):
    """A task that ended, with its elapsed time. ``ended``: None if the journal does not have it."""

    predicted: float
    elapsed: float
    ended: float | None
    failed: bool


@dataclass(frozen=True, slots=True)
class PastBag:
    """A bag that was not forgotten. ``cancelled``: how many tasks were cancelled; ``open``: how many never ended.

    ``need``: what each task needs beside its seconds, without labels and memory, which are not recorded of PCs.
    """

    number: int
    id: str
    name: str
    predicted: bool
    cancelled: int
    open: int
    need: Need = SINGLE


@dataclass(frozen=True, slots=True)
class PastBatch:
    """Tasks that were submitted together."""

    bag: PastBag
    arrived: float
    tasks: tuple[PastTask, ...]


@dataclass(frozen=True, slots=True)
class PastWindow:
    """A window of a worker. ``planned``: the closing that it announced; None if it was open-ended."""

    worker: str
    session: str
    site: str
    slots: int
    opened: float
    planned: float | None
    closed: float
    how: How
    kills: int
    wasted_s: float


@dataclass(frozen=True, slots=True)
class History:
    """The whole past: batches in order of arrival, windows in order of opening. ``until``: the end of the record.

    ``etas``: when bags would end, as it was told.
    """

    bags: tuple[PastBag, ...]
    batches: tuple[PastBatch, ...]
    windows: tuple[PastWindow, ...]
    until: float
    etas: tuple[ToldEtaRow, ...] = ()


def read_history(home: Path) -> History:
    """Read the journal in ``home``; raises `HistoryError`."""
    path = home / NAME
    if not path.is_file():
        raise HistoryError(f"there is no journal in {home}: it is not the home of a broker")
    try:
        with closing(_opened(path)) as db:
            found = format_of(db)
            if found != FORMAT:
                raise HistoryError(f"{home} has a journal of format {found}; this deskgrid reads {FORMAT}")
            return _Reader(db).history()
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise HistoryError(f"a broker runs on {home}: stop it first, or copy the folder") from error
        raise HistoryError(f"cannot read {path}: {error}") from error


def _opened(path: Path) -> sqlite3.Connection:
    # If there is no write-ahead log, nobody has the journal open. Then no other file has to be read or created.
    mode = "mode=ro" if path.with_name(f"{NAME}-wal").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=0.5)


class _Reader:
    """The tables of one journal."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        # In the order of the tasks; their results are not needed.
        rows = (row for _, row in recorded(db, lambda _: b""))
        self._ended = sorted(rows, key=attrgetter("task"))
        self._counts = Counter(key for row in self._ended for key in (row.bag, (row.bag, row.outcome)))

    def history(self) -> History:
        """The whole past."""
        # A bag without an id was forgotten, but the broker was killed before it had removed all of it.
        query = "SELECT number, id, name, predicted, options, created FROM bags WHERE id IS NOT NULL ORDER BY number"
        rows = self._db.execute(query).fetchall()
        bags = {row[0]: self._bag(*row[:5]) for row in rows}
        batches = sorted(self._batches(bags, {row[0]: row[5] for row in rows}), key=lambda batch: batch.arrived)
        until = self._until()
        return History(
            tuple(bags.values()), tuple(batches), tuple(self._windows(until)), until, tuple(estimates_in(self._db))
        )

    def _bag(self, number: int, bag_id: str, name: str, predicted: int, options: bytes) -> PastBag:
        query = "SELECT coalesce(sum(count), 0) FROM batches WHERE bag = ?"
        total = self._db.execute(query, (number,)).fetchone()[0]
        ended, cancelled = self._counts[number], self._counts[number, Outcome.CANCELLED]
        try:
            need = replace(need_of(read_task_options(options)), amounts=NOTHING, labels=frozenset())
        except ValueError as error:
            raise HistoryError(f"the options of the tasks of bag {bag_id} cannot be read: {error}") from error
        return PastBag(number, bag_id, name, bool(predicted), cancelled, total - ended, need)

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
        columns = "worker, session, site, slots, opened, planned, closed, how, kills, wasted_s"
        rows = self._db.execute(f"SELECT {columns} FROM windows ORDER BY opened, number")
        for *opening, closed, how, kills, wasted_s in rows:
            # The window is still open in the journal: the broker was killed.
            end = (max(opening[4], until), "broker", 0, 0.0) if closed is None else (closed, how, kills, wasted_s)
            yield PastWindow(*opening, *end)


# --- windows as they really were --------------------------------------------------------------------------------------


def whole(windows: tuple[PastWindow, ...], until: float, idle_from: float) -> dict[str, list[PastWindow]]:
    """The windows of each worker, in order, corrected for the broker's own downtimes and for inexact clocks.

    A window that was open before and after a restart of the broker counts as one. If the broker was down when a window
    closed, the window is taken to have closed as planned. A window that was open-ended at the end of the record stays
    for ever. The same holds for a window that somebody stopped from ``idle_from`` on, when all work was done: with work
    it might have stayed open.
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
