"""How much faster a moldable task is on more ranks. All are values that can be compared, hashed and sent.

A speed-up of n ranks is the runtime of one rank over the runtime of n ranks. It is 1 for one rank.
"""

from dataclasses import dataclass
from typing import Protocol


class Speedup(Protocol):
    """The speed-up of a moldable task."""

    def of(self, ranks: int) -> float:
        """The runtime of one rank over that of ``ranks``."""


@dataclass(frozen=True, slots=True)
class Amdahl:
    """A task with a ``serial`` fraction (0 to 1) that does not become faster (Amdahl 1967): 1 / (s + (1 - s) / n)."""

    serial: float

    def of(self, ranks: int) -> float:
        """The runtime of one rank over that of ``ranks``."""
        return 1.0 / (self.serial + (1.0 - self.serial) / ranks)
