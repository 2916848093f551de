"""Reads the journal when a broker starts: bags, tasks, orders under way, and the next free numbers."""

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any

from deskgrid.broker.store.files import Damaged
from deskgrid.broker.store.result_blocks import columns_in
from deskgrid.broker.store.rows import BagRow, BatchRow, DrainRow, UsageRow
from deskgrid.wire import read_task_options


class Recovery:
    """Queries on the tables of a journal, as an earlier life of the broker left them or as they are by now."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def orders(self) -> list[tuple[int, str]]:
        """Orders that are not finished: (bag, what)."""
        return self._db.execute("SELECT bag, what FROM orders ORDER BY bag").fetchall()

    def bags(self) -> Iterator[BagRow]:
        """Every bag that is not forgotten, oldest first. Raises `Damaged` when task options cannot be read."""
        columns = "number, id, name, kind, owner, template, options, predicted, closed, created, session"
        for row in self._db.execute(f"SELECT {columns} FROM bags WHERE id IS NOT NULL ORDER BY number"):
            number, id_, name, kind, owner, template, packed, predicted, closed, created, session = row
            try:
                options = read_task_options(packed)
            except ValueError as error:
                raise Damaged(f"the options of the tasks of bag {id_} cannot be read: {error}") from error
            known = (number, id_, name, kind, owner, template, options)
            yield BagRow(*known, bool(predicted), bool(closed), created, session or "")

    def batches(self) -> Iterator[BatchRow]:
        """Every batch of bags that are not forgotten, in the order of its tasks; small ones that join, as one."""
        joined: list[BatchRow] = []
        end = 0
        for row in self._batches():
            first = joined[0].first if joined else 0
            if joined and not (joined[0].own and row.bag == joined[0].bag and row.continues(first, end - first)):
                yield _as_one(joined)
                joined.clear()
            joined.append(row)
            end = row.first + row.count
        if joined:
            yield _as_one(joined)

    def _batches(self) -> Iterator[BatchRow]:
        for first, bag, start, count, packed, size in self._db.execute(
            "SELECT first, bag, start, count, coalesce(p.runtimes, b.runtimes), length(payloads) + "
            "(SELECT coalesce(sum(size), 0) FROM files WHERE batch = first) "
            "FROM batches b LEFT JOIN predictions p USING (first) "
            "WHERE bag NOT IN (SELECT bag FROM orders WHERE what = 'forget') ORDER BY first"
        ):
            runtimes = array("d")
            runtimes.frombytes(packed)
            yield BatchRow(first, bag, start, count, runtimes, size)

    def result_sizes(self) -> Counter[int]:
        """Bytes of the results and checkpoints of each bag."""
        sizes = Counter[int]()
        for query in (
            "SELECT bag, sum(length(tasks) + length(told) + ifnull(length(printed), 0)) FROM results GROUP BY bag",
            "SELECT bag, sum(length(data)) FROM checkpoints WHERE typeof(data) = 'blob' GROUP BY bag",
            "SELECT bag, sum(length(data)) FROM checkpoint_parts WHERE typeof(data) = 'blob' GROUP BY bag",
            "SELECT bag, sum(length(stdout) + length(stderr)) FROM ranks GROUP BY bag",
            "SELECT bag, sum(length(payload)) FROM ranks WHERE typeof(payload) = 'blob' GROUP BY bag",
            "SELECT bag, sum(size) FROM files WHERE batch IS NULL AND bag IS NOT NULL GROUP BY bag",
        ):
            sizes.update({bag: size or 0 for bag, size in self._db.execute(query)})
        return sizes

    def outcomes(self, bag: int) -> dict[int, "array[int]"]:
        """The tasks of a bag that have ended, ascending, by outcome."""
        found: dict[int, array[int]] = {}
        for count, packed in self._db.execute("SELECT size, tasks FROM results WHERE bag = ?", (bag,)):
            tasks, _, outcomes = columns_in(packed, count)
            if isinstance(outcomes, repeat):  # all tasks had the same outcome
                found.setdefault(next(outcomes), array("q")).extend(tasks)
                continue
            for outcome, some in groupby(zip(outcomes, tasks, strict=True), itemgetter(0)):
                found.setdefault(outcome, array("q")).extend(map(itemgetter(1), some))
        return {outcome: array("q", sorted(tasks)) for outcome, tasks in found.items()}

    def last_ended(self, bag: int) -> float | None:
        """When the last task of a bag ended, POSIX seconds; None when that is not recorded."""
        row = self._db.execute("SELECT ended FROM results WHERE bag = ? ORDER BY seq DESC LIMIT 1", (bag,)).fetchone()
        return row[0] if row else None

    def sent(self, first: int, count: int) -> list[tuple[int, int, str | None]]:
        """(task, attempt number, session) of tasks that were sent to a worker; they may have ended since.

        The session is None for rows from formats 1 and 2, which did not record it.
        """
        query = "SELECT task, number, session FROM sent WHERE task >= ? AND task < ?"
        return self._db.execute(query, (first, first + count)).fetchall()

    def checkpoints(self) -> Iterator[tuple[Any, ...]]:
        """Every checkpoint, the oldest first: bag, task, number, progress, seconds left, size."""
        columns = "bag, task, number, progress, left_s, size"
        yield from self._db.execute(f"SELECT {columns} FROM checkpoints ORDER BY number")

    def copies(self, first: int, count: int) -> list[tuple[int, int, str]]:
        """(task, attempt number, session) of copies newer than the attempts in `sent`; they may have ended since."""
        query = "SELECT c.* FROM copies c JOIN sent s USING (task) WHERE c.number > s.number AND task >= ? AND task < ?"
        return self._db.execute(query, (first, first + count)).fetchall()

    def usage(self) -> list[UsageRow]:
        """What owners had used."""
        return [UsageRow(*row) for row in self._db.execute("SELECT owner, used_s, at FROM usage")]

    def home_files(self) -> dict[str, str | None]:
        """What files in the home said when they were last right; None: they were not there."""
        return dict(self._db.execute("SELECT name, text FROM home_files"))

    def macs(self) -> dict[str, str]:
        """The network cards of PCs."""
        return dict(self._db.execute("SELECT pc, mac FROM macs"))

    def drains(self) -> list[DrainRow]:
        """PCs that are drained."""
        return [DrainRow(*row) for row in self._db.execute("SELECT pc, by, until FROM drains")]

    def next_task(self) -> int:
        """The smallest task number never used."""
        row = self._db.execute("SELECT max(first + count) FROM batches").fetchone()
        return int(row[0] or 0)

    def next_bag(self) -> int:
        """The smallest bag number not in use; a bag that is being deleted still uses its number."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM bags").fetchone()[0])

    def next_window(self) -> int:
        """The smallest window number not in use; numbers of deleted windows may be given again."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM windows").fetchone()[0])

    def attendance(self) -> tuple[float, int]:
        """Seconds of all windows that have closed, and how many of them ended with a loss."""
        query = "SELECT coalesce(sum(closed - opened), 0.0), coalesce(sum(how = 'loss'), 0) FROM windows"
        attended_s, losses = self._db.execute(query).fetchone()
        return max(0.0, attended_s), losses

    def last_known(self) -> float:
        """The last time, POSIX seconds, at which the broker is known to have run; 0 for a new journal."""
        newest = (
            "SELECT value FROM meta WHERE key = 'seen'",
            "SELECT created FROM bags ORDER BY number DESC LIMIT 1",
            "SELECT arrived FROM batches ORDER BY first DESC LIMIT 1",
            "SELECT ended FROM results ORDER BY seq DESC LIMIT 1",
            "SELECT max(max(opened), max(coalesce(closed, 0))) FROM windows",
        )
        found = [self._db.execute(query).fetchone() for query in newest]
        return max([0.0, *(row[0] or 0.0 for row in found if row)])


def _as_one(rows: Sequence[BatchRow]) -> BatchRow:
    """Rows that follow each other, as one batch."""
    if len(rows) == 1:
        return rows[0]
    runtimes = array("d", chain.from_iterable(row.runtimes for row in rows))
    size = sum(row.size for row in rows)
    first = rows[0]
    return BatchRow(first.first, first.bag, first.start, len(runtimes), runtimes, size, [row.first for row in rows])
