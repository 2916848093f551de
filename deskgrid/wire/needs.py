"""The fields that say what a task needs beside its seconds, and what a PC has: ranks, slots, labels, speed-ups."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from deskgrid.wire.fields import Integer, Ratio, Word
from deskgrid.wire.limits import (
    MEMORY_LIMIT,
    PROCESSORS_LIMIT,
    RANKS_LIMIT,
    SPEED_LEAST,
    SPEED_MOST,
    SPEEDUP_LIMIT,
    SPEEDUPS_LIMIT,
)
from deskgrid.wire.source import Source, Wrong

LABEL = r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}"
Label = Annotated[str, Word(re.compile(LABEL), "1 to 64 letters, digits or . _ = -, like gpu")]
# What is counted of a PC beside slots and memory, and how much of it the PC has or a task needs, to a thousandth.
RESOURCE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_RESOURCE = RESOURCE_NAME + r"=[0-9]{1,16}(?:\.[0-9]{1,3})?"
Resource = Annotated[str, Word(re.compile(_RESOURCE), "a name and an amount, like gpu=1")]
Resources = tuple[str, ...]
# Of an amount of 1, what is counted.
RESOURCE_UNIT = 1000
# By which other PCs of its site reach a PC.
Address = Annotated[str, Word(re.compile(r"[A-Za-z0-9.:%_-]{1,64}"), "an address of 1 to 64 characters")]
# Of a network card.
MacAddress = Annotated[str, Word(re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"), "an address like 00:1b:44:11:3a:b7")]
# How fast a PC is; 1 for the fastest.
Speed = Annotated[float, Ratio(SPEED_LEAST, SPEED_MOST)]
# Bytes of memory, and processors, of a PC; 0: unknown. The memory that a rank needs; 0: no matter.
Memory = Annotated[int, Integer(0, MEMORY_LIMIT)]
Processors = Annotated[int, Integer(0, PROCESSORS_LIMIT)]
Rank = Annotated[int, Integer(0, RANKS_LIMIT - 1)]
Ranks = Annotated[int, Integer(1, RANKS_LIMIT)]


@lru_cache(256)
def counted(resources: Resources) -> tuple[tuple[str, int], ...]:
    """Names and amounts, in thousandths."""
    pairs = [each.split("=") for each in resources]
    return tuple([(name, round(float(amount) * RESOURCE_UNIT)) for name, amount in pairs])


@dataclass(frozen=True, slots=True)
class LeastAndMost:
    """Two integers, the second not smaller than the first."""

    least: int
    most: int

    def read(self, source: Source) -> tuple[int, int]:
        """Read the next array."""
        values = [Integer(self.least, self.most).one(value) for value in source.many(2)]
        if len(values) != 2:
            raise Wrong(f"{len(values)} numbers, not two")
        if values[0] > values[1]:
            raise Wrong(f"at least {values[0]} and at most {values[1]}")
        return values[0], values[1]

    def __str__(self) -> str:
        return f"two, from {self.least:,} to {self.most:,}"


# A speed-up as it travels: ("amdahl", serial), ("downey", A, sigma), or ("table", ranks, speed-up, ranks, ...).
PackedSpeedup = tuple[str | int | float, ...]


@dataclass(frozen=True, slots=True)
class SpeedupField:
    """How much faster a moldable task is on more ranks: a `PackedSpeedup`, or nothing."""

    def read(self, source: Source) -> PackedSpeedup:
        """Read the next array."""
        values = source.many(1 + 2 * SPEEDUPS_LIMIT)
        if values:
            _check_speedup(*values)
        return tuple(values)

    def __str__(self) -> str:
        return f"a formula of two numbers, or {SPEEDUPS_LIMIT} pairs of numbers"


def _check_speedup(kind: Any, *numbers: Any) -> None:
    """Raise `Wrong` unless these are a speed-up."""
    if kind == "amdahl" and len(numbers) == 1:
        Ratio(0.0, 1.0).one(numbers[0])
    elif kind == "downey" and len(numbers) == 2:
        Ratio(1.0, SPEEDUP_LIMIT).one(numbers[0])
        Ratio(0.0, SPEEDUP_LIMIT).one(numbers[1])
    elif kind == "table" and numbers and len(numbers) % 2 == 0:
        _check_table(numbers[::2], numbers[1::2])
    else:
        raise Wrong("not a speed-up")


def _check_table(sizes: tuple[Any, ...], speedups: tuple[Any, ...]) -> None:
    before = 0
    for ranks in sizes:
        if Integer(1, RANKS_LIMIT).one(ranks) <= before:
            raise Wrong("a table of speed-ups whose numbers of ranks do not grow")
        before = ranks
    for ranks, speedup in zip(sizes, speedups, strict=True):
        Ratio(1 / SPEEDUP_LIMIT, SPEEDUP_LIMIT).one(speedup)
        if ranks == 1 and speedup != 1.0:
            raise Wrong("the speed-up of one rank is 1")
