"""How much faster a moldable task is on more ranks. All are values that can be compared, hashed and sent.

A speed-up of n ranks is the runtime of one rank over the runtime of n ranks. It is 1 for one rank. Each is checked when
it is made, and raises `ValueError`.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Real


@dataclass(frozen=True, slots=True)
class Amdahl:
    """A task with a ``serial`` fraction (0 to 1) that does not become faster (Amdahl 1967): 1 / (s + (1 - s) / n)."""

    serial: float

    def __post_init__(self) -> None:
        if not (_is_number(self.serial) and 0.0 <= self.serial <= 1.0):
            raise ValueError(f"the serial fraction of a task is a number from 0 to 1, not {self.serial!r}")

    def of(self, ranks: int) -> float:
        """The runtime of one rank over that of ``ranks``."""
        return 1.0 / (self.serial + (1.0 - self.serial) / ranks)


@dataclass(frozen=True, slots=True)
class Downey:
    """A. B. Downey, A Model For Speedup of Parallel Programs, UCB/CSD-97-933, 1997.

    ``average``: A, the average parallelism (from 1), the most that the speed-up can be. ``sigma``: how much the
    parallelism varies (from 0: not at all, so the speed-up is linear up to A).
    """

    average: float
    sigma: float

    def __post_init__(self) -> None:
        if not (_is_number(self.average) and 1.0 <= self.average < inf):
            raise ValueError(f"the average parallelism of a task is a finite number from 1 up, not {self.average!r}")
        if not (_is_number(self.sigma) and 0.0 <= self.sigma < inf):
            raise ValueError(f"the variance of a task's parallelism is a finite number from 0 up, not {self.sigma!r}")

    def of(self, ranks: int) -> float:
        """The runtime of one rank over that of ``ranks``."""
        most, sigma = self.average, self.sigma
        if sigma >= 1.0:
            if ranks >= most + most * sigma - sigma:
                return most
            return ranks * most * (sigma + 1.0) / (sigma * (ranks + most - 1.0) + most)
        if ranks >= 2.0 * most - 1.0:
            return most
        if ranks >= most:
            return most * ranks / (sigma * (most - 0.5) + ranks * (1.0 - sigma / 2.0))
        return most * ranks / (most + sigma * (ranks - 1.0) / 2.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Speed-ups of some numbers of ranks, ascending, as they were measured; linear between them, and from (1, 1) on.

    With more ranks than the last it is as fast as with those.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a table of speed-ups has at least one number of ranks")
        for ranks, speedup in self.points:
            if not (ranks >= 1 and 0.0 < speedup < inf):
                raise ValueError(
                    f"a speed-up is a finite number above 0, of 1 rank or more, not {speedup!r} of {ranks!r}"
                )
            if ranks == 1 and speedup != 1.0:
                raise ValueError(f"the speed-up of one rank is 1, not {speedup!r}")
        if any(ranks >= after for (ranks, _), (after, _) in pairwise(self.points)):
            raise ValueError("a table of speed-ups has each number of ranks once, ascending")

    def of(self, ranks: int) -> float:
        """The runtime of one rank over that of ``ranks``."""
        place = bisect_right(self.points, (ranks, inf))
        (low, below) = self.points[place - 1] if place else (1, 1.0)
        if low == ranks or place == len(self.points):
            return below
        high, above = self.points[place]
        return below + (above - below) * (ranks - low) / (high - low)


def _is_number(value: object) -> bool:
    return isinstance(value, Real)
