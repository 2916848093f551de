"""Filling a window: the subset sum compared with trying every subset, and which waiting tasks it takes."""

import math
from bisect import bisect_left
from collections import Counter
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.policies.planning.subset_sum import LONGEST, MANY, SPREAD, STEPS, best_subset, candidates, fill

RUNTIMES = st.lists(st.floats(0.0, 100.0), max_size=9).map(sorted)
INTERVALS = st.floats(0.01, 300.0)


def fullest(runtimes: list[float], room: float, step: float = 0.0) -> float:
    """The largest sum of a subset that leaves of ``room`` more than ``step``, and as much for each of its tasks."""
    subsets = (chosen for count in range(len(runtimes) + 1) for chosen in combinations(runtimes, count))
    return max((sum(chosen) for chosen in subsets if sum(chosen) < room - (len(chosen) + 1) * step), default=0.0)


@given(RUNTIMES, INTERVALS)
def test_a_subset_is_the_best_to_within_a_step_for_each_task(runtimes: list[float], room: float) -> None:
    places, step = best_subset(runtimes, room), room / STEPS
    total = sum(runtimes[place] for place in places)
    assert places == sorted(set(places), reverse=True)
    assert total < room
    assert total >= fullest(runtimes, room, step) - len(places) * step - 1e-9


@given(st.lists(st.integers(0, 600), max_size=9).map(sorted))
def test_in_whole_steps_a_subset_is_the_best(sizes: list[int]) -> None:
    runtimes = [float(size) for size in sizes]
    total = sum(runtimes[place] for place in best_subset(runtimes, float(STEPS)))
    assert total == fullest(runtimes, float(STEPS))


@pytest.mark.parametrize(
    ("runtimes", "room", "taken"),
    [
        ([], 10, []),
        ([10], 10, []),
        ([11], 10, []),
        ([9], 10, [9]),
        ([2, 3, 5], 10, [5, 3]),
        ([2, 3, 5], 10.1, [5, 3, 2]),
        ([1, 2, 3], 4, [3]),
        ([1, 2, 2.5, 3.5, 4], 8, [4, 3.5]),
        ([1, 2, 3, 5, 6], 10, [6, 3]),
        ([1, 1, 1, 1, 4], 5, [4]),
        ([1, 1, 1, 1, 4], 8, [4, 1, 1, 1]),
        ([0, 0, 4], 4.5, [4, 0, 0]),
        ([4, 4, 4], 8.5, [4, 4]),
    ],
)
def test_of_equal_sums_that_with_longer_tasks_is_taken(runtimes: list[float], room: float, taken: list[float]) -> None:
    assert [runtimes[place] for place in best_subset(runtimes, room)] == taken


def test_a_window_is_never_filled_to_the_last_step() -> None:
    room = float(STEPS)
    assert best_subset([room - 1.0], room) == [0]
    assert best_subset([math.nextafter(room - 1.0, math.inf)], room) == []
    assert best_subset([room / 2, room / 2], room) == [1]


@pytest.mark.parametrize("fitting", [0, 1, LONGEST + SPREAD])
def test_of_few_tasks_all_are_candidates(fitting: int) -> None:
    assert candidates(fitting) == list(range(fitting))


@pytest.mark.parametrize("fitting", [LONGEST + SPREAD + 1, 100, 10_000])
def test_of_many_tasks_the_longest_are_candidates_and_some_spread_over_the_rest(fitting: int) -> None:
    places = candidates(fitting)
    assert places == sorted(set(places))
    assert len(places) == LONGEST + SPREAD
    assert places[SPREAD:] == list(range(fitting - LONGEST, fitting))
    assert places[0] == 0
    gaps = [after - before for before, after in pairwise(places[: SPREAD + 1])]
    assert max(gaps) - min(gaps) <= 1


@given(RUNTIMES, INTERVALS, st.booleans())
def test_filling_takes_tasks_out_and_loses_none(runtimes: list[float], room: float, force: bool) -> None:
    left = list(runtimes)
    taken = fill(left, room, force=force)
    assert Counter(left) + Counter(taken) == Counter(runtimes)
    assert left == sorted(left)
    assert sum(taken) < room + 1e-9
    assert not bisect_left(left, room - sum(taken) - 1e-9), "what is left of the window would still hold one"
    if force and (fitting := bisect_left(runtimes, room)):
        assert taken[0] == runtimes[fitting - 1]


@given(RUNTIMES, INTERVALS)
def test_a_filled_window_is_as_full_as_can_be(runtimes: list[float], room: float) -> None:
    longest = max((runtime for runtime in runtimes if runtime < room), default=0.0)
    taken, step = fill(list(runtimes), room), room / STEPS
    if room <= MANY * longest:
        assert sum(taken) >= fullest(runtimes, room, step) - len(taken) * step - 1e-9


def test_a_window_that_holds_many_gets_the_longest_first() -> None:
    runtimes = [1.0] * 20 + [2.0] * 10 + [3.0]
    taken = fill(runtimes, 3.0 * MANY + 0.5)
    assert taken == [3.0] + [2.0] * 10 + [1.0] * 13
    assert runtimes == [1.0] * 7


def test_a_window_that_holds_just_not_so_many_is_filled_exactly() -> None:
    """Twelve of the longest leave a gap, which eleven and some shorter ones do not."""
    room = 10.0 * MANY
    assert room - sum(fill([9.0] * 30 + [10.0] * 30, room)) < 1.0 + 1e-9
    assert fill([9.5] * 30 + [10.0] * 30, room)[0] == 10.0


def test_forced_the_longest_is_taken_whatever_gap_that_leaves() -> None:
    runtimes = [4.0, 4.0, 5.0]
    assert fill(list(runtimes), 8.5) == [4.0, 4.0]
    assert fill(list(runtimes), 8.5, force=True) == [5.0]


def test_what_rounding_left_is_filled_once_more() -> None:
    """Four tasks fill a window to less than four steps: rounded up there seems to be room for no more than three."""
    runtimes = [100.5, 200.5, 300.5, 421.7]
    room = sum(runtimes) + 0.01
    assert len(best_subset(runtimes, room)) == 3
    assert sorted(fill(list(runtimes), room)) == runtimes
