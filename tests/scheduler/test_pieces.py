"""Checkpointable tasks: where a piece of one is placed, what is left after it, and when a task gets nowhere."""

import math
from dataclasses import replace
from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.prediction.hours import Hours
from deskgrid.scheduler.queues.categories import CategoryKey, rounded_piece
from deskgrid.scheduler.simulation.simulator import Arrival, Conditions, SimulatedPC, Simulator, Stalled, cycle
from deskgrid.scheduler.state.progress import IDLE_LIMIT, LEFT_MOST_S, TaskProgress
from deskgrid.sleepbench.scenarios import paper_scenario
from deskgrid.sleepbench.simulated import Trial, scenario_problem, simulate
from tests.scheduler.builders import Grid, packing
from tests.scheduler.test_views import explained

HOUR_S = 3600.0
RESERVE_S = 12.0
CHECKPOINTABLE: dict[str, Any] = {"min_piece": 60.0, "reserve_s": RESERVE_S}


@pytest.fixture
def grid() -> Grid:
    return Grid(packing())


def kept(grid: Grid, task: int, fraction: float | None, elapsed: float, reserve_s: float = RESERVE_S) -> None:
    """A checkpoint of the newest attempt of a task is kept."""
    assert grid.tell(ev.CheckpointKept(grid.attempts[task], fraction, elapsed, reserve_s)) == []


def piece_over(grid: Grid, task: int, elapsed: float, worker: str = "a") -> list[cmd.Command]:
    """A task ends its piece."""
    return grid.tell(ev.AttemptsEnded(worker, [ev.EndedAttempt(grid.attempts[task], AttemptOutcome.PIECE, elapsed)]))


def left_s(grid: Grid, task: int) -> float:
    return grid.scheduler.runtime(task)


# --- where -----------------------------------------------------------------------------------------------------------


def test_a_task_longer_than_any_window_begins_where_there_is_time_for_a_piece(grid: Grid) -> None:
    (task,) = grid.tasks(10 * HOUR_S, **CHECKPOINTABLE)
    grid.pc("short", 60 + RESERVE_S)
    grid.expect()
    grid.pc("enough", 60 + RESERVE_S + 0.1)
    grid.expect(enough=[task])


def test_what_is_left_of_a_task_may_need_less_than_a_piece(grid: Grid) -> None:
    (task,) = grid.tasks(5.0, **CHECKPOINTABLE)
    grid.pc("a", 5 + RESERVE_S + 0.1)
    grid.expect(a=[task])


def test_a_short_rest_goes_where_a_piece_of_a_longer_task_does_not_fit(grid: Grid) -> None:
    long, short = grid.tasks(HOUR_S, 5.0, **CHECKPOINTABLE)
    grid.pc("a", 30.0)
    grid.expect(a=[short])
    grid.pc("b", 100.0)
    grid.expect(b=[long])


def test_windows_that_nothing_else_would_fill_come_first_and_the_longest_task_begins_first(grid: Grid) -> None:
    fits_long, pieces = grid.tasks(500.0, bag=1), grid.tasks(HOUR_S, 2 * HOUR_S, bag=2, **CHECKPOINTABLE)
    for name, uptime in (("wide", 1000.0), ("narrow", 100.0), ("middle", 400.0)):
        grid.pc(name, uptime)
    grid.expect(narrow=[pieces[1]], middle=[pieces[0]], wide=fits_long)


def test_a_longer_task_that_fits_goes_before_a_checkpointable_one(grid: Grid) -> None:
    (piece,), (long,) = grid.tasks(100.0, bag=1, **CHECKPOINTABLE), grid.tasks(200.0, bag=2)
    grid.pc("a", 500.0)
    grid.expect(a=[long])
    grid.pc("b", 150.0)
    grid.expect(b=[piece])


@pytest.mark.parametrize("policy", ["packing", "pgs", "longest", "fcfs"])
def test_every_policy_leaves_idle_slots_to_checkpointable_tasks(policy: str) -> None:
    grid = Grid(make_policy(policy))
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0, slots=2)
    grid.expect(a=[task])


def test_a_slot_with_a_piece_gets_nothing_else(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    grid.tasks(0.1, bag=1)
    grid.expect()


def test_a_bounded_pass_places_so_many_pieces_and_the_next_one_goes_on(grid: Grid) -> None:
    tasks = grid.tasks(*[HOUR_S] * 5, **CHECKPOINTABLE)
    grid.pc("a", 200.0, slots=4)
    found = [task for _ in range(4) for its in grid.tell_pass(2).values() for task in its]
    assert sorted(found) == tasks[:4]


def test_bags_with_other_pieces_do_not_stand_in_each_others_way(grid: Grid) -> None:
    grid.tasks(9 * HOUR_S, bag=1, min_piece=8 * HOUR_S)
    (short,) = grid.tasks(HOUR_S, bag=2, min_piece=60.0)
    grid.pc("a", 1000.0)
    grid.expect(a=[short])


@pytest.mark.parametrize(
    ("wished", "asked"), [(60, 60), (59, 60), (61, 120), (0, 60 / 64), (5e-324, 60 / 64), (1e9, 60 * 2**14), (1, 1.875)]
)
def test_shortest_pieces_are_rounded_up_so_that_there_are_few_queues(wished: float, asked: float) -> None:
    assert rounded_piece(wished) == asked


def test_the_first_batch_of_a_bag_decides_whether_its_tasks_are_checkpointable(grid: Grid) -> None:
    grid.tasks(500.0)
    grid.tasks(500.0, **CHECKPOINTABLE)
    grid.pc("a", 100.0)
    grid.expect()


# --- what is left ----------------------------------------------------------------------------------------------------


def test_after_a_piece_the_task_waits_with_what_its_pace_leaves(grid: Grid) -> None:
    (task,) = grid.tasks(10 * HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    grid.wait(100.0)
    kept(grid, task, 0.2, 100.0)
    assert left_s(grid, task) == 10 * HOUR_S  # the attempt goes on
    assert grid.scheduler.left_s(task) == pytest.approx(400.0)
    assert piece_over(grid, task, 100.0) == []
    assert left_s(grid, task) == pytest.approx(400.0)
    assert grid.state(task) == State.WAITING
    assert grid.scheduler.counters.pieces == 1
    grid.expect(a=[task])
    kept(grid, task, 0.6, 50.0)
    piece_over(grid, task, 50.0)
    assert left_s(grid, task) == pytest.approx(50.0)  # by the pace of the last piece


@pytest.mark.parametrize(("elapsed", "left"), [(1000.0, 2600.0), (3600.0, 3600.0), (5000.0, 5000.0)])
def test_without_a_fraction_the_prediction_says_what_is_left_and_grows_if_it_was_too_short(
    grid: Grid, elapsed: float, left: float
) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a")
    grid.expect(a=[task])
    kept(grid, task, None, elapsed)
    piece_over(grid, task, elapsed)
    assert left_s(grid, task) == left


@pytest.mark.parametrize("planned", [True, False])
def test_a_task_whose_pc_is_gone_goes_on_from_its_last_checkpoint(grid: Grid, planned: bool) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    kept(grid, task, 0.5, 50.0)
    grid.leave("a", planned)
    assert left_s(grid, task) == pytest.approx(50.0)
    assert grid.inside.prediction_error.quantile(0.9) == 1.0  # a wrong prediction costs the others nothing


def test_only_a_checkpoint_of_the_newest_attempt_of_a_checkpointable_task_counts(grid: Grid) -> None:
    (task,), (other,) = grid.tasks(HOUR_S, **CHECKPOINTABLE), grid.tasks(50.0, bag=1)
    grid.pc("a", 200.0, slots=2)
    grid.tell_pass()
    before = grid.attempts[task]
    grid.give_back(task)
    grid.tell_pass()
    assert grid.tell(ev.CheckpointKept(before, 0.5, 10.0, RESERVE_S)) == []
    kept(grid, other, 0.5, 10.0)
    assert list(grid.inside.tasks.progress) == []


def test_a_lost_worker_may_still_save_until_another_one_begins_the_task(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    kept(grid, task, 0.5, 50.0)
    grid.pc("b", 200.0)
    grid.expect(b=[task])
    assert grid.scheduler.left_s(task) == pytest.approx(50.0)


def test_a_checkpoint_that_says_less_than_the_one_before_changes_nothing() -> None:
    progress = TaskProgress(100.0, 0.5, 50.0, 0.5, 50.0)
    progress.save(0.4, 10.0)
    assert (progress.fraction, progress.left_s, progress.saved) == (0.5, 50.0, False)


@pytest.mark.parametrize(("begun_at", "fraction"), [(None, 1e-12), (None, 5e-324), (0.5, 0.5 + 2e-16)])
def test_a_fraction_that_tells_nothing_leaves_a_time_that_can_be_counted_with(
    begun_at: float | None, fraction: float
) -> None:
    progress = TaskProgress(100.0, begun_at, 100.0, begun_at, 100.0)
    progress.save(fraction, 10.0)
    progress.save(fraction, HOUR_S)
    assert (progress.fraction, progress.left_s) == (fraction, LEFT_MOST_S)


def test_what_it_costs_to_save_counts_in_what_a_slot_must_have(grid: Grid) -> None:
    first, second = grid.tasks(HOUR_S, HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[first])
    kept(grid, first, 0.1, 50.0, reserve_s=100.0)
    grid.pc("b", 150.0)
    grid.expect()
    grid.pc("c", 161.0)
    grid.expect(c=[second])


def test_a_checkpoint_that_cannot_be_read_leaves_what_the_one_before_left(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    kept(grid, task, 0.5, 50.0)
    piece_over(grid, task, 50.0)
    grid.expect(a=[task])
    assert grid.tell(ev.CheckpointDropped(task, ev.SavedTask(task, 0.25, 150.0))) == []
    piece_over(grid, task, 0.0)
    assert left_s(grid, task) == 150.0
    grid.expect(a=[task])
    assert grid.tell(ev.CheckpointDropped(task, None)) == []
    piece_over(grid, task, 0.0)
    assert left_s(grid, task) == HOUR_S
    assert grid.tell(ev.CheckpointDropped(99, None)) == []


def test_a_better_prediction_of_the_whole_leaves_the_part_that_is_not_done(grid: Grid) -> None:
    task, fresh, unsaid = grid.tasks(HOUR_S, HOUR_S, HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0, slots=3)
    grid.tell_pass()
    kept(grid, task, 0.75, 50.0)
    kept(grid, unsaid, None, 50.0)
    for each in (task, unsaid):
        piece_over(grid, each, 50.0)
    assert grid.predict({task: 400.0, fresh: 300.0, unsaid: 200.0}) == {}
    assert [left_s(grid, each) for each in (task, fresh, unsaid)] == [100.0, 300.0, 200.0]


def test_a_restored_task_goes_on_from_its_checkpoint(grid: Grid) -> None:
    saved = [ev.SavedTask(1, 0.5, 70.0)]
    first, second = grid.tasks(HOUR_S, HOUR_S, saved=saved, **CHECKPOINTABLE)
    assert (left_s(grid, first), left_s(grid, second)) == (HOUR_S, 70.0)
    grid.pc("a", 75 + RESERVE_S)
    grid.expect(a=[first])
    grid.inside.tasks.progress.check()


@pytest.mark.parametrize("saved", [ev.SavedTask(7, None, 1.0), ev.SavedTask(1, None, 1.0)])
def test_a_checkpoint_of_another_task_or_of_one_that_has_ended_is_refused(grid: Grid, saved: ev.SavedTask) -> None:
    with pytest.raises(IllegalEvent, match="checkpoints"):
        grid.tasks(1.0, 1.0, done=[1], saved=[saved], **CHECKPOINTABLE)


def test_a_cancelled_task_leaves_nothing(grid: Grid) -> None:
    tasks = grid.tasks(*[HOUR_S] * 3, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[tasks[0]])
    kept(grid, tasks[0], 0.5, 50.0)
    assert grid.cancel(*tasks) == {"a": [tasks[0]]}
    assert len(grid.inside.categories) == len(grid.inside.tasks.progress) == 0


def test_a_task_that_was_running_and_is_found_again_goes_on_where_it_is(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    grid.leave("a", planned=False)
    assert grid.pc("a", 150.0, holds=[grid.holds(task, 50.0)]) == {}
    assert grid.running("a") == task


# --- without progress ------------------------------------------------------------------------------------------------


def pieces_in_vain(grid: Grid, task: int, many: int) -> list[cmd.Command]:
    """So many windows close over a task that has not saved."""
    commands: list[cmd.Command] = []
    for _ in range(many):
        grid.pc("a", 200.0)
        grid.expect(a=[task])
        grid.wait(150.0)
        commands = grid.tell(ev.WorkerLeft("a", planned=True))
    return commands


def test_three_windows_without_a_checkpoint_are_an_error(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    assert pieces_in_vain(grid, task, IDLE_LIMIT - 1) == []
    assert explained(grid.scheduler, task, grid.now).idle_pieces == IDLE_LIMIT - 1
    assert pieces_in_vain(grid, task, 1) == [cmd.Stuck([grid.attempts[task]])]
    assert grid.state(task) == State.FAILED
    assert not grid.inside.lost


def test_progress_begins_the_count_anew(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    pieces_in_vain(grid, task, IDLE_LIMIT - 1)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    kept(grid, task, 0.1, 50.0)
    grid.leave("a")
    assert pieces_in_vain(grid, task, IDLE_LIMIT - 1) == []


@pytest.mark.parametrize(
    ("after", "event"),
    [
        (150.0, {"planned": False}),
        (150.0, {"planned": True, "early": True}),
        (30.0, {"planned": True}),
    ],
)
def test_what_cuts_a_piece_short_never_counts_against_the_task(grid: Grid, after: float, event: dict[str, Any]) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    for _ in range(2 * IDLE_LIMIT):
        grid.pc("a", 200.0)
        grid.expect(a=[task])
        grid.wait(after)
        assert grid.tell(ev.WorkerLeft("a", **event)) == []
        grid.inside.hours = Hours()  # otherwise nobody would begin a piece there again
    assert grid.state(task) == State.WAITING


def test_pieces_that_end_without_progress_are_an_error_too(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a")
    ends = []
    for _ in range(IDLE_LIMIT):
        grid.expect(a=[task])
        ends.append(piece_over(grid, task, 5.0))
    assert ends == [[], [], [cmd.Stuck([grid.attempts[task]])]]
    assert grid.state(task) == State.FAILED


def test_a_worker_that_ends_other_tasks_in_pieces_gets_nowhere(grid: Grid) -> None:
    (task,) = grid.tasks(10.0)
    grid.pc("a")
    for _ in range(IDLE_LIMIT):
        grid.expect(a=[task])
        piece_over(grid, task, 5.0)
    assert grid.state(task) == State.FAILED


# --- views -----------------------------------------------------------------------------------------------------------


def test_it_is_explained_what_a_piece_needs_and_how_far_the_task_is(grid: Grid) -> None:
    (task,) = grid.tasks(HOUR_S, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect(a=[task])
    kept(grid, task, 0.25, 50.0)
    grid.leave("a")
    why = explained(grid.scheduler, task, grid.now)
    assert (why.checkpointable, why.fraction, why.needs_s) == (True, 0.25, 60 + RESERVE_S)


def test_windows_that_close_together_are_counted(grid: Grid) -> None:
    for name, uptime in (("a", 130.0), ("b", 170.0), ("c", 190.0), ("d", math.inf)):
        grid.pc(name, uptime)
    count = {name: grid.scheduler.closing_with(name) for name in ("a", "b", "c", "d", "unknown")}
    assert count == {"a": 2, "b": 2, "c": 1, "d": 0, "unknown": 0}
    grid.refresh("a", 185.0)
    grid.leave("b")
    assert (grid.scheduler.closing_with("a"), grid.scheduler.closing_with("c")) == (2, 2)


# --- simulated -------------------------------------------------------------------------------------------------------


def run(pieces: bool, pcs: list[SimulatedPC], tasks: list[float], **conditions: Any) -> Simulator:
    """A simulator with these tasks."""
    arrival = Arrival(tasks, min_piece=60.0 if pieces else None)
    return Simulator(packing(), pcs, [arrival], Conditions(**conditions), trace=True)


@pytest.mark.parametrize("saving_s", [0.0, 12.0])
def test_ten_hours_in_windows_of_one_take_at_most_a_fiftieth_more_than_possible(saving_s: float) -> None:
    pc = SimulatedPC("pc", cycle(HOUR_S, 60.0))
    made = run(True, [pc], [10 * HOUR_S], saving_s=saving_s, overhead_s=1.0).run()
    assert made.makespan_s <= 1.02 * 10 * (HOUR_S + 60.0)
    assert made.counters.kills == 0
    with pytest.raises(Stalled):
        run(False, [pc], [10 * HOUR_S]).run()


@pytest.mark.parametrize("seed", range(3))
def test_the_papers_third_scenario_with_pieces_hardly_notices_wrong_predictions(seed: int) -> None:
    problem = scenario_problem(paper_scenario(3), seed)
    plain = Trial(problem, "packing", seed=seed, runtime_error=8.0)
    pieces = replace(plain, checkpoint=True)
    saving = replace(pieces, parameters=replace(plain.parameters, saving_s=10.0))
    assert simulate(plain).makespan_s > 90 * 60
    for trial, bound_s in ((pieces, 64.0 * 60), (saving, 64.2 * 60)):
        made = simulate(trial)
        assert made.makespan_s < bound_s
        assert made.counters.kills == 0


def test_a_pc_that_leaves_sooner_than_it_said_loses_what_was_done_since_the_last_checkpoint() -> None:
    problem = scenario_problem(paper_scenario(3), 1)
    made = simulate(Trial(problem, "packing", seed=1, uptime_error=2.0, checkpoint=True))
    assert made.counters.done == problem.tasks
    assert made.counters.kills > 0


def test_a_task_that_saves_nothing_is_given_up_in_a_simulation_too() -> None:
    pc = SimulatedPC("pc", cycle(100.0, 5.0))
    made = Simulator(packing(), [pc], [Arrival([1000.0], min_piece=1.0)], Conditions(overhead_s=20.0, opening_s=90.0))
    assert made.run().counters.done == 0


def test_whoever_has_used_least_of_the_grid_comes_first_and_limits_hold(grid: Grid) -> None:
    rich = grid.tasks(*[HOUR_S] * 3, bag=1, key=CategoryKey("rich"), **CHECKPOINTABLE)
    poor = grid.tasks(*[HOUR_S] * 3, bag=2, key=CategoryKey("poor", 0, (), 2, 2), **CHECKPOINTABLE)
    grid.inside.shares.account("rich").new_s = 100.0
    handed = []
    for name in ("a", "b", "c", "d"):
        grid.pc(name, 200.0)
        handed += [task for its in grid.tell_pass().values() for task in its]
    assert handed == [poor[0], rich[0], poor[1], rich[1]]
    grid.pc("e", 200.0)
    grid.expect(e=[rich[2]])
    grid.pc("f", 200.0)
    grid.expect()


def test_tasks_of_a_paused_bag_are_not_begun(grid: Grid) -> None:
    first, second = grid.tasks(HOUR_S, HOUR_S, barred=True, **CHECKPOINTABLE)
    grid.pc("a", 200.0)
    grid.expect()
    grid.tell(ev.BagGated(0, False))
    grid.tell(ev.TasksRouted([(first, 2)]))
    grid.tell(ev.BagGated(0, True))
    grid.expect()
    assert [grid.state(task) for task in (first, second)] == [State.BARRED] * 2
    grid.tell(ev.BagGated(0, False))
    grid.tell(ev.TasksRouted([(first, 2)]))
    grid.expect(a=[first])


@pytest.mark.parametrize("policy", ["pgs", "fcfs"])
def test_the_order_of_checkpointable_tasks_is_the_same_under_each_policy(grid: Grid, policy: str) -> None:
    short, long = grid.tasks(HOUR_S, 2 * HOUR_S, **CHECKPOINTABLE)
    grid.tell(ev.PolicyChanged(make_policy(policy)))
    grid.pc("a", 200.0)
    grid.expect(a=[long])
    grid.pc("b", 200.0)
    grid.expect(b=[short])
