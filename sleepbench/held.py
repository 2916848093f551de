"""How well a broker's own estimates held: when bags would end, as it told, against when they ended."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from statistics import median

from deskgrid.broker.store.rows import ToldEtaRow
from deskgrid.scheduler.forecast.correction import STAGES, stage_of
from deskgrid.sleepbench.history import History

# The stages of a bag, by the percentage of its tasks that had ended.
_EDGES = [0, *(round(100 * edge) for edge in STAGES), 100]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """The estimates at one stage. The JSON has exactly these fields, which mean the same as those of sleepbench eta.

    ``stage``: which percentage of the tasks had ended; ``etas``: how many estimates of how many ``bags``.
    ``coverage90``: each bag counts alike. ``width_median``: None if most intervals had no end.
    """

    stage: str
    etas: int
    bags: int
    coverage90: float
    width_median: float | None
    point_error_median: float


def held(history: History) -> Iterator[HeldRow]:
    """A row for each stage with estimates. Bags that never ended, or of which tasks were cancelled, do not count."""
    ends = _ends(history)
    by_stage: defaultdict[int, list[ToldEtaRow]] = defaultdict(list)
    for each in history.etas:
        if each.bag in ends and each.made < ends[each.bag]:
            by_stage[stage_of(each.ended)].append(each)
    for stage, told in sorted(by_stage.items()):
        yield _row(f"{_EDGES[stage]} to {_EDGES[stage + 1]} %", told, ends)


def _ends(history: History) -> dict[int, float]:
    """When each bag ended that did, POSIX seconds."""
    found: dict[int, float] = {}
    for batch in history.batches:
        if not batch.bag.cancelled and not batch.bag.open:
            ended = [task.ended for task in batch.tasks if task.ended is not None]
            found[batch.bag.number] = max([found.get(batch.bag.number, 0.0), *ended])
    return found


def _row(stage: str, told: list[ToldEtaRow], ends: dict[int, float]) -> HeldRow:
    covered: defaultdict[int, list[bool]] = defaultdict(list)
    for each in told:
        covered[each.bag].append(each.low <= ends[each.bag] <= each.high)
    left = [ends[each.bag] - each.made for each in told]
    width = median((each.high - each.low) / seconds for each, seconds in zip(told, left, strict=True))
    return HeldRow(
        stage,
        len(told),
        len(covered),
        sum(sum(its) / len(its) for its in covered.values()) / len(covered),
        width if isfinite(width) else None,
        median(abs(each.median - ends[each.bag]) / seconds for each, seconds in zip(told, left, strict=True)),
    )
