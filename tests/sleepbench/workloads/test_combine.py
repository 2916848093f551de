"""Tasks that no window can hold are left out, whatever the source of either."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, RealWindow, SimulatedPC, Simulator, always
from deskgrid.sleepbench.workloads.combine import HORIZON_S, leave_out_too_long, lower_bound_s
from deskgrid.sleepbench.workloads.source import Jobs, Lab, WorkloadError


def lab(*spans: RealWindow) -> Lab:
    """One PC with these windows."""
    return Lab("a PC", (SimulatedPC("pc", lambda: iter(spans)),))


def jobs(*arrivals: Arrival) -> Jobs:
    """These bags."""
    return Jobs("jobs", arrivals, ("a note",))


HUNDRED = RealWindow(50.0, 150.0, 150.0)


def test_a_task_as_long_as_the_longest_window_is_left_out_and_counted() -> None:
    left = leave_out_too_long(jobs(Arrival([10.0, 100.0, 99.0, 400.0])), lab(RealWindow(0.0, 20.0, 20.0), HUNDRED))
    assert [list(arrival.runtimes) for arrival in left.arrivals] == [[10.0, 99.0]]
    assert left.tasks == 2
    assert left.notes == ("a note", "tasks left out, longer than any window of the first 30 days: 2")
    assert left.title == "jobs"


def test_both_what_is_predicted_and_what_is_true_must_fit() -> None:
    wrong = Arrival([10.0, 200.0, 90.0], [200.0, 10.0, 80.0], at=7.0)
    (arrival,) = leave_out_too_long(jobs(wrong), lab(HUNDRED)).arrivals
    assert (list(arrival.runtimes), list(arrival.actual or ()), arrival.at) == ([90.0], [80.0], 7.0)


def test_what_is_predicted_must_fit_what_is_announced_and_what_is_true_what_is() -> None:
    early = lab(RealWindow(0.0, 100.0, 50.0))
    left = leave_out_too_long(jobs(Arrival([40.0, 40.0, 60.0], [90.0, 100.0, 60.0])), early)
    assert [list(arrival.actual or ()) for arrival in left.arrivals] == [[90.0]]


@pytest.mark.parametrize(
    ("policies", "longest"),
    [
        ([make_policy("pgs", margin=2.0)], 98.0),
        ([make_policy("pgs", margin=2.0, stretch=2.0)], 49.0),
        ([make_policy("pgs", margin=2.0), make_policy("pgs", margin=5.0)], 95.0),
        ([make_policy("fcfs")], 100.0),
        ([make_policy("fcfs"), make_policy("pgs", margin=2.0)], 98.0),
    ],
)
def test_what_is_left_fits_under_each_policy_with_its_margin(policies: list[Policy], longest: float) -> None:
    tasks = jobs(Arrival([longest - 0.01, longest], [1.0, 1.0]))
    left = leave_out_too_long(tasks, lab(HUNDRED), policies)
    assert [list(arrival.runtimes) for arrival in left.arrivals] == [[longest - 0.01]]
    for policy in policies:
        assert Simulator(policy, lab(HUNDRED).pcs, left.arrivals).run().counters.done == 1


def test_what_is_left_fits_with_what_an_attempt_costs() -> None:
    conditions = Conditions(overhead_s=3.0, opening_s=4.0)
    left = leave_out_too_long(jobs(Arrival([1.0, 1.0], [92.9, 93.0])), lab(HUNDRED), conditions=conditions)
    assert [list(arrival.really()) for arrival in left.arrivals] == [[92.9]]
    run = Simulator(make_policy("fcfs"), lab(HUNDRED).pcs, left.arrivals, conditions).run()
    assert (run.counters.done, run.counters.kills) == (1, 0)


def test_that_may_be_part_of_the_prediction() -> None:
    conditions = Conditions(overhead_s=3.0)
    policy = make_policy("pgs", margin=2.0)
    left = leave_out_too_long(jobs(Arrival([94.9, 95.0])), lab(HUNDRED), [policy], conditions)
    assert [list(arrival.runtimes) for arrival in left.arrivals] == [[94.9]]
    told = Arrival([94.9 + 3.0], [94.9])
    assert Simulator(policy, lab(HUNDRED).pcs, [told], conditions).run().counters.done == 1


def test_a_bag_of_which_nothing_is_left_is_gone() -> None:
    left = leave_out_too_long(jobs(Arrival([400.0]), Arrival([5.0], at=3.0)), lab(HUNDRED))
    assert [arrival.at for arrival in left.arrivals] == [3.0]


def test_nothing_changes_when_everything_fits() -> None:
    all_of_them = jobs(Arrival([1e9], [2e9]), Arrival([5.0]))
    assert leave_out_too_long(all_of_them, Lab("stays", (SimulatedPC("pc", always),))) is all_of_them


def test_no_task_left_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="all 2 tasks are longer than any window of a PC"):
        leave_out_too_long(jobs(Arrival([100.0, 200.0])), lab(HUNDRED))
    with pytest.raises(WorkloadError, match="all 1 tasks"):
        leave_out_too_long(jobs(Arrival([1.0])), lab())


def test_of_windows_without_end_those_that_open_in_the_first_month_count() -> None:
    def growing() -> Iterator[RealWindow]:
        day = 24 * 3600.0
        return (RealWindow(number * day, number * day + 60 * number, number * day + 60 * number) for number in count(1))

    days = HORIZON_S / (24 * 3600.0)
    left = leave_out_too_long(
        jobs(Arrival([60 * (days - 1) - 1, 60 * (days - 1) + 1])), Lab("growing", (SimulatedPC("pc", growing),))
    )
    assert left.tasks == 1


STAYS = SimulatedPC("stays", always)


def test_no_schedule_ends_before_the_work_has_filled_every_slot() -> None:
    assert lower_bound_s(jobs(Arrival([6.0, 4.0, 2.0])), Lab("two", (STAYS, replace(STAYS, name="two")))) == 6.0
    assert lower_bound_s(jobs(Arrival([3.0] * 8)), Lab("four slots", (replace(STAYS, slots=4),))) == 6.0


def test_nor_before_the_windows_were_long_enough() -> None:
    windows = RealWindow(10.0, 20.0, 20.0), RealWindow(50.0, 55.0, 55.0), RealWindow(60.0, 99.0, 99.0)
    assert lower_bound_s(jobs(Arrival([5.0, 4.0])), lab(*windows)) == 19.0
    assert lower_bound_s(jobs(Arrival([5.0, 5.0])), lab(*windows)) == 20.0
    assert lower_bound_s(jobs(Arrival([5.0, 8.0])), lab(*windows)) == 53.0
    assert lower_bound_s(jobs(Arrival([9.0, 9.0])), lab(*windows)) == 63.0
    both = Lab("both", (STAYS, *lab(*windows).pcs))
    assert lower_bound_s(jobs(Arrival([9.0, 7.0])), both) == 13.0


def test_nor_before_the_last_bag_could_be_done() -> None:
    late = jobs(Arrival([4.0, 1.0], at=90.0), Arrival([5.0]))
    assert lower_bound_s(late, Lab("one", (STAYS,))) == 94.0
    assert lower_bound_s(late, lab(HUNDRED)) == 94.0


def test_what_tasks_really_take_counts_not_what_was_predicted() -> None:
    assert lower_bound_s(jobs(Arrival([100.0, 1.0], [1.0, 2.0])), Lab("one", (STAYS,))) == 3.0
    assert lower_bound_s(jobs(Arrival([100.0, 1.0], [1.0, 2.0])), Lab("three", (replace(STAYS, slots=3),))) == 2.0


def test_nor_ever_on_pcs_that_are_gone_before() -> None:
    with pytest.raises(WorkloadError, match="a PC are gone for good before all is done"):
        lower_bound_s(jobs(Arrival([60.0, 1840.0])), lab(HUNDRED))
    assert lower_bound_s(jobs(Arrival([60.0, 40.0])), lab(HUNDRED)) == 150.0
