"""The clocks of this machine, for the drivers of pure code."""

import time

from deskgrid.worker.windows.uptime import Instant


def read_clocks() -> Instant:
    """Read both clocks."""
    return Instant(wall=time.time(), mono=time.monotonic())
