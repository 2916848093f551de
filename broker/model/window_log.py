"""The windows of workers: a row in the journal for each, written when it opens and when it closes.

Rule 1: events are only collected here. `write_down` puts them into the journal once per batch of messages, in the same
transaction as everything else. While the disk is full they wait.
Rule 2: windows that an earlier life of the broker left open are closed at the last time at which the broker is known to
have run.
"""

import math

from deskgrid.broker.model.clocks import RateLimit, WallClock
from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import How, WindowEnd, WindowRow
from deskgrid.wire import SECONDS_LIMIT, Join

# How often the broker records that it runs, even when nothing happens. If it is killed, the ends of the open windows
# are known to within this time. Seconds.
SEEN_S = 60.0
# Windows of one worker that are recorded: `OPENINGS` at once, and then one every `OPENING_S` seconds. A worker that
# came and went more often would fill the disk.
OPENINGS = 1_000
OPENING_S = 60.0
# How long a worker is there before it vanishes, as long as nothing is known. Seconds.
FIRST_LOSS_S = 86_400.0


class WindowLog:
    """The windows of one life of the broker."""

    def __init__(self, journal: Journal, wall: WallClock) -> None:
        self._journal = journal
        self._wall = wall
        self._next = journal.recovery.next_window()
        # When the windows that are still open in the journal ended; None once that has been recorded.
        self._left_open: float | None = journal.recovery.last_known()
        self._open: dict[str, int] = {}
        self._opened: list[WindowRow] = []
        self._ended: list[WindowEnd] = []
        self._openings = RateLimit(OPENINGS, OPENING_S)
        self._seen_at = -math.inf
        # The seconds of all windows that have closed, and how many of them ended with a loss.
        self._attended_s, self._losses = journal.recovery.attendance()
        # By the broker's clock, and in POSIX seconds.
        self._opened_at: dict[int, tuple[float, float]] = {}

    def opened(self, worker: str, join: Join, now: float) -> None:
        """A window opened, as ``join`` says. If it was open already, nothing changes."""
        if worker in self._open or not self._openings.take(worker, now):
            return
        wall = self._wall.posix(now)
        planned = None if join.uptime is None else wall + join.uptime
        self._opened.append(WindowRow(self._next, worker, join.session, join.site, join.slots, wall, planned))
        self._open[worker] = self._next
        self._opened_at[self._next] = now, wall
        self._next += 1

    def ended(self, worker: str, how: How, now: float, kills: int = 0, wasted_s: float = 0.0) -> None:
        """A window closed; ``kills``: attempts that were running, and had run for ``wasted_s`` in all."""
        if (number := self._open.pop(worker, None)) is not None:
            opened, wall = self._opened_at.pop(number)
            lasted = now - opened  # also if the machine's clock was set meanwhile
            self._attended_s += lasted
            self._losses += how == "loss"
            self._ended.append(WindowEnd(wall + lasted, how, kills, wasted_s, number))

    @property
    def mean_time_to_loss_s(self) -> float:
        """How long a worker is there, on average, before it vanishes: a day as long as nothing is known."""
        # In a large lab that loses nobody, or by a clock that was wrong for a while, it would not fit into a message.
        return min((FIRST_LOSS_S + self._attended_s) / (1 + self._losses), SECONDS_LIMIT)

    def broker_ends(self, now: float) -> None:
        """The broker stops: it will not see how the open windows end."""
        for worker in list(self._open):
            self.ended(worker, "broker", now)

    def write_down(self, now: float) -> None:
        """Write the collected events into the journal."""
        if self._left_open is not None:
            self._journal.windows.end_all(self._left_open)
            self._left_open = None
        if self._opened:
            self._journal.windows.add(self._opened)
            self._opened = []
        if self._ended:
            self._journal.windows.end(self._ended)
            self._ended = []
        if now >= self._seen_at + SEEN_S:
            self._journal.seen(self._wall.posix(now))
            self._seen_at = now
