"""Limits that have to hold beside hostile peers and large operations, and the allowances for a busy machine."""

import os
from pathlib import Path

from tests.counting import COUNTS
from tests.hostile.lab import Lab, Pings

# Whether the large forms are tried, each alone on its machine (``make soak ARGS="--only large"``).
LARGE = os.environ.get("HOSTILE") == "large"
# What a broker, or a worker, may have more at any time than when it started; bytes.
GROWTH = 256 * 2**20
# Another client's ping: 99 of a hundred, and the slowest. Seconds.
P99_S, WORST_S = 0.05, 0.5
# "make test" runs two tests beside each other on as few as two cores, with an attacker, a broker, and honest processes
# in each: a process that is due may wait for a core. The figures without this are for
# "make soak", whose parts run alone; those that were seen are told at the end of the tests.
SLACK = 1.0 if LARGE else 20.0


def unharmed(place: Lab, pings: Pings, what: str, *, slack: float = SLACK) -> None:
    """Everybody lives, the broker did not swell, and nobody waited. What was seen is said at the end of the tests."""
    grown, latency = place.grown(), pings.latency()
    COUNTS.append(f"hostile: {what}: broker's memory +{grown / 2**20:.0f} MiB, {latency}")
    assert grown <= GROWTH, f"the broker's memory grew by {grown / 2**20:.0f} MiB"
    assert latency.p99 <= slack * P99_S, str(latency)
    assert latency.worst <= slack * WORST_S, str(latency)


def size_of(home: Path) -> int:
    """The bytes of everything in a home."""
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
