"""What is counted of PCs: how much each has, and how much each rank of a task needs. Memory is one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

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
