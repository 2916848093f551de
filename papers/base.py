"""What a paper is to the benchmark: its experiments, the runs that they consist of, and the rows that these yield.

Rule 1: a trial depends only on its own fields. All randomness comes from its seed. So the rows do not depend on the
number of processes, and one seed draws the same work for every policy.
Rule 2: a trial may yield the rows of several policies, or of several experiments, if one run knows them all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

# The policies of our own, by name: each paper's experiments try them beside its own.
OURS: tuple[str, ...] = ("packing",)


class PaperError(Exception):
    """An experiment cannot be made from what was given; says why."""


@dataclass(frozen=True, slots=True)
class TrialRow:
    """What one run came to. ``more``: what else identifies it, or was measured beside it."""

    paper: str
    experiment: str
    case: str
    policy: str
    seed: int
    value: float
    unit: str
    more: Mapping[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """As ``--json`` has it."""
        own = ("paper", "experiment", "case", "policy", "seed", "value", "unit")
        return {name: getattr(self, name) for name in own} | dict(self.more)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table. ``cases``: its lines, and ``policies``: its columns, as they are named in rows.

    ``by``: what the cases are; ``value``: what is measured, in ``unit``. ``optional``: made only if it is asked for.
    """

    title: str
    by: str
    value: str
    unit: str
    cases: Sequence[str]
    policies: Sequence[str]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class AskedExperiments:
    """What the command line chose: experiments of the paper, and the beginnings of cases; no policies means all."""

    experiments: Sequence[str]
    cases: Sequence[str]
    policies: Sequence[str]
    seeds: Sequence[int]
    swf: Path | None = None

    def wants(self, experiment: str, case: str, policy: str) -> bool:
        """Whether a row is asked for. The case ``A1/0.75`` stands for all cases that begin with it and a slash."""
        return (
            experiment in self.experiments
            and (not self.policies or policy in self.policies)
            and (not self.cases or any(f"{case}/".startswith(f"{start}/") for start in self.cases))
        )


class PaperTrial(Protocol):
    """One run to make, which another process can be given."""

    def rows(self) -> Sequence[TrialRow]:
        """Make it."""


@dataclass(frozen=True, slots=True)
class Paper:
    """``trials``: what has to be run for what was asked; it raises `PaperError`. ``runs``: how many seeds, if not said.

    ``swf``: whether it can read its work from a log.
    """

    name: str
    title: str
    experiments: Mapping[str, Experiment]
    trials: Callable[[AskedExperiments], Sequence[PaperTrial]]
    runs: int
    swf: bool = False
