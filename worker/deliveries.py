"""Results on their way to the broker's journal.

Rule: a result is kept until the broker says that it has written it, and sent again on each new connection.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from deskgrid import wire

# Maximum bytes of unconfirmed results. The worker sends no more until the broker has written some of them to its
# journal, so a PC that returns with many large results does not flood the broker.
FLYING_BYTES = wire.PAYLOAD_LIMIT

RowT = TypeVar("RowT", wire.Result, wire.RankResult)


class Deliveries(Generic[RowT]):
    """``key``: what a result is known by. ``message``: carries results."""

    def __init__(self, key: Callable[[RowT], Hashable], message: Callable[[tuple[RowT, ...]], wire.Message]) -> None:
        self._key: Callable[[RowT], Hashable] = key
        self._message: Callable[[tuple[RowT, ...]], wire.Message] = message
        # By key, each with the slot that it came from.
        self.unwritten: dict[Hashable, tuple[int, RowT]] = {}
        # Results not yet sent over this connection, and the bytes of each that was sent but is not yet written.
        self._unsaid: deque[RowT] = deque()
        self._flying: dict[Hashable, int] = {}
        self._flying_bytes = 0

    def keep(self, slot: int, row: RowT) -> None:
        """Keep a result until it is written."""
        self.unwritten[self._key(row)] = slot, row

    def send(self, rows: Iterable[RowT] = ()) -> list[wire.Message]:
        """Queue results; return the messages with those that may be sent now."""
        self._unsaid += rows
        found = []
        while self._unsaid and self._flying_bytes < FLYING_BYTES:
            batch = next(wire.in_batches(self._unsaid, _size_of, wire.RESULTS_ROWS))
            for row in batch:
                self._unsaid.popleft()
                size = self._flying[self._key(row)] = _size_of(row)
                self._flying_bytes += size
            found.append(self._message(tuple(batch)))
        return found

    def reconnected(self) -> list[RowT]:
        """Forget what was sent over the last connection; return all that is to be sent again."""
        self._unsaid.clear()
        self._flying.clear()
        self._flying_bytes = 0
        return [row for _, row in self.unwritten.values()]

    def taken(self, keys: Sequence[Hashable]) -> list[wire.Message]:
        """The broker has written these; return the messages for which there is room now."""
        for key in keys:
            self.unwritten.pop(key, None)
            self._flying_bytes -= self._flying.pop(key, 0)
        return self.send()


def _size_of(row: wire.Result | wire.RankResult) -> int:
    return len(row.payload) + len(row.stdout) + len(row.stderr)
