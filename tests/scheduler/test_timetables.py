"""Windows that differ from their announcements, bags that arrive later, and the overhead of a grid."""

import math
from collections.abc import Iterable, Iterator

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import SchedulerError
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import (
    ANNOUNCED,
    PATIENCE,
    Arrival,
    Conditions,
    Execution,
    RealWindow,
    SimulatedPC,
    Simulator,
    Stalled,
    Timetable,
    always,
    cycle,
)
from deskgrid.scheduler.simulation.timetable import LOOKED_THROUGH, IllegalSpan, SpanCalendar
from tests.scheduler.builders import fcfs, pgs


def planned(*spans: tuple[float, float] | tuple[float, float, float]) -> Timetable:
    """Windows as (opens, closes), or (opens, closes, announced) where these differ."""
    return lambda: iter([RealWindow(span[0], span[1], span[-1]) for span in spans])


def told(simulator: Simulator) -> list[ev.Event]:
    """Everything the scheduler hears as the simulator runs, but for passes."""
    events: list[ev.Event] = []
    handle = simulator.scheduler.handle

    def kept(event: ev.Event, now: float) -> list[cmd.Command]:
        events.extend([event] if not isinstance(event, ev.PassDue) else [])
        return handle(event, now)

    simulator.scheduler.handle = kept  # type: ignore[method-assign]
    return events


# --- timetables ------------------------------------------------------------------------------------------------------


def test_a_cycle_repeats_from_the_start_and_is_announced_as_it_is() -> None:
    spans = cycle(10, 2)()
    assert [next(spans) for _ in range(3)] == [RealWindow(0, 10, 10), RealWindow(12, 22, 22), RealWindow(24, 34, 34)]


def test_a_cycle_without_an_end_is_a_pc_that_stays() -> None:
    assert cycle(math.inf, 2) is always
    assert list(always()) == [RealWindow(0, math.inf, math.inf)]


def test_each_run_gets_the_timetable_from_its_beginning() -> None:
    pc = SimulatedPC("a", cycle(10, 2))
    assert Simulator(pgs(), [pc], [Arrival([9, 9])]).run() == Simulator(pgs(), [pc], [Arrival([9, 9])]).run()


@pytest.mark.parametrize("span", [(-1, 5, 5), (5, 5, 6), (5, 6, 5), (5, 4, 6), (math.nan, 5, 5), (0, math.nan, 5)])
def test_a_window_that_cannot_be_is_refused(span: tuple[float, float, float]) -> None:
    with pytest.raises(IllegalSpan):
        RealWindow(*span)


@pytest.mark.parametrize("closings", [(5, 5), (5, 4), (10, 12), (5, 7, 7), (5, 7, 6), (5, 11, 12), (5, math.nan)])
def test_another_closing_that_is_not_after_the_last_or_when_the_pc_is_gone_is_refused(closings: list[float]) -> None:
    announced, *again = closings
    with pytest.raises(IllegalSpan, match="another closing"):
        RealWindow(0, 10, announced, tuple(again))


def test_the_longest_uptime_that_is_announced_may_be_a_later_one() -> None:
    assert [RealWindow(2, 10, 5, again).longest() for again in ((), (7,), (6, 13), (6, 7, 9, 11))] == [3, 3, 7, 3]


def test_windows_that_overlap_are_refused() -> None:
    with pytest.raises(IllegalSpan, match="opens before the last one closes"):
        Simulator(pgs(), [SimulatedPC("a", planned((0, 10), (9, 20)))], [Arrival([15])]).run()


def test_at_most_64_windows_are_announced_from_where_one_is() -> None:
    calendar = SpanCalendar(cycle(10, 2))
    assert calendar.take() == RealWindow(0, 10, 10)
    coming = calendar.coming(4)
    assert (len(coming), coming[0], coming[-1]) == (ANNOUNCED, (8, 10), (ANNOUNCED * 12 - 4, 10))


def test_a_coming_window_is_announced_with_its_announced_closing_but_not_into_the_next() -> None:
    calendar = SpanCalendar(planned((0, 10), (20, 30, 25), (40, 50, 99), (60, 70, 99)))
    assert calendar.take() == RealWindow(0, 10, 10)
    assert calendar.coming(1) == ((19, 5), (39, 20), (59, 39))


# --- what the scheduler is told --------------------------------------------------------------------------------------


def test_pcs_announce_what_is_to_come_when_they_appear_open_and_close() -> None:
    simulator = Simulator(pgs(), [SimulatedPC("a", planned((5, 15), (20, 50)))], [Arrival([20])])
    events = told(simulator)
    simulator.run()
    assert events == [
        ev.TasksSubmitted(0, 0, 1, [20]),
        ev.UptimeRefreshed("a", 0, ((5, 10), (20, 30))),
        ev.WorkerJoined("a", 1, 10, ((15, 30),)),
        ev.WorkerLeft("a", True, windows=((5, 30),), unstarted=[]),
        ev.WorkerJoined("a", 1, 30, ()),
        ev.AttemptsEnded("a", [ev.EndedAttempt(events[-1].ended[0].attempt, events[-1].ended[0].outcome, 20)]),  # type: ignore[union-attr]
    ]


def test_where_nothing_is_announced_only_the_current_window_is_known() -> None:
    conditions = Conditions(announces=False)
    simulator = Simulator(pgs(), [SimulatedPC("a", planned((5, 15), (20, 50)))], [Arrival([20])], conditions)
    events = told(simulator)
    simulator.run()
    kinds = [type(event) for event in events]
    assert kinds == [ev.TasksSubmitted, ev.WorkerJoined, ev.WorkerLeft, ev.WorkerJoined, ev.AttemptsEnded]
    assert not any(event.windows for event in events if isinstance(event, ev.WorkerJoined | ev.WorkerLeft))


def test_a_pc_that_stays_longer_than_announced_is_given_nothing_new_but_finishes_what_it_runs() -> None:
    pc = SimulatedPC("a", planned((0, 30, 10), (40, 60)))
    simulator = Simulator(pgs(), [pc], [Arrival([9, 5], actual=[15, 5])], trace=True)
    assert simulator.run().executions == (Execution("a", 0, 0, 0, 15, True), Execution("a", 0, 1, 40, 45, True))


def test_a_pc_that_is_still_there_when_it_was_to_be_gone_says_how_long_it_stays_and_is_used() -> None:
    pc = SimulatedPC("a", lambda: iter([RealWindow(0, 30, 10, (15, 24)), RealWindow(40, 60, 60)]))
    simulator = Simulator(pgs(), [pc], [Arrival([9, 4, 8, 10])], trace=True)
    events = told(simulator)
    run = simulator.run()
    refreshed = [event for event in events if isinstance(event, ev.UptimeRefreshed)]
    assert refreshed == [ev.UptimeRefreshed("a", 5, ((30, 20),)), ev.UptimeRefreshed("a", 9, ((25, 20),))]
    assert run.executions == (
        Execution("a", 0, 0, 0, 9, True),
        Execution("a", 0, 1, 10, 14, True),
        Execution("a", 0, 2, 15, 23, True),
        Execution("a", 0, 3, 40, 50, True),
    )
    assert (run.counters.kills, run.counters.departures) == (0, 1)


@pytest.mark.parametrize(("last", "planned_kills"), [(25, 0), (15, 1)])
def test_what_is_announced_last_says_whether_a_pc_left_early(last: float, planned_kills: int) -> None:
    pc = SimulatedPC("a", lambda: iter([RealWindow(0, 20, 10, (last,)), RealWindow(40, 100, 100)]))
    counters = Simulator(pgs(), [pc], [Arrival([8], actual=[22])]).run().counters
    assert (counters.kills, counters.planned_kills) == (1, planned_kills)


def test_a_task_that_only_a_later_announcement_has_room_for_is_no_reason_to_give_up() -> None:
    pc = SimulatedPC("a", lambda: iter([RealWindow(0, 30, 5, (30,))]))
    run = Simulator(pgs(), [pc], [Arrival([20])], trace=True).run()
    assert run.executions == (Execution("a", 0, 0, 5, 25, True),)


def test_a_pc_that_leaves_before_its_announced_end_kills_but_not_as_planned() -> None:
    pc = SimulatedPC("a", planned((0, 10, 20), (40, 60)))
    run = Simulator(pgs(), [pc], [Arrival([15])], trace=True).run()
    assert (run.counters.kills, run.counters.planned_kills, run.counters.wasted_s) == (1, 0, 10)
    assert run.executions == (Execution("a", 0, 0, 0, 10, False), Execution("a", 0, 0, 40, 55, True))
    assert run.spans == (("a", RealWindow(0, 10, 20)), ("a", RealWindow(40, 60, 60)))


def test_a_task_that_was_stopped_after_outliving_its_prediction_is_predicted_at_twice_what_it_used() -> None:
    pcs = [SimulatedPC("a", planned((0, 6), (10, 21), (30, 60)))]
    run = Simulator(pgs(), pcs, [Arrival([5], actual=[8])], trace=True).run()
    # 12 s do not fit into the second window.
    assert [(execution.start, execution.done) for execution in run.executions] == [(0, False), (30, True)]


def test_a_task_that_was_stopped_within_its_prediction_keeps_it() -> None:
    pcs = [SimulatedPC("a", planned((0, 6, 20), (10, 21), (30, 60)))]
    run = Simulator(pgs(), pcs, [Arrival([8])], trace=True).run()
    assert [execution.start for execution in run.executions] == [0, 10]


# --- timetables that end ---------------------------------------------------------------------------------------------


def test_when_no_pc_will_ever_come_back_the_run_ends_with_what_is_left() -> None:
    with pytest.raises(Stalled, match="2 of 4 tasks are placed nowhere"):
        Simulator(pgs(), [SimulatedPC("a", planned((0, 10), (15, 25)))], [Arrival([8] * 4)]).run()


def test_the_longest_window_of_a_timetable_that_ends_is_known_beforehand() -> None:
    with pytest.raises(Stalled, match="1 of 2 tasks fit into no window"):
        Simulator(pgs(), [SimulatedPC("a", planned((0, 10), (15, 35)))], [Arrival([8, 20])]).run()


def endless() -> Iterator[RealWindow]:
    """Ten windows of 1 s, then always one of 5 s."""
    for number in range(10):
        yield RealWindow(number * 2, number * 2 + 1, number * 2 + 1)
    opens = 20.0
    while True:
        yield RealWindow(opens, opens + 5, opens + 5)
        opens += 6


def test_an_endless_timetable_is_not_looked_through() -> None:
    assert Simulator(pgs(), [SimulatedPC("a", endless)], [Arrival([4])]).run().makespan_s == 24
    with pytest.raises(Stalled, match="1 of 1 tasks are placed nowhere"):
        Simulator(pgs(), [SimulatedPC("a", endless)], [Arrival([5])]).run()
    assert LOOKED_THROUGH >= 1000


# --- bags ------------------------------------------------------------------------------------------------------------


def test_bags_are_submitted_in_the_order_of_their_times_and_their_tasks_numbered_in_that_order() -> None:
    arrivals = [Arrival([3, 4], at=10), Arrival([5]), Arrival([2], actual=[6], at=10)]
    run = Simulator(pgs(), [SimulatedPC("a")], arrivals, trace=True).run()
    assert [(e.task, e.start, e.end) for e in run.executions] == [(0, 0, 5), (1, 10, 13), (2, 13, 17), (3, 17, 23)]
    assert (run.makespan_s, run.idle_s, run.counters.submitted) == (23, 5, 4)


def test_a_bag_that_comes_as_a_window_opens_is_placed_into_it() -> None:
    run = Simulator(pgs(), [SimulatedPC("a", planned((0, 10), (20, 30)))], [Arrival([9], at=20)]).run()
    assert run.makespan_s == 29


def test_patience_is_not_lost_while_bags_are_still_to_come() -> None:
    pcs = [SimulatedPC("flicker", cycle(0.5, 0.5)), SimulatedPC("stays")]
    run = Simulator(fcfs(), pcs, [Arrival([1]), Arrival([1], at=PATIENCE + 5)]).run()
    assert run.makespan_s == PATIENCE + 6


def test_without_tasks_a_run_is_over_at_once() -> None:
    assert Simulator(pgs(), [SimulatedPC("a")], []).run().makespan_s == 0


@pytest.mark.parametrize(
    ("runtimes", "actual", "at"), [([], None, 0), ([1], [1, 2], 0), ([1], None, -1), ([1], None, math.nan)]
)
def test_a_bag_that_cannot_be_is_refused(runtimes: list[float], actual: list[float] | None, at: float) -> None:
    with pytest.raises(SchedulerError):
        Arrival(runtimes, actual, at)


def test_a_task_that_would_take_longer_than_its_timeout_is_refused() -> None:
    Arrival([1, 9], actual=[3, 4], timeout=4)
    with pytest.raises(SchedulerError, match="longer than its timeout of"):
        Arrival([1, 2], actual=[3, 4], timeout=3.9)


# --- conditions ------------------------------------------------------------------------------------------------------


def test_the_first_attempt_of_a_window_waits_until_the_worker_has_started() -> None:
    conditions = Conditions(opening_s=2)
    arrivals = [Arrival([3, 3, 3]), Arrival([1], at=31)]
    run = Simulator(pgs(), [SimulatedPC("a", planned((0, 10), (20, 30), (30, 40)))], arrivals, conditions, True).run()
    # 9 s of the 10 s window are promised; the tasks begin 2 s late, and the third is in time for the next window only.
    times = [(e.task, e.start, e.end, e.done) for e in run.executions]
    assert times == [(0, 2, 5, True), (1, 5, 8, True), (2, 22, 25, True), (3, 32, 33, True)]


def test_a_worker_that_had_time_to_start_begins_at_once() -> None:
    run = Simulator(pgs(), [SimulatedPC("a")], [Arrival([3], at=1), Arrival([1], at=50)], Conditions(opening_s=2)).run()
    assert run.makespan_s == 51


def test_an_attempt_begins_a_gap_after_its_slot_was_free_unless_it_was_handed_over_ahead() -> None:
    arrivals = [Arrival([0.25, 0.25]), Arrival([1], at=50)]
    gap = Conditions(gap_s=2)
    for queue_s, starts in ((0, [2, 4.25, 52]), (1, [2, 2.25, 52])):
        policy = make_policy("pgs", queue_s=queue_s)
        simulator = Simulator(policy, [SimulatedPC("a")], arrivals, gap, trace=True)
        simulator.scheduler.trust.heard["a"] = 0.0  # it is no newcomer, so it may be handed work ahead
        run = simulator.run()
        assert [e.start for e in run.executions] == starts
        assert run.makespan_s == 53


def test_what_comes_before_an_attempt_is_no_part_of_what_it_took() -> None:
    simulator = Simulator(pgs(), [SimulatedPC("a")], [Arrival([2.0] * 30)], Conditions(opening_s=5, gap_s=2))
    simulator.run()
    assert simulator.scheduler.grid.prediction_error.quantile(1.0) == 1.0


def test_what_has_not_begun_when_its_window_closes_is_not_killed() -> None:
    pcs = [SimulatedPC("a", planned((0, 3), (3, 20)))]
    run = Simulator(fcfs(), pcs, [Arrival([1])], Conditions(opening_s=4), trace=True).run()
    assert [(e.start, e.end, e.done) for e in run.executions] == [(7, 8, True)]
    assert (run.counters.kills, run.counters.wasted_s) == (0, 0)


@pytest.mark.no_cover
def test_jitter_only_delays_by_the_seed_and_as_much_as_it_says() -> None:
    def taken(seed: int, jitter: float) -> list[float]:
        conditions = Conditions(jitter=jitter, seed=seed)
        run = Simulator(fcfs(), [SimulatedPC("a")], [Arrival([10.0] * 2000)], conditions, trace=True).run()
        return [e.end - e.start for e in run.executions]

    lasted = taken(1, 0.1)
    assert lasted == taken(1, 0.1)
    assert lasted != taken(2, 0.1)
    assert min(lasted) >= 10
    assert mean(lasted) == pytest.approx(11, rel=0.01)
    assert mean((seconds - 11) ** 2 for seconds in lasted) == pytest.approx(1, rel=0.15)


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


@pytest.mark.parametrize("wrong", [{"overhead_s": -1}, {"opening_s": math.inf}, {"jitter": math.nan}, {"gap_s": -1}])
def test_conditions_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SchedulerError, match="finite numbers from 0 up"):
        Conditions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("slow", [-0.1, 1.1, math.nan])
def test_a_fraction_of_slow_attempts_is_from_0_to_1(slow: float) -> None:
    with pytest.raises(SchedulerError, match="a fraction of"):
        Conditions(slow=slow)
