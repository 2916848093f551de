"""The work that these tests give to a grid, and checks of its journal afterwards."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from deskgrid.broker.store import result_blocks
from deskgrid.broker.store.journal import NAME
from deskgrid.client.bag import Bag
from deskgrid.wire import Outcome
from tests.broker.records import bytes_in


def work(given: tuple[int, float]) -> tuple[int, str]:
    """A task: an item, and the seconds it takes; its answer can be checked."""
    import hashlib
    import time

    item, seconds = given
    time.sleep(seconds)
    return item, hashlib.sha256(str(item).encode()).hexdigest()


def answer(item: int) -> tuple[int, str]:
    """What `work` answers."""
    return work((item, 0.0))


def gang_work(given: tuple[int, float]) -> tuple[int, str]:
    """A rank: it meets the others, and answers as `work` does, with its number."""
    import hashlib
    import time

    from deskgrid import gang

    item, seconds = given
    gang.barrier()  # what ranks gather may be lost with the broker, and they are told so
    time.sleep(seconds)
    return gang.rank, hashlib.sha256(str(item).encode()).hexdigest()


def gangs_gathered(bag: Bag[tuple[int, float], list[tuple[int, str]]], ranks: int) -> int:
    """Take a bag of gangs as they come: each once, and its list is whole; how many there are."""
    seen: set[int] = set()
    for (item, _), result in bag.as_completed():
        assert item not in seen, f"gang {item} came twice"
        assert result == [(rank, answer(item)[1]) for rank in range(ranks)]
        seen.add(item)
    return len(seen)


def gathered(bag: Bag[tuple[int, float], tuple[int, str]], at: Callable[[int], None] = lambda count: None) -> int:
    """Take a bag's results as they come: all are right, each comes once; how many there are.

    ``at`` is told after each how many there were.
    """
    seen: set[int] = set()
    for (item, _), result in bag.as_completed():
        assert item not in seen, f"item {item} came twice"
        assert result == answer(item)
        seen.add(item)
        at(len(seen))
    return len(seen)


def recorded(home: Path) -> tuple[int, int, int]:
    """Of a journal whose broker has ended: its results, how many items they are of, and how many are successes."""
    db = sqlite3.connect(home / NAME)
    try:
        rows = [row for _, row in result_blocks.recorded(db, bytes_in)]
        return len(rows), len({(row.bag, row.item) for row in rows}), sum(row.outcome == Outcome.DONE for row in rows)
    finally:
        db.close()
