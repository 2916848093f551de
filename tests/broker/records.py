"""Rows for a journal, for tests that do not care about their content."""

from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.one_by_one import blocks_around, result_in
from deskgrid.broker.store.result_blocks import StoredValue
from deskgrid.broker.store.rows import BagRow, BatchRow, ResultRow
from deskgrid.wire import Outcome, Payload, TaskOptions


def bag_row(number: int) -> BagRow:
    return BagRow(
        number, f"bag{number}", "", "python", "ada", "digest", TaskOptions(), predicted=True, closed=False, created=1e9
    )


def batch_row(first: int, bag: int, start: int, count: int) -> BatchRow:
    return BatchRow(first, bag, start, count, [1.0])


def result_row(task: int, payload: bytes, bag: int = 1) -> ResultRow:
    return ResultRow(task, bag, task, Outcome.DONE, 0.5, "pc1", 9, payload, b"out", b"err", 1e9)


def bytes_in(payload: StoredValue | Payload) -> bytes:
    """A payload that is no file."""
    assert isinstance(payload, bytes)
    return payload


def result_of(journal: Journal, task: int) -> ResultRow | None:
    """The row of an ended task."""
    found = (result_in(journal, seq, size, task) for seq, size in blocks_around(journal, task))
    return next((row for row in found if row is not None), None)


def dropped(journal: Journal, bag: int) -> None:
    """A bag is forgotten, and nothing of it is left."""
    journal.forget(bag)
    while journal.purge.some(bag):
        pass
