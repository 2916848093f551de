"""What a worker's PC is, and what others use of it, measured while the worker runs."""

from collections.abc import Callable

from deskgrid.wire import MEMORY_LIMIT
from deskgrid.worker.pc.address import LOCAL, free_port
from deskgrid.worker.pc.load import others_load
from deskgrid.worker.pc.memory import MemoryUnknown, memory_of_this_pc
from deskgrid.worker.pc.speed import SpeedMeasurement
from deskgrid.worker.windows.announcements import Powers


class ThisPc:
    """What this PC is, and what others use of it. ``address``: by which other PCs reach it."""

    def __init__(self, address: str | None, measurement: SpeedMeasurement | None) -> None:
        self.address = address
        self._measurement = measurement
        self._load = others_load()

    def memory(self, say: Callable[[str], None]) -> int:
        """Return the bytes of memory for tasks; 0 if nobody knows."""
        try:
            return min(memory_of_this_pc(), MEMORY_LIMIT)
        except MemoryUnknown as error:
            say(f"{error}; give --memory, or tasks that say how much they need do not run here")
            return 0

    def measure(self, powers: Powers, now: float, wait_s: float = 0.0) -> None:
        """Note what has been measured in the meantime."""
        if self._measurement is not None and (speed := self._measurement.speed(wait_s)) is not None:
            powers.speed, self._measurement = speed, None
        if self._load is not None and self._load.sample(now):
            powers.loads = self._load.means

    def free_port(self, ports: tuple[int, int] | None) -> int:
        """Return a port for a gang."""
        return free_port(self.address or LOCAL, ports)
