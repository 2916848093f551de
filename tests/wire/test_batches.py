"""Rows are cut into batches by their number and their bytes; none is lost, and none out of its place."""

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire


def sizes_of(sizes: list[int]) -> list[list[int]]:
    return list(wire.in_batches(sizes, lambda size: size))


def test_a_batch_ends_at_its_limit_of_rows() -> None:
    made = sizes_of([0] * (2 * wire.BATCH_ROWS + 1))
    assert [*map(len, made)] == [wire.BATCH_ROWS, wire.BATCH_ROWS, 1]


def test_a_full_last_batch_is_not_followed_by_an_empty_one() -> None:
    assert len(sizes_of([0] * wire.BATCH_ROWS)) == 1


def test_a_row_larger_than_a_batch_travels_alone() -> None:
    large = wire.BATCH_BYTES + 1
    assert sizes_of([1, large, 2, 3]) == [[1], [large], [2, 3]]


def test_no_rows_make_no_batch() -> None:
    assert sizes_of([]) == []


def test_a_batch_waits_for_one_row_more_than_it_has() -> None:
    taken: list[int] = []

    def rows() -> Iterator[int]:
        for size in [wire.BATCH_BYTES] * 3:
            taken.append(size)
            yield size

    assert next(wire.in_batches(rows(), lambda size: size)) == [wire.BATCH_BYTES]
    assert len(taken) == 2


@given(st.lists(st.integers(0, wire.BATCH_BYTES // 2), max_size=12))
def test_batches_keep_every_row_in_its_place_and_below_the_limit(sizes: list[int]) -> None:
    made = sizes_of(sizes)
    assert [size for batch in made for size in batch] == sizes
    assert all(sum(batch) <= wire.BATCH_BYTES for batch in made)
    assert all(sum(batch) + after[0] > wire.BATCH_BYTES for batch, after in pairwise(made))
