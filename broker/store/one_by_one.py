"""Results in the journal, one by one: those of a single task, and the last ones of a bag. For people who look at them.

Blocks are found first, and read afterwards: a block may be large, so a caller reads one at a time.
"""

from collections import deque

from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.result_blocks import COLUMNS, Block, columns_in, is_silent, rows_in
from deskgrid.broker.store.rows import ResultRow


def newest_blocks(journal: Journal, bag: int, after: int, most: int) -> list[tuple[int, int]]:
    """The numbers and sizes of the newest blocks of a bag after block ``after``, the newest first."""
    query = "SELECT seq, size FROM results WHERE bag = ? AND seq > ? ORDER BY seq DESC LIMIT ?"
    return journal.db.execute(query, (bag, after, most)).fetchall()


def printed_in(journal: Journal, seq: int, most: int) -> list[ResultRow]:
    """The last rows of a block, without large payloads; none if it is gone, or nobody printed or failed there."""
    found = journal.db.execute(f"SELECT {COLUMNS} FROM results WHERE seq = ?", (seq,)).fetchone()
    if found is None or is_silent(block := Block(*found)):
        return []
    return list(deque(rows_in(block, lambda cell: cell if type(cell) is bytes else b""), most))


def blocks_around(journal: Journal, task: int) -> list[tuple[int, int]]:
    """(number, tasks) of the blocks that may have a task's result: several, because tasks end in any order."""
    query = "SELECT seq, size FROM results WHERE high >= ? AND low <= ? ORDER BY high"
    return journal.db.execute(query, (task, task)).fetchall()


def result_in(journal: Journal, seq: int, size: int, task: int) -> ResultRow | None:
    """The row of an ended task, if it is in this block. The whole block is read only then."""
    found = journal.db.execute("SELECT tasks FROM results WHERE seq = ?", (seq,)).fetchone()
    if found is None or task not in columns_in(found[0], size)[0]:
        return None
    (block,) = journal.db.execute(f"SELECT {COLUMNS} FROM results WHERE seq = ?", (seq,))
    return next(row for row in rows_in(Block(*block), journal.values.payload) if row.task == task)
