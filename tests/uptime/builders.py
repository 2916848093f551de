"""Instants and zones for the tests of planned uptime."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from deskgrid.worker.windows.uptime import Instant

BRUSSELS = "Europe/Brussels"

# Some machines' monotonic clock is far from zero; a plan must not care.
BOOT = 1_234_567.890123


def at(local: str, zone: str = BRUSSELS, fold: int = 0) -> Instant:
    """Return the instant at which clocks in ``zone`` show ``local``; of two, the first unless ``fold`` is 1."""
    wall = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()
    return Instant(wall, BOOT)


def after(seconds: float, start: Instant) -> Instant:
    """Return the instant ``seconds`` after ``start``, with clocks that nobody set."""
    return Instant(start.wall + seconds, start.mono + seconds)


@contextmanager
def machine_zone(monkeypatch: pytest.MonkeyPatch, zone: str) -> Iterator[None]:
    """Make ``zone`` the zone of this machine for a while."""
    if not hasattr(time, "tzset"):
        pytest.skip("a process cannot choose its zone here")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()
