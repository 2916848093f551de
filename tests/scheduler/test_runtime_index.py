"""Runs of tasks, compared with sorted lists; their small memory; and that their check finds errors."""

import math
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.model import InvariantBroken
from deskgrid.scheduler.queues.runtime_index import LEAF, START, Fence, RuntimeIndex
from deskgrid.scheduler.queues.task_ranges import Spans, TaskRanges, grouped

Row = tuple[float, int, int]  # negated runtime, arrival, task


def each(runs: RuntimeIndex) -> list[Row]:
    return [(key, arrival + n, task + n) for key, arrival, task, held in runs.forwards() for n in range(held)]


def size_of(runs: RuntimeIndex) -> int:
    """Bytes, near enough: arrays with what they have in reserve, and the leaves and fences."""
    arrays = [column for leaf in runs._leaves for column in (leaf.keys, leaf.arrivals, leaf.tasks, leaf.counts)]
    lists = [runs._leaves, runs._keys, runs._arrivals]
    return sum(map(sys.getsizeof, [*arrays, *lists])) + len(runs._leaves) * (sys.getsizeof(runs._leaves[0]) + 60)


@pytest.mark.parametrize("leaf", [4, 8, 64])
@given(
    batches=st.lists(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=80), max_size=8),
    chosen=st.lists(st.integers(0, 10_000), max_size=300),
)
def test_runs_hold_what_a_sorted_list_holds(leaf: int, batches: list[list[float]], chosen: list[int]) -> None:
    runs, rows, arrived = RuntimeIndex(leaf), list[Row](), 0
    for batch in batches:
        runs.add(grouped(range(arrived, arrived + len(batch)), batch), arrived)
        rows += [(-runtime, arrived + n, arrived + n) for n, runtime in enumerate(batch)]
        arrived += len(batch)
        rows.sort()
        runs.check()
        assert each(runs) == rows
        for number in chosen[: len(rows) // 2]:
            key, arrival, _ = rows.pop(number % len(rows))
            runs.take(-key, arrival)
            after = next((row for row in rows if row > (key, arrival)), None)
            found = runs.first_after(-key, arrival)
            assert (found and found[:3]) == (after and (-after[0], after[1], after[2]))
        runs.check()
        assert each(runs) == rows
    assert runs.shortest() == (-rows[-1][0] if rows else math.inf)


@given(
    runtimes=st.lists(st.sampled_from([1.0, 2.0]), min_size=1, max_size=60),
    gone=st.dictionaries(st.integers(0, 70), st.integers(0, 140)),
    leaves=st.integers(1, 5),
)
def test_what_is_sifted_out_has_arrived_before_it_went(
    runtimes: list[float], gone: dict[int, int], leaves: int
) -> None:
    runs, count = RuntimeIndex(8), len(runtimes)
    runs.add(grouped(range(count), runtimes), 0)
    runs.add(grouped(range(count), runtimes), count)
    kept = [(key, arrival, task) for key, arrival, task in each(runs) if arrival >= gone.get(task, 0)]
    before, taken = len(each(runs)), 0
    fence: Fence | None = START
    while fence is not None:
        some, fence = runs.sift(gone, sorted(gone), fence, leaves)
        taken += some
        runs.check()
    assert each(runs) == kept
    assert taken == before - len(kept)


def test_a_leaf_that_sifting_has_made_too_large_is_cut() -> None:
    runs = RuntimeIndex(4)
    runs.add(TaskRanges([0, 20], [13, 1], [2.0, 1.0]), 0)
    gone = dict.fromkeys(range(1, 13, 2), 100)
    assert runs.sift(gone, sorted(gone), START, 1) == (6, None)
    runs.check()
    assert [task for _, _, task in each(runs)] == [0, 2, 4, 6, 8, 10, 12, 20]


def test_a_task_like_no_other_takes_less_than_32_bytes() -> None:
    runs, count = RuntimeIndex(), 100_000
    runtimes = [float(task * 7919 % 100_003) for task in range(count)]
    for first in range(0, count, 4096):
        batch = range(first, min(first + 4096, count))
        runs.add(grouped(batch, runtimes[first : batch.stop]), first)
    assert len(runs) == count
    assert size_of(runs) < 32 * count


def test_a_giant_bag_of_one_runtime_is_one_run_and_takes_next_to_nothing() -> None:
    runs = RuntimeIndex()
    for first in range(0, 1_000_000, 4096):
        runs.add(TaskRanges([first], [4096], [60.0]), first)
    for number in range(2000):
        runs.take(60.0, number)
    assert len(runs) == 1
    for number in range(2000, 1_000_000, 1000):
        runs.take(60.0, number)
    assert len(runs) < 1000
    assert size_of(runs) < 100_000


def test_the_leaves_that_are_left_when_nearly_all_is_taken_are_few() -> None:
    runs, count = RuntimeIndex(), 20 * LEAF
    runs.add(grouped(range(count), [float(count - number) for number in range(count)]), 0)
    for number in range(count):
        if number % 100:
            runs.take(float(count - number), number)
    runs.check()
    assert len(runs) == -(-count // 100)
    assert len(runs._leaves) <= 3


def fences(runs: RuntimeIndex) -> None:
    runs._arrivals[1:3] = reversed(runs._arrivals[1:3])


def one_too_few(runs: RuntimeIndex) -> None:
    del runs._leaves[1]


def order(runs: RuntimeIndex) -> None:
    runs._leaves[1].arrivals.reverse()


def length(runs: RuntimeIndex) -> None:
    runs._most = 1


def nothing(runs: RuntimeIndex) -> None:
    runs._leaves[1] = type(runs._leaves[1])()


def strays(runs: RuntimeIndex) -> None:
    runs._leaves[1].keys[0] = -1000.0


def none(runs: RuntimeIndex) -> None:
    runs._leaves[1].counts[0] = 0


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (fences, "fences in order"),
        (one_too_few, "leaves between fences"),
        (order, "runs in order"),
        (length, "one too many"),
        (nothing, "is empty"),
        (strays, "runs between fences"),
        (none, "runs of none"),
    ],
)
def test_the_check_finds(spoil: Callable[[RuntimeIndex], None], what: str) -> None:
    runs = RuntimeIndex(8)
    runs.add(grouped(range(0, 80, 2), [float(task // 40) for task in range(0, 80, 2)]), 0)
    runs.check()
    spoil(runs)
    with pytest.raises(InvariantBroken, match=what):
        runs.check()


def test_a_leaf_that_a_take_makes_too_full_is_cut() -> None:
    runs = RuntimeIndex(4)
    for number, runtime in enumerate([4.0, 3.0, 2.0, 1.0]):
        runs.add(TaskRanges([3 * number], [3], [runtime]), 3 * number)
    for arrival in range(1, 12, 3):
        runs.take(4.0 - arrival // 3, arrival)  # the middle one of three: what is left is two runs
    runs.check()
    assert [task for _, _, task in each(runs)] == [0, 2, 3, 5, 6, 8, 9, 11]


def predict(runs: RuntimeIndex, spans: Spans) -> None:
    """These tasks take 2 seconds, and no longer 1; leaf by leaf."""
    for _ in runs.predict(spans, [1.0], lambda task: 2.0):
        runs.check()


def test_a_run_of_which_many_parts_are_predicted_anew_is_cut_into_leaves() -> None:
    runs = RuntimeIndex(4)
    runs.add(TaskRanges([0], [20], [1.0]), 0)
    predict(runs, [(task, 1) for task in range(2, 17, 3)])
    runs.check()
    chosen = [*range(2, 17, 3)]
    assert each(runs) == [(-2.0, n, n) for n in chosen] + [(-1.0, n, n) for n in range(20) if n not in chosen]


def test_tasks_of_several_leaves_are_predicted_anew_and_leaves_that_keep_enough_stay() -> None:
    runs = RuntimeIndex(8)
    runs.add(grouped(range(0, 32, 2), [1.0] * 16), 0)  # runs of one task each, as their numbers do not follow
    leaves = len(runs._leaves)
    assert leaves > 2
    predict(runs, [(task, 1) for task in range(0, 32, 8)])
    runs.check()
    assert len(runs._leaves) == leaves
    assert [task for _, _, task in each(runs)] == [*range(0, 32, 8), *(n for n in range(0, 32, 2) if n % 8)]
