"""What is concluded from the tasks and windows of a live run."""

import math
from collections.abc import Sequence

import pytest

from deskgrid.sleepbench.costs import Cost, Nap, Opened, measure

# Two PCs. The windows of the first are planned from -1 to 10, 12 to 22; that of the second never closes.
WINDOWS = [Opened("a", -1.0, -0.99, 10.0), Opened("a", 12.0, 12.01, 22.0), Opened("b", -3.0, -3.0, math.inf)]
# Three that start so late that, in all that comes before, some task waits.
LAST = [Nap("b", 1.0, 100.0 + number, 101.0 + number) for number in range(3)]


def naps(pc: str, *spans: tuple[float, float]) -> list[Nap]:
    """Tasks that were to take a tenth of a second less than they took."""
    return [Nap(pc, ended - started - 0.1, started, ended) for started, ended in spans]


def test_tasks_that_take_longer_than_they_should_oversleep() -> None:
    found = measure([Nap("a", 2.0, 0.0, 2.5), Nap("b", 4.0, 0.0, 4.1)], WINDOWS)
    assert found.oversleep.mean == pytest.approx(0.3)
    assert found.oversleep.most == pytest.approx(0.5)
    assert found.oversleep.count == 2


def test_a_gap_is_from_the_end_of_a_task_to_the_start_of_the_next_in_the_same_window() -> None:
    found = measure([*naps("a", (0.5, 2.0), (2.2, 9.0), (12.5, 14.0)), *LAST], WINDOWS)
    assert found.gap.mean == pytest.approx(0.2)
    assert found.gap.count == 1


def test_an_opening_costs_until_its_first_task_starts_and_a_part_of_that_is_that_nobody_knew() -> None:
    found = measure([*naps("a", (0.5, 2.0), (12.5, 14.0)), *LAST], WINDOWS)
    # Not the windows that were open when the bag was submitted.
    assert found.opening == Cost(0.5, 0.5, 1)
    assert found.late.mean == pytest.approx(0.01)
    assert found.late.count == 1


def test_submitting_costs_until_the_first_task_of_all_starts() -> None:
    assert measure([*naps("a", (12.5, 14.0), (0.5, 2.0)), *LAST], WINDOWS).submission_s == 0.5
    assert measure([], WINDOWS).submission_s == 0.0


def test_the_order_in_which_tasks_are_told_does_not_matter() -> None:
    ran = [*naps("a", (0.5, 2.0), (2.2, 9.0), (12.5, 14.0)), *naps("b", (0.2, 5.0), (5.4, 9.0)), *LAST]
    assert measure(ran[::-1], WINDOWS) == measure(ran, WINDOWS)


@pytest.mark.parametrize(("waiting", "counts"), [(1, 0), (2, 1)])
def test_a_gap_in_which_nothing_waits_costs_nothing(waiting: int, counts: int) -> None:
    """Each PC may be at a task that starts again and again; with one more than there are PCs, some task waits."""
    ran = [*naps("a", (0.5, 2.0), (2.2, 4.0)), *LAST[:waiting]]
    assert measure(ran, WINDOWS).gap.count == counts


@pytest.mark.parametrize(("later", "counts"), [(1, 0), (2, 1)])
def test_a_window_that_opens_when_nothing_waits_costs_nothing(later: int, counts: int) -> None:
    ran = [*naps("a", (0.5, 2.0), (12.5, 14.0)), *LAST[:later]]
    assert measure(ran, WINDOWS).opening.count == counts


def test_the_first_window_of_each_pc_is_the_first_that_was_open_in_the_run() -> None:
    windows = [
        Opened("a", -20.0, -20.0, -9.0),
        Opened("a", -5.0, -5.0, 3.0),
        Opened("a", 4.0, 4.0, 12.0),
        Opened("b", 1.0, 1.0, 9.0),
        Opened("c", -1.0, -1.0, math.inf),
    ]
    assert measure([], windows).first_closings == {"a": 3.0, "b": 9.0}


@pytest.mark.parametrize("ran", [[], LAST[:1]])
def test_what_was_never_seen_is_no_cost(ran: Sequence[Nap]) -> None:
    found = measure(ran, WINDOWS)
    assert found.gap == found.opening == Cost(0.0, 0.0, 0)
    assert found.late.count == 1
