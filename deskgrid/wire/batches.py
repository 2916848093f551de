"""Batches: the rows that travel, or are stored, together."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from deskgrid.wire.limits import BATCH_BYTES, BATCH_ROWS

RowT = TypeVar("RowT")


def in_batches(rows: Iterable[RowT], size: Callable[[RowT], int], most: int | None = None) -> Iterator[list[RowT]]:
    """Yield ``rows`` in batches of at most BATCH_ROWS rows, and BATCH_BYTES unless one row alone is larger.

    ``size``: the bytes of a row. ``most``: the rows of a batch, if they are not BATCH_ROWS. A batch is yielded once the
    next row turns out not to fit, or the rows end.
    """
    batch: list[RowT] = []
    total, most = 0, BATCH_ROWS if most is None else most
    for row in rows:
        count = size(row)
        if batch and (total + count > BATCH_BYTES or len(batch) == most):
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += count
    if batch:
        yield batch
