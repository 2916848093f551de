"""`packing` against the optimum: on grids that are small enough to try every assignment of tasks to windows."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from random import Random

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, RealWindow, SimulatedPC, Simulator
from deskgrid.scheduler.simulation.timetable import Timetable

CASES = 100
# Measured: 95 of 100 exactly (286 of 300), the others at most 1.067 (1.075) times the optimum, on average 1.001.
EXACTLY = 95
WORST = 1.07


@dataclass(frozen=True, slots=True)
class Case:
    """Whole seconds, so that what is a strict fit is not a matter of rounding."""

    timetables: tuple[Timetable, ...]
    runtimes: tuple[int, ...]

    def windows(self) -> list[tuple[float, float]]:
        """(opens, lasts) of the first windows of every slot, the first to open first."""
        spans = chain.from_iterable(islice(timetable(), 40) for timetable in self.timetables)
        return sorted((span.opens, span.closes - span.opens) for span in spans)

    def makespan(self) -> float:
        """What the policy makes of it, with all windows announced."""
        policy = make_policy("packing", margin=0, queue_s=0, confidence=0)
        pcs = [SimulatedPC(f"pc{number}", timetable) for number, timetable in enumerate(self.timetables)]
        run = Simulator(policy, pcs, [Arrival(self.runtimes)]).run()
        assert run.counters.kills == 0
        return run.makespan_s


@dataclass(frozen=True, slots=True)
class Repeated:
    """Three or four windows, in turn for ever: (away before it, up) of each."""

    windows: tuple[tuple[int, int], ...]

    def __call__(self) -> Iterator[RealWindow]:
        closes = 0
        while True:
            for away, up in self.windows:
                yield RealWindow(closes + away, closes + away + up, closes + away + up)
                closes += away + up


def case(seed: int) -> Case:
    """Two or three slots, three or four windows each (then the same again), four to seven tasks."""
    chance = Random(seed)
    timetables = tuple(
        Repeated(tuple((chance.choice((1, 1, 2, 10)), chance.randint(5, 40)) for _ in range(chance.randint(3, 4))))
        for _ in range(chance.randint(2, 3))
    )
    longest = max(up for timetable in timetables for _, up in timetable.windows)
    runtimes = tuple(chance.randint(2, min(30, longest - 1)) for _ in range(chance.randint(4, 7)))
    return Case(timetables, runtimes)


def optimum(windows: list[tuple[float, float]], runtimes: tuple[int, ...]) -> float:
    """The earliest end of all assignments of tasks to windows in which each window holds less than it lasts."""
    longest_first = sorted(runtimes, reverse=True)
    left = [0, *accumulate(reversed(longest_first))][::-1]
    used = [0] * len(windows)
    best = float("inf")

    def assign(place: int, end: float) -> None:
        nonlocal best
        if not left[place]:
            best = end
            return
        for number, (opens, lasts) in enumerate(windows):
            if opens >= best:
                break
            total = used[number] + longest_first[place]
            if total < lasts and max(end, opens + total) < best:
                used[number] = total
                assign(place + 1, max(end, opens + total))
                used[number] = total - longest_first[place]

    assign(0, 0.0)
    return best


def test_the_optimum_is_found_by_trying_everything() -> None:
    windows = [(0.0, 10.0), (0.0, 7.0), (11.0, 10.0)]
    assert optimum(windows, (9, 6)) == 9
    assert optimum(windows, (4, 5, 6)) == 9
    assert optimum(windows, (5, 5, 6)) == 16
    assert optimum(windows, (9, 9, 9)) == float("inf")


@pytest.mark.no_cover
def test_packing_meets_the_optimum_of_tiny_grids_and_is_never_better() -> None:
    cases = [case(seed) for seed in range(CASES)]
    ratios = [case.makespan() / optimum(case.windows(), case.runtimes) for case in cases]
    assert min(ratios) == 1.0, "a task has run in a window that cannot hold it"
    assert sum(ratio == 1.0 for ratio in ratios) >= EXACTLY
    assert max(ratios) <= WORST
