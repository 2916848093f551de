"""PCs that somebody drained: they get nothing new, end what runs, and then their windows are closed.

Rule 1: a drain is of a PC, by its name: of all its workers, also of those that come later.
Rule 2: a drain is recorded, and a restart keeps it. It lasts until its time, or until somebody undoes it.
"""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import DrainRow
from deskgrid.durations import precise
from deskgrid.wire import SECONDS_LIMIT

# Names in one error or one line.
NAMED = 5


class Drains:
    """The drains in force, by PC. Times are POSIX seconds."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.of = {row.pc: row for row in journal.recovery.drains()}

    def put(self, row: DrainRow) -> None:
        """Drain a PC from now on, in the place of an earlier drain of it."""
        self._journal.drain(row)
        self.of[row.pc] = row

    def drop(self, pc: str) -> None:
        """End the drain of a PC."""
        self._journal.undrain(pc)
        del self.of[pc]

    def over(self, posix: float) -> list[str]:
        """The PCs whose drains have had their time."""
        return [pc for pc, row in self.of.items() if row.until is not None and row.until <= posix]

    def left_s(self, pc: str, posix: float) -> float | None:
        """The seconds for which a PC is drained; `SECONDS_LIMIT` until further notice; None: it is not."""
        row = self.of.get(pc)
        if row is None:
            return None
        return SECONDS_LIMIT if row.until is None else max(0.0, row.until - posix)

    def text(self, pc: str, posix: float) -> str:
        """Who drained a PC, and until when, for people; empty if nobody did."""
        row = self.of.get(pc)
        if row is None:
            return ""
        lasts = "until undone" if row.until is None else f"for {precise(max(0.0, row.until - posix))} more"
        return f"drained by {row.by} {lasts}"

    def line(self, posix: float) -> str:
        """All PCs that are drained, the first of them by name, in one line for people; empty if none is."""
        some = [f"{pc} ({self.text(pc, posix)})" for pc in sorted(self.of)[:NAMED]]
        return ", ".join(some) + (f" and {len(self.of) - NAMED} more" if len(self.of) > NAMED else "")


def chosen(patterns: Sequence[str], names: Collection[str], what: str) -> list[str]:
    """The names that match some pattern, sorted; case does not matter. ``what``: what has these names, for people.

    Raises ValueError, and names those that are like it, if a pattern matches none.
    """
    found = set[str]()
    for pattern in patterns:
        its = {name for name in names if fnmatchcase(name.lower(), pattern.lower())}
        if not its:
            raise ValueError(f"no {what} matches {pattern!r}{_like(pattern, names)}")
        found |= its
    return sorted(found)


def _like(pattern: str, names: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in names}
    if not by_lower:
        return ": there is none"
    close = get_close_matches(pattern.lower(), by_lower, n=NAMED, cutoff=0.4)
    if close:
        return f": did you mean {' or '.join([by_lower[each] for each in close])}?"
    some = sorted(by_lower.values())
    more = f" and {len(some) - NAMED} more" if len(some) > NAMED else ""
    return f": there are {', '.join(some[:NAMED])}{more}"
