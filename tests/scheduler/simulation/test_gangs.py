"""Gangs in virtual time: what happens when, to the second."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import SchedulerError
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.patience import LEAST_S
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.runs import Loads
from deskgrid.scheduler.simulation.simulator import (
    IDEAL,
    Arrival,
    Conditions,
    GangExecution,
    RealWindow,
    Run,
    SimulatedPC,
    SimulatedWork,
    Simulator,
    Stalled,
    Timetable,
    always,
    cycle,
)


def gang(
    ranks: int, runtime: float, at: float = 0.0, *, slots: int = 1, actual: float | None = None, most: int = 0
) -> Arrival:
    """One gang of ``ranks`` ranks, or of up to ``most``."""
    need = Need(ranks, most or ranks, slots=slots, speedup=Amdahl(0.0) if most else None, gang=True)
    return Arrival([runtime], None if actual is None else [actual], at, need=need)


def pcs(count: int, timetable: Timetable = always, **more: float) -> list[SimulatedPC]:
    """PCs of one slot at one site."""
    return [SimulatedPC(f"pc{number}", timetable, site="A", speed=more.get("speed", 1.0)) for number in range(count)]


def simulator(
    pcs: Sequence[SimulatedPC],
    arrivals: Sequence[Arrival],
    conditions: Conditions = IDEAL,
    policy: str = "ff",
    *,
    trace: bool = False,
) -> Simulator:
    """A simulator whose scheduler is checked after each event."""
    made = Simulator(make_policy(policy), pcs, arrivals, conditions, trace)

    def checked(event: ev.Event, now: float) -> Iterable[ev.Event]:
        made.scheduler.check(now)
        return ()

    made.beside = checked
    return made


def events_of(made: Simulator) -> list[ev.Event]:
    """Filled, as it runs, with all that the scheduler is told."""
    told: list[ev.Event] = []

    def note(event: ev.Event, now: float) -> Iterable[ev.Event]:
        told.append(event)
        return ()

    made.beside = note
    return told


def times(run: Run) -> list[tuple[int, float, float, bool]]:
    """(task, start, end, done) of each attempt of a gang."""
    return [(one.task, one.start, one.end, one.done) for one in run.gangs]


# --- they begin and end as one ---------------------------------------------------------------------------------------


def test_a_gang_begins_on_all_its_ranks_and_ends_as_one() -> None:
    run = simulator(pcs(3), [gang(2, 5.0), gang(2, 4.0, at=1.0)], trace=True).run()
    assert run.gangs[0] == GangExecution(
        0, "A", (("pc0", 1), ("pc1", 1)), (("pc0", (0,)), ("pc1", (0,))), 0.0, 0.0, 5.0, done=True
    )
    assert times(run)[1:] == [(1, 5.0, 9.0, True)]
    assert run.gangs[1].submitted == 1.0
    assert (run.makespan_s, run.ran_s, run.idle_s) == (9.0, 18.0, 9.0)
    assert {(one.pc, one.start, one.end) for one in run.executions[:2]} == {("pc0", 0.0, 5.0), ("pc1", 0.0, 5.0)}
    assert (run.counters.done, run.counters.attempts) == (2, 2)


def test_a_gang_is_as_fast_as_its_slowest_pc() -> None:
    grid = [SimulatedPC("fast", site="A", speed=2.0), SimulatedPC("slow", site="A", speed=0.5)]
    assert times(simulator(grid, [gang(2, 5.0)]).run()) == [(0, 0.0, 10.0, True)]
    assert times(simulator(grid, [gang(1, 5.0)]).run()) == [(0, 0.0, 2.5, True)]


def test_it_takes_as_long_as_it_really_does() -> None:
    assert times(simulator(pcs(2), [gang(2, 5.0, actual=7.0)]).run()) == [(0, 0.0, 7.0, True)]


def test_the_seconds_of_a_moldable_gang_are_of_one_rank() -> None:
    run = simulator(pcs(4), [gang(1, 12.0, most=4)]).run()
    ranks = sum(count for _, count in run.gangs[0].ranks)
    assert times(run) == [(0, 0.0, 12.0 / ranks, True)]


def test_ranks_of_several_slots_stay_on_one_pc() -> None:
    grid = [SimulatedPC("a", slots=3, site="A"), SimulatedPC("b", slots=2, site="A")]
    run = simulator(grid, [gang(2, 5.0, slots=2)]).run()
    assert sorted((pc, len(numbers)) for pc, numbers in run.gangs[0].slots) == [("a", 2), ("b", 2)]
    assert run.ran_s == 20.0


def test_a_gang_stays_at_one_site() -> None:
    grid = [SimulatedPC("a", slots=2, site="A"), SimulatedPC("b", slots=3, site="B")]
    run = simulator(grid, [gang(3, 5.0), gang(2, 5.0)]).run()
    assert {one.task: one.site for one in run.gangs} == {0: "B", 1: "A"}


def test_a_site_can_be_one_pc_of_many_slots() -> None:
    grid = [SimulatedPC("a", slots=128, site="A")]
    run = simulator(grid, [gang(100, 5.0), gang(28, 3.0), gang(1, 1.0)]).run()
    # All slots of a new PC are in use after ten seconds.
    assert sorted(times(run)) == [(0, 10.0, 15.0, True), (1, 10.0, 13.0, True), (2, 13.0, 14.0, True)]


def test_a_gang_that_fits_nowhere_is_said() -> None:
    with pytest.raises(Stalled, match="1 of 1 tasks"):
        simulator(pcs(2), [gang(3, 5.0)]).run()


def test_single_tasks_and_gangs_share_a_grid() -> None:
    run = simulator(pcs(3), [gang(2, 5.0), Arrival([4.0, 4.0])], policy="packing").run()
    assert run.counters.done == 3
    assert run.ran_s == 18.0


# --- what a grid costs -----------------------------------------------------------------------------------------------


def test_preparing_takes_its_time_and_is_no_part_of_it() -> None:
    run = simulator(pcs(2), [gang(2, 5.0), gang(2, 3.0)], Conditions(gang_start_s=0.5)).run()
    assert times(run) == [(0, 0.5, 5.5, True), (1, 6.0, 9.0, True)]


def test_preparing_may_take_longer_for_more_ranks() -> None:
    run = simulator(pcs(3), [gang(2, 5.0), gang(1, 3.0)], Conditions(gang_start_s=0.5, rank_start_s=0.25)).run()
    assert sorted(times(run)) == [(0, 1.0, 6.0, True), (1, 0.75, 3.75, True)]


def test_no_rank_begins_before_its_pc_has_started() -> None:
    grid = [*pcs(1), SimulatedPC("late", lambda: iter([RealWindow(3.0, math.inf, math.inf)]), site="A")]
    run = simulator(grid, [gang(2, 5.0)], Conditions(opening_s=2.0)).run()
    assert times(run) == [(0, 5.0, 10.0, True)]


def test_overhead_is_not_work() -> None:
    run = simulator(pcs(2), [gang(2, 5.0)], Conditions(overhead_s=1.0)).run()
    assert times(run) == [(0, 0.0, 6.0, True)]
    assert run.ran_s == 10.0


def test_slow_attempts_and_late_ones_are_drawn_by_the_seed() -> None:
    late = Conditions(jitter=0.1, seed=3)
    first, again, other = (
        simulator(pcs(2), [gang(2, 5.0)], conditions).run().makespan_s
        for conditions in (late, late, replace(late, seed=4))
    )
    assert first == again != other
    assert first > 5.0
    assert simulator(pcs(2), [gang(2, 5.0)], Conditions(slow=1.0)).run().makespan_s == 25.0


# --- windows ---------------------------------------------------------------------------------------------------------


def test_a_window_that_closes_ends_the_whole_gang() -> None:
    grid = [
        *pcs(1),
        SimulatedPC("gone", lambda: iter([RealWindow(0, 3, math.inf), RealWindow(4, math.inf, math.inf)]), site="A"),
    ]
    run = simulator(grid, [gang(2, 5.0)]).run()
    assert times(run) == [(0, 0.0, 3.0, False), (0, 4.0, 9.0, True)]
    assert (run.counters.kills, run.counters.wasted_s, run.ran_s) == (1, 6.0, 16.0)
    assert run.idle_s == 1.0


def test_a_gang_that_was_lost_after_more_than_its_prediction_is_predicted_to_take_longer() -> None:
    grid = [
        *pcs(1),
        SimulatedPC("gone", lambda: iter([RealWindow(0, 3, math.inf), RealWindow(4, math.inf, math.inf)]), site="A"),
    ]
    made = simulator(grid, [gang(2, 2.0, actual=5.0)])
    told = events_of(made)
    assert times(made.run()) == [(0, 0.0, 3.0, False), (0, 4.0, 9.0, True)]
    (longer,) = [event for event in told if isinstance(event, ev.RuntimesUpdated)]
    assert (longer.tasks, longer.runtimes[0] > 3.0) == ([0], True)


def test_a_gang_starts_only_where_it_fits_before_the_earliest_window_ends() -> None:
    grid = [*pcs(1), SimulatedPC("short", cycle(4, 1), site="A"), SimulatedPC("long", cycle(20, 1), site="A")]
    run = simulator(grid, [gang(2, 5.0)]).run()
    assert {pc for pc, _ in run.gangs[0].ranks} == {"pc0", "long"}
    assert run.counters.kills == 0


def test_a_gang_that_is_prepared_when_a_window_closes_never_began() -> None:
    grid = [
        *pcs(1),
        SimulatedPC("gone", lambda: iter([RealWindow(0, 3, math.inf), RealWindow(4, math.inf, math.inf)]), site="A"),
    ]
    run = simulator(grid, [gang(2, 5.0)], Conditions(gang_start_s=3.5)).run()
    assert times(run) == [(0, 7.5, 12.5, True)]
    assert (run.counters.kills, run.counters.wasted_s) == (0, 0.0)


def test_a_gang_in_its_overhead_is_lost_too() -> None:
    grid = [
        *pcs(1),
        SimulatedPC("gone", lambda: iter([RealWindow(0, 3, math.inf), RealWindow(4, math.inf, math.inf)]), site="A"),
    ]
    run = simulator(grid, [gang(2, 5.0)], Conditions(overhead_s=3.5)).run()
    assert times(run) == [(0, 0.0, 3.0, False), (0, 4.0, 12.5, True)]


@pytest.mark.slow
def test_a_gang_that_is_lost_each_time_is_given_up() -> None:
    # It says each time that it stays for long.
    timetable = lambda: (RealWindow(10.0 * k, 10.0 * k + 4.0, 10.0 * k + 9.0) for k in range(10_000))  # noqa: E731
    with pytest.raises(Stalled, match="lost each time"):
        simulator(pcs(2, timetable), [gang(2, 5.0)]).run()


def test_a_cancelled_gang_ends_at_once_on_all_pcs() -> None:
    other = SimulatedPC("other", slots=3, site="B")
    made = simulator([*pcs(2), other], [gang(2, 5.0), gang(3, 6.0), gang(2, 2.0), gang(2, 1.0, at=1.0)])
    ended: list[tuple[float, int]] = []

    def cancels(event: ev.Event, now: float) -> Iterator[ev.Event]:
        if isinstance(event, ev.TasksSubmitted) and event.first == 3:
            yield ev.TasksCancelled(((0, 1),))
        if isinstance(event, ev.AttemptsEnded):
            ended.append((now, event.ended[0].attempt.task))

    made.beside = cancels
    with pytest.raises(Stalled):
        made.run()  # the task that was cancelled never ends
    assert ended == [(3.0, 2), (4.0, 3), (6.0, 1)]


# --- what others use -------------------------------------------------------------------------------------------------


def by_time(*changes: tuple[float, str, float]) -> Loads:
    return lambda: iter(changes)


def test_the_load_of_others_slows_a_gang_down_from_then_on() -> None:
    conditions = Conditions(loads=by_time((2.0, "pc1", 0.5), (6.0, "pc1", 0.0)))
    assert times(simulator(pcs(2), [gang(2, 5.0)], conditions).run()) == [(0, 0.0, 7.0, True)]


def test_a_load_that_is_drawn_as_it_was_changes_nothing() -> None:
    made = simulator(pcs(1), [gang(1, 4.0)], Conditions(redrawn=lambda chance: 0.0))
    told = events_of(made)
    assert made.run().makespan_s == 4.0
    assert not any(isinstance(event, ev.WorkerMeasured) for event in told)


def test_the_scheduler_knows_how_fast_pcs_are_when_gangs_come() -> None:
    def told(arrival: Arrival) -> list[float]:
        made = simulator([SimulatedPC("a", speed=0.5, site="A")], [arrival])
        events = events_of(made)
        made.run()
        return [event.speed for event in events if isinstance(event, ev.WorkerJoined)]

    assert (told(gang(1, 4.0)), told(Arrival([4.0]))) == ([0.5], [1.0])


def test_a_load_from_the_beginning_is_known_when_the_pc_joins() -> None:
    grid = [SimulatedPC("a", site="A", load=0.2), SimulatedPC("b", site="A")]
    made = simulator(grid, [gang(2, 4.0)])
    told = events_of(made)
    assert times(made.run()) == [(0, 0.0, 5.0, True)]
    assert [event for event in told if isinstance(event, ev.WorkerMeasured)] == [ev.WorkerMeasured("a", 1.0, 0.2)]


def test_a_pc_that_others_use_completely_stands_still() -> None:
    conditions = Conditions(loads=by_time((1.0, "pc0", 1.0), (500.0, "pc0", 0.0)))
    assert times(simulator(pcs(1), [gang(1, 5.0)], conditions).run()) == [(0, 0.0, 504.0, True)]


def test_the_load_of_a_pc_that_is_away_is_told_when_it_comes() -> None:
    late = SimulatedPC("pc0", lambda: iter([RealWindow(3.0, math.inf, math.inf)]), site="A")
    run = simulator([late], [gang(1, 4.0)], Conditions(loads=by_time((1.0, "pc0", 0.2)))).run()
    assert times(run) == [(0, 3.0, 8.0, True)]


def test_loads_that_change_for_ever_do_not_keep_a_run_going() -> None:
    def loads() -> Iterator[tuple[float, str, float]]:
        number = 0
        while True:
            number += 1
            yield float(number), "pc0", number % 2 / 10

    assert simulator(pcs(1), [gang(1, 3.0)], Conditions(loads=loads)).run().makespan_s == pytest.approx(3.111, abs=1e-3)
    with pytest.raises(Stalled):
        simulator(pcs(1), [gang(2, 3.0)], Conditions(loads=loads)).run()


def test_loads_are_redrawn_when_gangs_arrive_and_end() -> None:
    drawn: list[float] = []

    def draw(chance: Random) -> float:
        drawn.append(chance.randint(0, 30) / 100)
        return drawn[-1]

    conditions = Conditions(redrawn=draw, seed=5)
    run = simulator(pcs(2), [gang(1, 4.0), gang(1, 4.0, at=1.0)], conditions).run()
    first = list(drawn)
    assert len(first) == 2 * 4  # two PCs; two arrivals and two ends
    assert all(one.end - one.start > 4.0 for one in run.gangs)
    drawn.clear()
    assert simulator(pcs(2), [gang(1, 4.0), gang(1, 4.0, at=1.0)], conditions).run().gangs == run.gangs
    assert drawn == first


@pytest.mark.parametrize("load", [-0.1, 1.1, math.nan])
def test_a_load_is_a_fraction(load: float) -> None:
    with pytest.raises(SchedulerError, match="a load of"):
        simulator(pcs(1), [gang(1, 4.0)], Conditions(loads=by_time((1.0, "pc0", load)))).run()


# --- more slots than processors --------------------------------------------------------------------------------------


def test_slots_share_processors_and_ends_move_with_that() -> None:
    grid = [SimulatedPC("a", slots=2, processors=1, site="A")]
    # Alone for 2 s, then both at half speed: the second is done after 2 s, and the first goes on alone.
    run = simulator(grid, [gang(1, 5.0), gang(1, 1.0, at=2.0)]).run()
    assert times(run) == [(1, 2.0, 4.0, True), (0, 0.0, 6.0, True)]


def test_a_gang_waits_for_its_rank_on_the_fuller_pc() -> None:
    grid = [SimulatedPC("a", slots=2, processors=1, site="A"), SimulatedPC("b", site="A")]
    run = simulator(grid, [gang(2, 4.0), gang(1, 1.0, at=1.0)]).run()
    assert sorted(times(run)) == [(0, 0.0, 5.0, True), (1, 1.0, 3.0, True)]


def test_single_tasks_share_processors_with_gangs() -> None:
    grid = [SimulatedPC("a", slots=2, processors=1, site="A")]
    run = simulator(grid, [gang(1, 5.0), Arrival([1.0], at=2.0)], trace=True).run()
    assert times(run) == [(0, 0.0, 6.0, True)]
    assert [(one.task, one.start, one.end) for one in run.executions] == [(1, 2.0, 4.0), (0, 0.0, 6.0)]


def test_single_tasks_alone_share_processors() -> None:
    grid = [SimulatedPC("a", slots=2, processors=1)]
    run = simulator(grid, [Arrival([2.0, 3.0])], Conditions(overhead_s=1.0, gap_s=1.0), trace=True).run()
    assert [(one.start, one.end) for one in run.executions] == [(1.0, 6.0), (1.0, 7.0)]


def test_a_task_is_slowed_down_by_what_others_use() -> None:
    conditions = Conditions(loads=by_time((1.0, "a", 0.5)))
    assert simulator([SimulatedPC("a", speed=2.0)], [Arrival([4.0])], conditions).run().makespan_s == 3.0


def test_a_task_on_shared_processors_is_lost_with_its_window() -> None:
    grid = [
        SimulatedPC("a", lambda: iter([RealWindow(0, 3, 9), RealWindow(4, math.inf, math.inf)]), slots=2, processors=1)
    ]
    run = simulator(grid, [Arrival([2.0, 2.0])], trace=True).run()
    assert sorted((one.start, one.end, one.done) for one in run.executions) == [
        (0.0, 3.0, False),
        (0.0, 3.0, False),
        (4.0, 8.0, True),
        (4.0, 8.0, True),
    ]


def test_a_task_that_waits_for_its_gap_when_its_window_closes_never_shares() -> None:
    grid = [
        SimulatedPC("a", lambda: iter([RealWindow(0, 3, 9), RealWindow(4, math.inf, math.inf)]), slots=2, processors=1)
    ]
    run = simulator(grid, [Arrival([2.0])], Conditions(gap_s=5.0)).run()
    assert (run.makespan_s, run.counters.kills) == (11.0, 0)


# --- an experiment gives the rates -----------------------------------------------------------------------------------


def test_an_experiment_gives_the_rate_of_each_gang() -> None:
    asked: list[tuple[float, list[int]]] = []

    def pace(works: Sequence[SimulatedWork], now: float) -> list[float]:
        asked.append((now, [work.task for work in works]))
        return [1.0 / len(works) for _ in works]

    run = simulator(pcs(2), [gang(1, 5.0), gang(1, 1.0, at=2.0)], Conditions(pace=pace)).run()
    assert times(run) == [(1, 2.0, 4.0, True), (0, 0.0, 6.0, True)]
    assert asked == [(0.0, [0]), (2.0, [0, 1]), (4.0, [0]), (6.0, [])]


def test_an_experiment_sees_where_each_rank_runs_and_single_tasks_go_their_own_way() -> None:
    def pace(works: Sequence[SimulatedWork], now: float) -> list[float]:
        return [sum(ranks for _, ranks in work.ranks) * (1.0 - work.ranks[0][0].load) for work in works]

    grid = [SimulatedPC("a", slots=3, site="A", load=0.5)]
    run = simulator(grid, [gang(2, 5.0), Arrival([5.0])], Conditions(pace=pace), policy="packing").run()
    assert times(run) == [(0, 0.0, 5.0, True)]
    assert run.makespan_s == 10.0


# --- what runs already -----------------------------------------------------------------------------------------------


def found(ranks: Sequence[tuple[str, int]], ends: float, really: float, slots: int = 1) -> Arrival:
    count = sum(number for _, number in ranks)
    return Arrival([ends], [really], need=Need(count, count, slots=slots, gang=True), running=ranks)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_gang_that_runs_already_goes_on(slots: int) -> None:
    grid = [SimulatedPC("a", slots=2 * slots, site="A"), SimulatedPC("b", slots=slots, site="A")]
    running = found((("a", 1), ("b", 1)), 5.0, 1.0, slots)
    run = simulator(grid, [running, gang(1, 3.0, slots=slots), gang(3, 2.0, slots=slots)]).run()
    assert sorted(times(run)) == [(0, 0.0, 1.0, True), (1, 0.0, 3.0, True), (2, 3.0, 5.0, True)]
    assert run.counters.adopted == 1


def test_two_gangs_that_run_already_have_slots_of_their_own() -> None:
    grid = [SimulatedPC("a", slots=3, site="A")]
    run = simulator(grid, [found([("a", 1)], 5.0, 5.0), found([("a", 2)], 4.0, 4.0)]).run()
    assert [one.slots for one in run.gangs] == [(("a", (1, 2)),), (("a", (0,)),)]


def test_no_more_can_run_than_there_are_slots() -> None:
    with pytest.raises(SchedulerError, match="more runs on a than it has slots"):
        simulator([SimulatedPC("a", slots=2, site="A")], [found([("a", 3)], 5.0, 5.0)]).run()


def test_only_one_gang_by_itself_can_run_already() -> None:
    with pytest.raises(SchedulerError, match="only one gang"):
        Arrival([1.0], running=[("a", 1)])
    with pytest.raises(SchedulerError, match="only one gang"):
        Arrival([1.0, 1.0], need=Need(2, 2), running=[("a", 2)])


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"speed": 0.0}, {"load": 1.5}, {"slots": 0}, {"processors": -1}])
def test_an_impossible_pc_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SchedulerError, match="an impossible PC"):
        SimulatedPC("a", **wrong)  # type: ignore[arg-type]


def test_silent_pcs_are_not_simulated_beside_gangs() -> None:
    with pytest.raises(SchedulerError, match="never answers"):
        simulator([SimulatedPC("a", silent=True), *pcs(2)], [gang(2, 5.0)])


# --- one that needs the whole site -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("small", "within"),
    [
        # Single tasks only: it is the head of its queue at once, and slots are kept for it.
        (0, 9.0),
        # Small gangs, too: they overtake until its patience ends.
        (2, LEAST_S + 9.0),
    ],
)
def test_a_gang_of_the_whole_site_starts_within_a_bound_although_small_work_never_stops(
    small: int, within: float
) -> None:
    stream: list[Arrival] = []
    for at in range(0, 2_000, 2):
        stream += [gang(small, 9.0, at=at)] if small else [Arrival([9.0, 9.0], None, at)]
        stream.append(Arrival([5.0, 7.0], None, at + 1.0))
    whole = gang(16, 30.0, at=60.5)
    arrivals = sorted([*stream, whole], key=lambda arrival: arrival.at)
    run = Simulator(make_policy("packing"), pcs(16), arrivals, IDEAL).run()
    (one,) = [execution for execution in run.gangs if sum(many for _, many in execution.ranks) == 16]
    assert one.done
    assert one.start - whole.at <= within
    assert run.makespan_s > 2_000.0
