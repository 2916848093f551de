"""What each PC was doing in the past hours: one letter for each short stretch of time. Pure."""

from collections.abc import Iterable
from typing import Any

from deskgrid.wire.status import WorkerState

# The length of a stretch in seconds, and how many are kept: twelve hours.
BIN_S = 20.0
BINS = 2_160
# What was so before and after a gap that is shorter was so meanwhile: of a large grid, not every stretch is heard of.
GAP_S = 45.0
# PCs whose past is kept. A status document has 2,000; names come and go.
ROWS = 4_000

# From what matters least to what matters most; of a stretch, what mattered most is kept. ".": not known; "-": away, as
# planned; "0" to "9": there, and how much of it was busy; "p": its owner came first; "q": put aside; "x": lost.
CODES = b".-0123456789pqx"


class Timelines:
    """The past of all PCs, in stretches of ``bin_s`` seconds."""

    def __init__(self, bin_s: float = BIN_S) -> None:
        self._bin_s = bin_s
        self._rows: dict[str, bytearray] = {}
        self._bin: int | None = None

    def add(self, workers: Iterable[WorkerState], now: float) -> None:
        """Keep what a status document says of PCs."""
        self._begin(int(now // self._bin_s))
        for worker in workers:
            if worker["name"] not in self._rows and len(self._rows) >= ROWS:
                continue
            row = self._rows.setdefault(worker["name"], bytearray(b"."))
            row[-1] = max(row[-1], _code(worker), key=CODES.index)

    def _begin(self, number: int) -> None:
        """Begin the stretch that it is now, if that has not begun; forget PCs of which nothing is known."""
        passed = 0 if self._bin is None else min(number - self._bin, BINS)
        self._bin = number
        if passed <= 0:
            return
        self._rows = {name: row for name, row in self._rows.items() if row.strip(b".")}
        for row in self._rows.values():
            between = row[-1:] if passed * self._bin_s <= GAP_S else b"."
            row.extend(between * (passed - 1) + b".")
            del row[:-BINS]

    def rows(self) -> dict[str, Any]:
        """All of it: of each PC the letters, which end with the stretch that it is now."""
        return {"bin_s": self._bin_s, "pcs": {name: row.decode() for name, row in list(self._rows.items())}}


def _code(worker: WorkerState) -> int:
    if worker["state"] != "up":
        return ord("x" if worker["state"] == "lost" else "-")
    if worker["quarantine_s"] is not None:
        return ord("q")
    if worker["paused"]:
        return ord("p")
    return ord("0") + -(-9 * worker["busy"] // max(1, worker["slot_count"]))
