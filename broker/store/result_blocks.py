"""Results as the journal keeps them: in blocks, each with results of one bag that ended at one moment.

Rule 1: a block is one row. A row costs ten microseconds in the tables and their indexes, a result in a block less than
two.
Rule 2: the part for clients is stored in its wire form (`deskgrid.wire.Outcomes`), and sent without being unpacked.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgpack

from deskgrid.broker.store.rows import ResultRow
from deskgrid.wire import Outcome, Payload, in_batches, pack_columns

# A payload as it is in the tables: its bytes, or the name of its file.
StoredValue = bytes | str


class Block(NamedTuple):
    """A row of the journal's ``results``. ``low``, ``high``: the smallest and the largest number of its ``size`` tasks.

    Packed columns: ``tasks`` (task, attempt number, outcome), which is all that a restart reads; ``told``, a piece of
    `Outcomes`; ``printed`` (stdout, stderr), None when nothing was printed. ``large``: the names of the files whose
    payloads are nil in ``told``, in order; None for none.
    """

    bag: int
    low: int
    high: int
    size: int
    ended: float | None
    tasks: bytes
    told: bytes
    printed: bytes | None
    large: bytes | None

    @property
    def weight(self) -> int:
        """Its bytes in the tables."""
        return len(self.tasks) + len(self.told) + len(self.printed or b"")


class AnswerPiece(NamedTuple):
    """The part of a `Block` that clients are sent, and the number of the block."""

    seq: int
    size: int
    told: bytes
    large: bytes | None


COLUMNS = ", ".join(Block._fields)


def blocks_of(rows: Iterable[ResultRow], cell: Callable[[Payload, int], StoredValue]) -> Iterator[Block]:
    """``rows`` in blocks of bounded size. ``cell(payload, bag)``: the cell that stands for a payload in the tables."""
    groups: dict[tuple[int, float | None], list[ResultRow]] = {}
    for row in rows:
        groups.setdefault((row.bag, row.ended), []).append(row)
    for some in groups.values():
        # A message of bounded size can only carry whole blocks, so no block is larger than one.
        for part in in_batches(some, _payload_size):
            yield _block(part, cell)


def _payload_size(row: ResultRow) -> int:
    return len(row.payload)


def cancelled_block(bag: int, tasks: Sequence[int], items: Sequence[int], ended: float) -> Block:
    """Tasks of a bag, ascending, that were cancelled together."""
    one_for_all = pack_columns((list(tasks), (0,), (Outcome.CANCELLED,)))
    told = pack_columns((list(items), (Outcome.CANCELLED,), (0.0,), ("",), (b"",)))
    return Block(bag, tasks[0], tasks[-1], len(tasks), ended, one_for_all, told, None, None)


def _block(rows: Sequence[ResultRow], cell: Callable[[Payload, int], StoredValue]) -> Block:
    tasks, bags, items, outcomes, elapsed, workers, numbers, payloads, stdouts, stderrs, ended = zip(*rows, strict=True)
    large: list[str] = []
    told = payloads
    if set(map(type, payloads)) != {bytes}:
        cells = [cell(each, bags[0]) for each in payloads]
        large = [each for each in cells if type(each) is str]
        told = tuple(None if type(each) is str else each for each in cells)
    return Block(
        bag=bags[0],
        low=min(tasks),
        high=max(tasks),
        size=len(tasks),
        ended=ended[0],
        tasks=pack_columns((tasks, numbers, outcomes)),
        told=pack_columns((items, outcomes, elapsed, workers, told)),
        printed=pack_columns((stdouts, stderrs)) if any(stdouts) or any(stderrs) else None,
        large=msgpack.packb(large) if large else None,
    )


def rows_in(block: Block, payload: Callable[[StoredValue], Payload]) -> Iterator[ResultRow]:
    """The results in a block, in order. ``payload(cell)``: the payload that a cell stands for."""
    names = iter(names_in(block.large))
    tasks, numbers, outcomes = columns_in(block.tasks, block.size)
    items, _, elapsed, workers, payloads = columns_in(block.told, block.size)
    stdouts, stderrs = columns_in(block.printed, block.size) if block.printed else (repeat(b""), repeat(b""))
    found = (payload(next(names) if each is None else each) for each in payloads)
    whole = (tasks, repeat(block.bag), items, outcomes, elapsed, workers, numbers, found, stdouts, stderrs)
    for row in zip(*whole, repeat(block.ended, block.size), strict=False):
        yield ResultRow._make(row)


def is_silent(block: Block) -> bool:
    """Whether no task of a block printed anything or failed."""
    return not block.printed and {Outcome.DONE, Outcome.CANCELLED}.issuperset(msgpack.unpackb(block.tasks)[2])


def recorded(
    db: sqlite3.Connection, payload: Callable[[StoredValue], Payload], after: int = 0
) -> Iterator[tuple[int, ResultRow]]:
    """(number of its block, result) of all results in a journal's tables, from the blocks after ``after``."""
    for number, *block in db.execute(f"SELECT seq, {COLUMNS} FROM results WHERE seq > ? ORDER BY seq", (after,)):
        for row in rows_in(Block(*block), payload):
            yield number, row


def columns_in(packed: bytes, count: int) -> list[Iterable[Any]]:
    """Packed columns, each of ``count`` values; when all are equal, only one was packed."""
    return [repeat(column[0], count) if len(column) == 1 else column for column in msgpack.unpackb(packed)]


def names_in(large: bytes | None) -> list[str]:
    """The names of a block's files."""
    return [str(name) for name in msgpack.unpackb(large)] if large else []
