"""What the papers print, beside what comes out here: read from the assumptions.toml of each paper.

Such a file has the paper's parameters (``[facts]``), what it leaves open (``[assumed]``, each with its reason as a
comment), and its results, one table ``[[printed]]`` each:

- ``value`` alone: the mean of one policy in one case;
- ``against``: ``value`` is how many percent one policy lies above (below: negative) the best of these others;
- ``order``: these policies, from the least value to the largest.

``within``: how far off it may be and still count as reproduced (percent of a mean; percentage points of a difference).
``by``: who found it, if not the paper. ``note``: what there is to say if it is not reproduced.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf
from statistics import fmean
from typing import Any

from deskgrid.papers import PAPERS
from deskgrid.papers.base import TrialRow

# How far off a figure may be, unless its table says otherwise.
WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class Printed:
    """One result that was printed."""

    experiment: str
    case: str
    policy: str = ""
    value: float = 0.0
    against: Sequence[str] = ()
    order: Sequence[str] = ()
    within: float = WITHIN
    by: str = "the paper"
    note: str = ""

    @property
    def absolute(self) -> bool:
        """Whether it is the mean of one policy."""
        return not (self.against or self.order)

    @property
    def policies(self) -> Sequence[str]:
        """All that it is about."""
        return self.order or (self.policy, *self.against)

    def what(self) -> str:
        """What it says, in a few words."""
        if self.order:
            return " < ".join(self.order)
        if len(self.against) == 1:
            return f"{self.policy} to {self.against[0]}"
        return f"{self.policy} to the best of the others" if self.against else self.policy


@dataclass(frozen=True, slots=True)
class Beside:
    """One printed result, and what it is here. ``ours``: a mean, or percent, or the policies in their order."""

    printed: Printed
    ours: float | Sequence[str]

    @property
    def reproduced(self) -> bool:
        """Whether both agree, as closely as the result asks for."""
        if not isinstance(self.ours, float):
            return list(self.ours) == list(self.printed.order)
        off = abs(self.ours - self.printed.value)
        return off <= self.printed.within * (abs(self.printed.value) / 100.0 if self.printed.absolute else 1.0)


@cache
def table_of(paper: str) -> dict[str, Any]:
    """The file of a paper, as it was read: ``table_of("rhap")``."""
    return tomllib.loads(files(PAPERS[paper]).joinpath("assumptions.toml").read_text(encoding="utf-8"))


def printed_in(paper: str) -> list[Printed]:
    """The results that this paper printed."""
    return [Printed(**each) for each in table_of(paper).get("printed", ())]


def beside(printed: Sequence[Printed], rows: Sequence[TrialRow]) -> Iterator[Beside]:
    """The printed results of which there are all the rows that they need."""
    for one in printed:
        means = {policy: mean_of(rows, one.experiment, one.case, policy) for policy in one.policies}
        known = {policy: mean for policy, mean in means.items() if mean is not None}
        if len(known) == len(means):
            yield Beside(one, _ours(one, known))


def mean_of(rows: Sequence[TrialRow], experiment: str, case: str, policy: str) -> float | None:
    """The mean over the seeds, and over all cases that begin so, as for ``--case``; None if there is no such row."""
    some = [row for row in rows if (row.experiment, row.policy) == (experiment, policy)]
    values = [row.value for row in some if f"{row.case}/".startswith(f"{case}/")]
    return fmean(values) if values else None


def _ours(printed: Printed, means: dict[str, float]) -> float | Sequence[str]:
    if printed.order:
        return sorted(printed.order, key=means.__getitem__)
    mean = means[printed.policy]
    if printed.absolute:
        return mean
    best = min([means[policy] for policy in printed.against], default=inf)
    return 100.0 * (mean / best - 1.0)
