"""What the scheduler counts, and the figures a run is judged by."""

from dataclasses import dataclass

from deskgrid.scheduler.model import AttemptOutcome


@dataclass(slots=True)
class Counters:
    """Counts since the scheduler was made; seconds where the name ends in ``_s``.

    ``kills``: attempts that ran when their worker went; ``planned_kills``: those of them whose worker left as planned,
    the number this project exists to keep at 0. ``stale``: answers of old attempts, ignored. ``unfit``: placements that
    no longer fitted when their turn came. ``adopted``: attempts whose worker came back with them. ``pieces``: attempts
    of checkpointable tasks that ended with progress. ``no_room``: attempts whose worker could not store what they need;
    ``no_start``: those for which it could start no process.
    ``copies``: second attempts of running tasks; they are not in ``attempts``.
    ``overdue``: attempts taken back from workers that did not answer in time. ``window_s`` and
    ``busy_s`` cover only slots whose windows have closed.
    """

    submitted: int = 0
    attempts: int = 0
    done: int = 0
    errors: int = 0
    timeouts: int = 0
    crashes: int = 0
    cancelled: int = 0
    departures: int = 0
    losses: int = 0
    kills: int = 0
    planned_kills: int = 0
    stale: int = 0
    unfit: int = 0
    adopted: int = 0
    overdue: int = 0
    pieces: int = 0
    no_room: int = 0
    no_start: int = 0
    copies: int = 0
    wasted_s: float = 0.0
    window_s: float = 0.0
    busy_s: float = 0.0

    def count(self, outcome: AttemptOutcome) -> None:
        """One attempt ended."""
        if not outcome:  # done
            self.done += 1
        elif outcome == AttemptOutcome.ERROR:
            self.errors += 1
        elif outcome == AttemptOutcome.CRASH:
            self.crashes += 1
        elif outcome == AttemptOutcome.NO_ROOM:
            self.no_room += 1
        elif outcome == AttemptOutcome.NO_START:
            self.no_start += 1
        elif outcome == AttemptOutcome.PIECE:
            self.pieces += 1
        else:
            self.timeouts += 1
