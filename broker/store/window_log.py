"""Which windows of workers were open: a row in the journal for each, written as it opens and as it closes.

Rule 1: what happened is only noted here; `write_down` puts it into the journal, once for all that has been received,
so that it is in the same transaction. While the disk is full it waits.
Rule 2: windows that an earlier life of the broker left open are closed at the last time at which it was there.
"""

import math

from deskgrid.broker.auth.rate_limit import RateLimit
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import How, WindowEnd, WindowRow
from deskgrid.wire import Join

# How often it is written down that the broker is there, though nothing may happen: as exactly as that the end of what
# was open is known when it is killed. Seconds.
SEEN_S = 60.0
# Windows of one worker that are written down: so many at once, and then one in so many seconds. A worker that comes and
# goes more often than that would fill the disk with them.
OPENINGS = 1_000
OPENING_S = 60.0


class WindowLog:
    """The windows of one life of the broker. ``wall_at_zero``: POSIX seconds when the broker's clock showed 0."""

    def __init__(self, journal: Journal, wall_at_zero: float) -> None:
        self._journal = journal
        self._wall_at_zero = wall_at_zero
        self._next = journal.next_window()
        # When the windows that are open in the journal ended, until that is written down.
        self._left_open: float | None = journal.last_known()
        self._open: dict[str, int] = {}
        self._opened: list[WindowRow] = []
        self._ended: list[WindowEnd] = []
        self._openings = RateLimit(OPENINGS, OPENING_S)
        self._seen_at = -math.inf

    def opened(self, worker: str, join: Join, now: float) -> None:
        """A window opened, as ``join`` says. One that is open already goes on."""
        if worker in self._open or not self._openings.take(worker, now):
            return
        wall = self._wall_at_zero + now
        planned = None if join.uptime is None else wall + join.uptime
        self._opened.append(WindowRow(self._next, worker, join.session, join.site, join.slots, wall, planned))
        self._open[worker] = self._next
        self._next += 1

    def ended(self, worker: str, how: How, now: float, kills: int = 0, wasted_s: float = 0.0) -> None:
        """A window closed; ``kills``: attempts that ran then, which had run ``wasted_s``."""
        if (number := self._open.pop(worker, None)) is not None:
            self._ended.append(WindowEnd(self._wall_at_zero + now, how, kills, wasted_s, number))

    def broker_ends(self, now: float) -> None:
        """The broker stops, and sees no more of the windows that are open."""
        for worker in list(self._open):
            self.ended(worker, "broker", now)

    def write_down(self, now: float) -> None:
        """Put into the journal what is new."""
        if self._left_open is not None:
            self._journal.end_all_windows(self._left_open)
            self._left_open = None
        if self._opened:
            self._journal.add_windows(self._opened)
            self._opened = []
        if self._ended:
            self._journal.end_windows(self._ended)
            self._ended = []
        if now >= self._seen_at + SEEN_S:
            self._journal.seen(self._wall_at_zero + now)
            self._seen_at = now
