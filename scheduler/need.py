"""What one task needs beside its seconds: how many ranks, on how many slots each, and what their PCs must have."""

from dataclasses import dataclass, replace
from typing import Protocol

from deskgrid.scheduler.amounts import NOTHING, Amounts


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
