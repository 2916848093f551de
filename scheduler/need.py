"""What one task needs beside its seconds: how many ranks, on how many slots each, and what their PCs must have.

And what is counted of PCs: how much each has, and how much each rank of a task needs. Memory is one of these amounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol

# What memory is called, in bytes. Other amounts have the names and units that people give them.
MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Amounts:
    """``by_name``: sorted, without those of 0. There is nothing of what has no name here."""

    by_name: tuple[tuple[str, float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def __getitem__(self, name: str) -> float:
        for each, amount in self.by_name:
            if each == name:
                return amount
        return 0

    def __add__(self, other: "Amounts") -> "Amounts":
        if not (self.by_name and other.by_name):
            return self if self.by_name else other
        names = {name for name, _ in self.by_name + other.by_name}
        return amounts({name: self[name] + other[name] for name in names})

    def __sub__(self, other: "Amounts") -> "Amounts":
        return self + other * -1 if other.by_name else self

    def __mul__(self, count: int) -> "Amounts":
        return Amounts(tuple([(name, amount * count) for name, amount in self.by_name if count]))

    def within(self, whole: "Amounts") -> bool:
        """Whether ``whole`` has as much of everything."""
        return not self.lacking(whole)

    def lacking(self, whole: "Amounts") -> tuple[tuple[str, float], ...]:
        """What ``whole`` has too little of, and how much it has."""
        return tuple([(name, whole[name]) for name, amount in self.by_name if amount > whole[name]])

    def times(self, whole: "Amounts", most: int) -> int:
        """How many times ``whole`` has as much, up to ``most``."""
        for name, amount in self.by_name:
            if (has := whole[name]) < inf:
                most = min(most, int(has // amount))
        return most


def amounts(by_name: Mapping[str, float]) -> Amounts:
    """The amounts with these names."""
    return Amounts(tuple(sorted([(name, amount) for name, amount in by_name.items() if amount])))


def of_memory(count: float) -> Amounts:
    """So many bytes of memory, and nothing else."""
    return amounts({MEMORY: count})


NOTHING = Amounts()
# Of a PC of which nobody knows how much memory it has.
UNBOUNDED = of_memory(inf)


class Speedup(Protocol):
    """The speed-up of a moldable task."""

    def of(self, ranks: int) -> float:
        """The runtime of one rank over that of ``ranks``."""


@dataclass(frozen=True, slots=True)
class Need:
    """One value for a whole bag.

    ``least``, ``most``: its ranks, at once, on PCs of one site; not equal: the task is moldable, and the scheduler
    chooses when it starts. ``slots``: how many slots of one PC each rank occupies. ``amounts``: what each rank needs
    of what is counted. ``labels``: what its PCs must have. ``speedup``: of a moldable task; None: its runtime is that
    of the whole. ``gang``: it was asked for as a gang, and is placed as one, even if it has one rank.
    """

    least: int = 1
    most: int = 1
    slots: int = 1
    amounts: Amounts = NOTHING
    labels: frozenset[str] = frozenset()
    speedup: Speedup | None = None
    gang: bool = False

    @property
    def parallel(self) -> bool:
        """Whether a policy for parallel tasks places it: it needs more than one slot at once, or is a gang of one."""
        return self.most > 1 or self.slots > 1 or self.gang

    @property
    def width(self) -> int:
        """How many slots a task has at least, for as long as its runtime says."""
        return self.slots * (self.least if self.speedup is None else 1)

    def within(self, environment: str) -> "Need":
        """The same need, of PCs where an environment is ready: these have a label for it. Empty: of any PC."""
        return replace(self, labels=self.labels | {label_of(environment)}) if environment else self

    def seconds(self, runtime: float, ranks: int) -> float:
        """How long it takes on ``ranks`` ranks of speed 1: ``runtime`` is of one rank if it has a speed-up."""
        return runtime if self.speedup is None else runtime / self.speedup.of(ranks)


def label_of(environment: str) -> str:
    """The label that a PC has while an environment is ready there. No label that people give has a space."""
    return f"environment {environment}"


SINGLE = Need()
