"""When memory counts as flat."""

import mmap
import os

import pytest

from tests.memory import growth, resident

TAKEN_BYTES = 2**25


def test_growth_is_of_the_last_third_above_the_middle_one_and_the_warm_up_does_not_count() -> None:
    assert growth([1, 5, 90, 100, 100, 99, 101, 110, 80]) == pytest.approx(0.1)


def test_what_shrinks_has_grown_by_less_than_nothing() -> None:
    assert growth([1, 5, 90, 100, 100, 99, 80, 75, 50]) == pytest.approx(-0.2)


def test_of_a_few_samples_nothing_is_said() -> None:
    with pytest.raises(ValueError, match="8 samples are too few"):
        growth([1.0] * 8)


def test_a_process_that_takes_memory_has_more() -> None:
    before = resident(os.getpid())
    # Fresh pages from the system: what an allocator hands out may have been resident before.
    with mmap.mmap(-1, TAKEN_BYTES) as taken:
        taken.write(b"\1" * TAKEN_BYTES)
        assert resident(os.getpid()) - before > TAKEN_BYTES // 2


def test_a_process_that_is_not_there_has_none() -> None:
    with pytest.raises((FileNotFoundError, AssertionError)):
        resident(2**22 + 1)
