"""PCs that should be there: they have a key, the broker's file has an open window for them, and they are not up. Pure.

Rule 1: a PC without a window in the file is not expected: nobody has said when it is there. Nor is one that is drained.
Rule 2: a PC has `GRACE_S` to come, after its window opens and after the broker starts.
"""

from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.opened import opened
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.wire.status import AbsentPC

# Seconds between two looks, and how late a PC may be.
LOOK_S = 10.0
GRACE_S = 300.0
# Rows in the status document.
ABSENT_ROWS = 200


class Absences:
    """``rows``: the PCs that should be there, those that are missed longest first."""

    def __init__(self, state: BrokerState, workers: WorkerSessions) -> None:
        self._state = state
        self._workers = workers
        # When to look again.
        self.look_at = 0.0
        self._seen: dict[str, float] | None = None
        self._absent: dict[str, float] = {}

    def rows(self) -> list[AbsentPC]:
        """The PCs that should be there and are not."""
        now = self._state.wall.posix(self._state.now)
        windows = self._state.windows_file.content
        longest = sorted(self._absent.items(), key=lambda item: (item[1], item[0]))[:ABSENT_ROWS]
        return [
            {"pc": pc, "since_s": max(0.0, now - since), "plan": windows.said_for(pc), "seen_s": self._seen_s(pc, now)}
            for pc, since in longest
        ]

    @property
    def count(self) -> int:
        """How many PCs should be there and are not."""
        return len(self._absent)

    def look(self, now: float) -> None:
        """Find the PCs that should be there, and note those that are new."""
        self.look_at = now + LOOK_S
        state = self._state
        if not state.windows_file.content.tables:
            self._absent = {}
            return
        posix, started = state.wall.posix(now), state.wall.posix(0.0)
        if self._seen is None:
            self._seen = state.journal.windows.last_seen()
        there = {worker.who.name for worker in self._workers.by_name.values() if worker.state == "up"}
        self._seen.update(dict.fromkeys(there, posix))
        openings: dict[str, float | None] = {}
        absent: dict[str, float] = {}
        for name in self._workers.with_keys():
            if name in there or name in state.drains.of:
                continue
            table = state.windows_file.content.table_for(name)
            if table is None:
                continue
            if table not in openings:
                openings[table] = opened(table, posix)
            since = openings[table]
            if since is not None and posix >= max(since, self._seen.get(name, started), started) + GRACE_S:
                absent[name] = max(since, self._seen.get(name, 0.0))
        for name in sorted(absent.keys() - self._absent.keys()):
            state.note("pc-missing", name=name, plan=state.windows_file.content.said_for(name))
        self._absent = absent

    def _seen_s(self, pc: str, now: float) -> float | None:
        seen = (self._seen or {}).get(pc)
        return None if seen is None else max(0.0, now - seen)
