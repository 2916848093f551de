"""What people are told of failures: the last failed attempts of tasks that are tried again, kept in memory; and where a
task has crashed. Pure."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from deskgrid.broker.store.rows import ResultRow
from deskgrid.wire import Payload, read_failure

# The most bytes kept for all attempts together, the most for one attempt, and the bytes of a row besides its texts.
KEPT_BYTES = 16 * 2**20
MOST_BYTES = KEPT_BYTES // 16
ROW_BYTES = 500


class FailedAttempts:
    """The newest failed attempt of each task; the oldest are dropped first."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, ResultRow] = OrderedDict()
        self._size = 0

    def add(self, row: ResultRow) -> None:
        """An attempt failed, and its task is tried again."""
        self.drop(row.task)
        if (size := _size(row)) <= MOST_BYTES:
            self._rows[row.task] = row
            self._size += size
        while self._size > KEPT_BYTES:
            self.drop(next(iter(self._rows)))

    def drop(self, task: int) -> None:
        """The task has ended."""
        row = self._rows.pop(task, None)
        self._size -= 0 if row is None else _size(row)

    def last(self, task: int) -> ResultRow | None:
        """How the last attempt of ``task`` failed, if that is still known."""
        return self._rows.get(task)


def _size(row: ResultRow) -> int:
    return ROW_BYTES + len(row.payload) + len(row.stdout) + len(row.stderr)


def with_crash_sites(payload: Payload, places: Sequence[str]) -> bytes:
    """The failure in ``payload`` with the names of the workers added."""
    failure = read_failure(payload)
    where = f"(crashed {len(places)} times, on {', '.join(places)})"
    return replace(failure, message=f"{failure.message} {where}").packed()
