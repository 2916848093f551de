"""When the broker looks for garbage in cycles."""

import gc
import weakref

import pytest

from deskgrid.process_memory import DUE_S, OVERDUE_PARTIAL, OVERDUE_S, Garbage


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(
    ("now", "idle", "is_gone"),
    [(DUE_S - 1, True, False), (DUE_S, True, True), (OVERDUE_S - 1, False, False), (OVERDUE_S, False, True)],
)
def test_old_garbage_goes_while_nobody_waits_or_when_it_is_overdue(now: float, idle: bool, is_gone: bool) -> None:
    garbage = Garbage()
    with garbage.full_collections_deferred():
        knot = Knot()
        gc.collect(1)
        gc.collect(1)  # it is old now
        left = weakref.ref(knot)
        del knot
        garbage.collect(now, idle=idle)
        assert (left() is None) == is_gone


def test_garbage_that_is_left_often_goes_although_somebody_waits() -> None:
    garbage = Garbage()
    with garbage.full_collections_deferred():
        gc.collect()
        for left in (OVERDUE_PARTIAL - 1, 0):
            while gc.get_count()[2] < OVERDUE_PARTIAL - (left > 0):
                gc.collect(1)
            garbage.collect(1.0, idle=False)
            assert gc.get_count()[2] == left


def test_python_does_not_begin_full_collections_meanwhile_and_does_so_again_afterwards() -> None:
    before, full = gc.get_threshold(), []

    def note(phase: str, told: dict[str, int]) -> None:
        full.append(told["generation"] == 2)

    gc.callbacks.append(note)
    try:
        with Garbage().full_collections_deferred():
            kept = [Knot() for _ in range(300_000)]
        assert full
        assert not any(full)
        assert len(kept) == 300_000
    finally:
        gc.callbacks.remove(note)
    assert gc.get_threshold() == before
