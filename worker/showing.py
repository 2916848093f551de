"""What running tasks print, shown to the broker as it comes, as long as it says that somebody watches.

Nothing is sent of a task that nobody watches; of the others, at most `SHOWN_BYTES` of each stream in `SHOW_S`. Nothing
is repeated: what is lost with a connection is in the output that the task leaves when it ends.

Pure: ``now`` is monotonic seconds.
"""

import math

from deskgrid import wire
from deskgrid.worker.gangs import RunsRanks
from deskgrid.worker.run.jobs import RankKey
from deskgrid.worker.work import RunsJobs

# How often what a task prints is sent on. Seconds.
SHOW_S = 1.0


class Showing:
    """The attempts that are watched. ``jobs``, ``ranks``: what runs here."""

    def __init__(self, jobs: RunsJobs, ranks: RunsRanks) -> None:
        self._jobs = jobs
        self._ranks = ranks
        # Until when each attempt is watched; and how much of stdout and stderr was shown of each, or of its ranks.
        self._until: dict[tuple[int, int], float] = {}
        self._places: dict[RankKey, tuple[int, int]] = {}
        self._next = math.inf

    def watch(self, message: wire.ShowOutput, now: float) -> None:
        """Show what these attempts print, for a while. What they have printed so far is shown at once."""
        for task, number in message.attempts:
            if (task, number) not in self._until:
                self._next = now
            self._until[task, number] = now + message.seconds

    def disconnected(self) -> None:
        """Nobody watches, until the broker says so again."""
        self._until.clear()
        self._places.clear()
        self._next = math.inf

    def next(self, now: float) -> float:
        """Return the seconds until something may have to be said; infinity while nobody watches."""
        return self._next - now

    def say(self, now: float) -> list[wire.Message]:
        """Return what is due: what the watched attempts have printed since the last time."""
        if now < self._next:
            return []
        self._until = {attempt: until for attempt, until in self._until.items() if until > now}
        self._next = now + SHOW_S if self._until else math.inf
        jobs = [(task, number, 0) for _, task, number, _ in self._jobs.running(now) if (task, number) in self._until]
        ranks = [key for key in self._ranks.running(now) if key[:2] in self._until]
        rows = [row for key in jobs if (row := self._row(key, is_rank=False)) is not None]
        rows += [row for key in ranks if (row := self._row(key, is_rank=True)) is not None]
        self._places = {key: self._places[key] for key in (*jobs, *ranks) if key in self._places}
        some = wire.SHOWN_ROWS
        return [wire.OutputShown(tuple(rows[start : start + some])) for start in range(0, len(rows), some)]

    def _row(self, key: RankKey, *, is_rank: bool) -> wire.Shown | None:
        """Return what is new of an attempt or a rank; the first time also if that is nothing."""
        task, number, rank = key
        before = self._places.get(key)
        stdout, stderr = before or (0, 0)
        if is_rank:
            printed = self._ranks.shown(key, stdout, stderr, wire.SHOWN_BYTES)
        else:
            printed = self._jobs.shown(task, number, stdout, stderr, wire.SHOWN_BYTES)
        if printed is None:
            return None
        self._places[key] = printed.stdout_bytes, printed.stderr_bytes
        return None if before == self._places[key] else wire.Shown(task, number, rank, *printed)
