"""Limits that have to hold beside hostile peers and large operations, and the allowances for a busy machine."""

import os
from pathlib import Path

from tests.counting import COUNTS
from tests.hostile.lab import Lab, Pings

# Whether the large forms are tried, each alone on its machine (``make soak ARGS="--only large"``).
LARGE = os.environ.get("HOSTILE") == "large"
# What a broker, or a worker, may have more at any time than when it started; bytes.
GROWTH = 256 * 2**20
# Another client's ping: 99 of a hundred, and the slowest. Beats (`tests.pace`) of the same time: about 0.05 and 0.5 s.
P99, WORST = 25.0, 250.0
# The figures without this are for "make soak" on a machine that does nothing else. An attacker, a broker, honest
# processes and whatever else there is share as few as two cores: a process that is due may wait for one. What was seen
# is told at the end of the tests.
SLACK = 1.0 if LARGE else 10.0


def unharmed(place: Lab, pings: Pings, what: str, *, slack: float = SLACK) -> None:
    """Everybody lives, the broker did not swell, and nobody waited. What was seen is said at the end of the tests."""
    grown, latency = place.grown(), pings.latency()
    COUNTS.append(f"hostile: {what}: broker's memory +{grown / 2**20:.0f} MiB, {latency}")
    assert grown <= GROWTH, f"the broker's memory grew by {grown / 2**20:.0f} MiB"
    assert latency.p99 <= slack * P99 * latency.beat, str(latency)
    assert latency.worst <= slack * WORST * latency.beat, str(latency)


def size_of(home: Path) -> int:
    """The bytes of everything in a home."""
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
