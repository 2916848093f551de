"""A worker that has no room for what a task needs gets no such tasks for a while: other workers are tried first."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import AttemptOutcome, InvariantBroken, State
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.avoided import FIRST_REST_S, KINDS_LIMIT, LONGEST_REST_S, Avoided, Why
from deskgrid.scheduler.state.progress import IDLE_LIMIT
from deskgrid.scheduler.state.timers import Timer, Timers
from deskgrid.scheduler.views.explain import explain
from tests.scheduler.builders import Grid, pgs, went_off
from tests.scheduler.test_views import made

FILES = CategoryKey(files=True)
OTHERS = CategoryKey("bob")


def full(slots: int = 1, queue_length: int = 0) -> tuple[Grid, int]:
    """A worker that had no room for a task with files, which waits."""
    grid = Grid(pgs(queue_length))
    grid.pc("full", slots=slots)
    (task,) = grid.tasks(1.0, key=FILES)
    grid.expect(full=[task])
    lacks(grid, task)
    return grid, task


def lacks(grid: Grid, *tasks: int) -> None:
    """There is no room for tasks, and none of them has ended."""
    assert grid.end(*tasks, outcome=AttemptOutcome.NO_ROOM, worker="full") == []


def rest_of(grid: Grid) -> float | None:
    """Until when that worker gets no tasks of some kind; None: it gets all."""
    resting = grid.scheduler.resting("full")
    return None if resting is None else resting[1].until


def test_other_workers_are_tried_first() -> None:
    grid, task = full()
    grid.expect()
    grid.pc("other")
    grid.expect(other=[task])
    assert grid.end(task, worker="other") == [task]


def test_a_lone_worker_is_tried_again_after_longer_and_longer_rests_and_the_task_never_fails() -> None:
    grid, task = full()
    rest = FIRST_REST_S
    for _ in range(10):
        assert grid.scheduler.wakes_at == grid.now + rest == rest_of(grid)
        grid.wait(rest - 0.1)
        grid.expect()
        grid.wait(0.2)
        grid.expect(full=[task])
        assert rest_of(grid) is None
        lacks(grid, task)
        rest = min(2 * rest, LONGEST_REST_S)
    assert rest == LONGEST_REST_S
    counters = grid.scheduler.counters
    assert (counters.no_room, counters.errors, counters.crashes) == (11, 0, 0)
    assert (grid.state(task), grid.inside.tasks.crashes(task), grid.inside.quarantine.workers) == (
        State.WAITING,
        (),
        {},
    )


def test_work_of_other_kinds_goes_on_there() -> None:
    grid, task = full()
    for key in (CategoryKey(), OTHERS):
        (other,) = grid.tasks(1.0, bag=len(key.owner) + 1, key=key)
        grid.expect(full=[other])
        grid.end(other, worker="full")
    assert grid.state(task) == State.WAITING


@pytest.mark.parametrize("outcome", [AttemptOutcome.DONE, AttemptOutcome.ERROR])
def test_after_a_task_for_which_there_was_room_the_next_rest_is_short(outcome: AttemptOutcome) -> None:
    grid, task = full()
    grid.wait(FIRST_REST_S)
    grid.expect(full=[task])
    lacks(grid, task)
    grid.wait(2 * FIRST_REST_S)
    grid.expect(full=[task])
    assert grid.end(task, outcome=outcome, worker="full") == [task]
    assert not grid.inside.avoided
    (task,) = grid.tasks(1.0, key=FILES, bag=1)
    grid.expect(full=[task])
    lacks(grid, task)
    assert rest_of(grid) == grid.now + FIRST_REST_S


def test_attempts_that_were_under_way_make_no_rest_longer_or_shorter() -> None:
    grid = Grid(pgs(0))
    grid.pc("full", slots=3)
    tasks = grid.tasks(1.0, 1.0, 1.0, key=FILES)
    assert len(grid.tell_pass()) == 3
    lacks(grid, tasks[0])
    lacks(grid, tasks[1])
    grid.end(tasks[2], worker="full")
    assert rest_of(grid) == FIRST_REST_S
    grid.expect()


def test_tasks_that_had_not_begun_go_to_others() -> None:
    grid = Grid(pgs(2))
    grid.pc("full")
    first, second, third = grid.tasks(1.0, 1.0, 1.0, key=FILES)
    grid.expect(full=[first])
    assert grid.state(second) == grid.state(third) == State.QUEUED
    lacks(grid, first)
    assert grid.state(second) == grid.state(third) == State.WAITING
    grid.pc("other", slots=3)
    assert sum(map(len, grid.tell_pass().values())) == 3


def test_a_worker_cannot_end_its_rest_by_joining_anew() -> None:
    grid, task = full()
    grid.leave("full")
    grid.tell(ev.WorkerForgotten("full"))
    grid.pc("full")
    grid.expect()
    grid.wait(FIRST_REST_S)
    grid.expect(full=[task])


def test_what_failed_while_its_worker_left_counts() -> None:
    grid = Grid(pgs(0))
    grid.pc("full")
    (task,) = grid.tasks(1.0, key=FILES)
    grid.expect(full=[task])
    grid.leave("full", planned=False)
    lacks(grid, task)
    grid.pc("full")
    grid.expect()


def test_a_checkpointable_task_keeps_its_progress_and_no_piece_counts_as_idle() -> None:
    grid = Grid(pgs(0))
    grid.pc("full", 10_000.0)
    (task,) = grid.tasks(5000.0, min_piece=60.0, reserve_s=1.0)
    grid.expect(full=[task])
    grid.tell(ev.CheckpointKept(grid.attempts[task], 0.5, 2500.0, 1.0))
    for _ in range(IDLE_LIMIT + 1):
        lacks(grid, task)
        grid.wait((rest_of(grid) or 0.0) - grid.now)
        grid.expect(full=[task])
    progress = grid.inside.tasks.progress.find(task)
    assert progress is not None
    assert (progress.fraction, progress.idle) == (0.5, 0)


def test_a_rest_is_of_one_worker_and_one_category() -> None:
    avoided = Avoided(Timers())
    assert avoided.avoid(FILES, "full", Why.NO_ROOM, 0.0)
    assert avoided.until(FILES, "full") == FIRST_REST_S
    assert avoided.until(OTHERS, "full") is avoided.until(FILES, "other") is None
    assert avoided.resting("other") is None


def test_of_each_worker_only_the_last_categories_are_known() -> None:
    avoided = Avoided(timers := Timers())
    keys = [CategoryKey(str(number)) for number in range(KINDS_LIMIT + 1)]
    for key in keys:
        assert avoided.avoid(key, "full", Why.NO_ROOM, 0.0)
    assert not avoided.is_scarce(keys[0])
    assert avoided.is_scarce(keys[1])
    avoided.check([], {})
    assert went_off(avoided, timers, FIRST_REST_S)
    assert not avoided.is_scarce(keys[1])
    avoided.check([], {})


def test_each_rest_ends_at_its_time() -> None:
    avoided = Avoided(timers := Timers())
    assert avoided.avoid(FILES, "full", Why.NO_ROOM, 0.0)
    assert avoided.avoid(FILES, "other", Why.NO_ROOM, 5.0)
    assert not went_off(avoided, timers, FIRST_REST_S - 0.1)
    assert went_off(avoided, timers, FIRST_REST_S)
    assert avoided.until(FILES, "full") is None
    assert avoided.is_scarce(FILES)
    assert timers.next == avoided.until(FILES, "other") == FIRST_REST_S + 5.0
    assert went_off(avoided, timers, FIRST_REST_S + 5.0)
    assert not avoided.is_scarce(FILES)
    assert timers.next == FIRST_REST_S + LONGEST_REST_S
    avoided.check([], {})
    avoided.works([FILES, OTHERS], "full", done=True)
    avoided.works([FILES], "other", done=True)
    assert not avoided


def test_what_failed_long_ago_makes_no_rest_longer_and_is_forgotten() -> None:
    avoided = Avoided(timers := Timers())
    assert avoided.avoid(FILES, "full", Why.NO_ROOM, 0.0)
    assert avoided.avoid(OTHERS, "full", Why.NO_ROOM, 0.0)
    assert went_off(avoided, timers, FIRST_REST_S)
    later = FIRST_REST_S + LONGEST_REST_S
    assert avoided.avoid(FILES, "full", Why.NO_ROOM, later)
    assert avoided.until(FILES, "full") == later + FIRST_REST_S
    assert went_off(avoided, timers, later + FIRST_REST_S)
    assert avoided.avoid(OTHERS, "full", Why.NO_ROOM, later + FIRST_REST_S)
    assert avoided.until(OTHERS, "full") == later + 2 * FIRST_REST_S


def test_explain_says_which_workers_have_no_room() -> None:
    grid, task = full()
    grid.pc("short", 0.5)
    slots = {slot.worker: slot.rest and slot.rest.until for slot in made(explain(grid.inside, task, grid.now)).slots}
    assert slots == {"full": FIRST_REST_S, "short": None}


def test_the_check_finds_a_rest_that_ends_unseen() -> None:
    grid, _ = full()
    grid.inside.timers.at[Timer.AVOIDED].clear()
    with pytest.raises(InvariantBroken, match="when rests are over"):
        grid.scheduler.check(0.0)
