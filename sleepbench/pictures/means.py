"""The figures that are drawn: the mean of the runs of each scenario and policy, and the paper's figures. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from deskgrid.sleepbench.scenarios import PAPER_MIN, PAPER_STDEV_MIN, Row

# A scenario of the paper has a number, a scenario from a file has a name.
Name = int | str


def called(scenario: Name) -> str:
    """The name of the scenario where the context does not say that it is one."""
    return f"scenario {scenario}" if isinstance(scenario, int) else scenario


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation; the latter is 0 for a single run."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Means:
    """All runs of one policy in one scenario."""

    scenario: Name
    policy: str
    makespan_min: Spread
    kills: Spread
    wasted_s: Spread
    lower_bound_min: float


def means(rows: Iterable[Row]) -> list[Means]:
    """The means for each scenario and policy, in order of first appearance."""
    runs: dict[tuple[Name, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row.scenario, row.policy), []).append(row)
    return [
        Means(
            scenario,
            policy,
            spread(row.makespan_min for row in some),
            spread(row.kills for row in some),
            spread(row.wasted_s for row in some),
            fmean(row.lower_bound_min for row in some),
        )
        for (scenario, policy), some in runs.items()
    ]


def spread(values: Iterable[float]) -> Spread:
    """Mean and deviation of at least one value."""
    known = list(values)
    return Spread(fmean(known), stdev(known) if len(known) > 1 else 0.0)


def of_the_paper(scenario: Name) -> Mapping[str, Spread]:
    """Table 2's figures for each policy in ``scenario``, in minutes; empty if the paper does not have that scenario."""
    return _TABLE_2.get(scenario, {})


_TABLE_2: Mapping[Name, Mapping[str, Spread]] = {
    number: {policy: Spread(PAPER_MIN[policy][number], PAPER_STDEV_MIN[policy][number]) for policy in PAPER_MIN}
    for number in range(4)
}


def scenarios_of(drawn: Iterable[Means]) -> list[Name]:
    """Each scenario once, in order."""
    return list(dict.fromkeys(each.scenario for each in drawn))


def policies_of(drawn: Iterable[Means]) -> list[str]:
    """Each policy once, in order."""
    return list(dict.fromkeys(each.policy for each in drawn))
