"""Short, similar tasks are placed many at a time; still only those that fit, and every slot gets some."""

import pytest

from deskgrid.scheduler.placing.placing import AHEAD_TASKS, WORKER_TASKS, Placing
from deskgrid.scheduler.policies.packing import TASKS
from deskgrid.scheduler.policies.placement import TOGETHER_S, TOGETHER_TASKS
from deskgrid.scheduler.queues.by_arrival import OldestFirst
from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.runtime_index import RuntimeIndex
from deskgrid.scheduler.queues.task_ranges import grouped
from deskgrid.scheduler.state.slots import LiveAttempt
from tests.scheduler.builders import Grid, packing, pgs


def busy_grid(*uptimes: float, tasks: int, runtime: float) -> Grid:
    """PCs of one slot that are up for so long, and one batch for them."""
    grid = Grid(packing(queue_s=1.0))
    for number, uptime in enumerate(uptimes):
        grid.pc(f"pc{number}", uptime)
    grid.tasks(*[runtime] * tasks)
    return grid


def test_alike_are_those_of_one_runtime_that_follow_each_other() -> None:
    queue = LongestFirst()
    queue.add(grouped(range(5), [2.0, 2.0, 2.0, 1.0, 1.0]))
    entry = queue.next_fit(10.0)
    assert entry is not None
    assert (entry.task, entry.alike) == (0, 3)
    queue.take(entry, 2)
    rest = queue.next_fit(10.0, entry)
    assert rest is not None
    assert (rest.task, rest.alike, len(queue)) == (2, 1, 3)
    queue.check()


def test_what_was_discarded_is_nobody_alike() -> None:
    queue = LongestFirst()
    queue.add(grouped(range(5), [2.0] * 5))
    queue.discard(1)
    entry = queue.next_fit(10.0)
    assert entry is not None
    assert entry.alike == 1


def test_in_the_order_of_arrival_nothing_is_known_to_be_alike() -> None:
    queue = OldestFirst()
    queue.add(grouped(range(5), [2.0] * 5))
    entry = queue.next_fit(10.0)
    assert entry is not None
    assert entry.alike == 1


def test_some_are_taken_out_of_the_middle_of_a_run() -> None:
    runs = RuntimeIndex()
    runs.add(grouped(range(10), [1.0] * 10), 0)
    runs.take(1.0, 3, 4)
    runs.check()
    assert [(task, held) for _, _, task, held in runs.forwards()] == [(0, 3), (7, 3)]
    runs.take(1.0, 7, 3)
    assert [(task, held) for _, _, task, held in runs.forwards()] == [(0, 3)]


def test_every_slot_gets_as_many_short_tasks() -> None:
    grid = busy_grid(1000.0, 1000.0, 1000.0, tasks=12_000, runtime=1e-3)
    handed = {worker: len(tasks) for worker, tasks in grid.tell_pass().items()}
    assert set(handed) == {"pc0", "pc1", "pc2"}
    assert max(handed.values()) - min(handed.values()) <= TOGETHER_S / 1e-3


def test_the_last_tasks_that_are_said_to_take_hardly_any_time_are_shared_out() -> None:
    count = TASKS + TOGETHER_TASKS * 3 // 2  # so many that there is no plan
    grid = busy_grid(float("inf"), float("inf"), tasks=count, runtime=1e-6)
    assert {worker: len(tasks) for worker, tasks in grid.tell_pass().items()} == {"pc0": count // 2, "pc1": count // 2}


def test_of_tasks_that_take_no_time_a_slot_holds_a_bounded_number() -> None:
    grid = busy_grid(1000.0, tasks=AHEAD_TASKS * 3, runtime=0.0)
    assert len(grid.tell_pass()["pc0"]) == AHEAD_TASKS
    assert len(grid.queues()["pc0"]) == AHEAD_TASKS


def test_of_such_tasks_a_worker_with_many_slots_holds_no_more_than_one_with_few() -> None:
    grid = Grid(packing(queue_s=1.0))
    grid.pc("pc0", 1000.0, slots=64)
    slot = grid.inside.slots.workers["pc0"].slots[0]
    slot.queue.append(LiveAttempt(0, slot, 0.0))
    most = WORKER_TASKS // 64
    slot.sent.extend([LiveAttempt(1, slot, 0.0, 1)] * (most - 1))
    assert Placing(grid.inside).may_send(slot)
    slot.sent.append(slot.sent[0])
    assert not Placing(grid.inside).may_send(slot)


def test_a_queue_that_has_room_for_one_task_gets_one_however_short() -> None:
    grid = Grid(pgs(queue_length=1))
    grid.pc("pc0", 1000.0)
    grid.tasks(*[0.0] * (AHEAD_TASKS * 2))
    assert len(grid.tell_pass()["pc0"]) == AHEAD_TASKS
    assert len(grid.queues()["pc0"]) == 1


def test_a_worker_that_has_never_answered_gets_one_of_them() -> None:
    grid = Grid(packing(queue_s=1.0))
    grid.pc("pc0", 1000.0, new=True)
    tasks = grid.tasks(*[1e-3] * (TASKS + 8 * TOGETHER_TASKS))
    grid.expect(pc0=tasks[:1])
    assert grid.queues() == {}
    grid.end(tasks[0])
    assert len(grid.tell_pass()["pc0"]) > 100


@pytest.mark.parametrize("runtime", [1e-5, 1e-4, 1e-3, 3e-3])
def test_no_more_are_placed_together_than_fit_the_window(runtime: float) -> None:
    count = 5 * TOGETHER_TASKS
    grid = busy_grid(20.5 * runtime, tasks=count, runtime=runtime)
    placed = grid.tell_pass()["pc0"]
    queued = grid.queues().get("pc0", [])
    assert 19 <= len(placed) + len(queued) <= 20
    assert len(grid.priority()) == count - len(placed) - len(queued)


def test_where_no_seconds_may_be_queued_a_slot_gets_one_task_at_a_time() -> None:
    grid = Grid(packing(queue_s=0.0))
    grid.pc("pc0", 1000.0)
    grid.tasks(*[1e-3] * (TASKS + TOGETHER_TASKS))
    assert len(grid.tell_pass()["pc0"]) == 1
    assert grid.queues().get("pc0", []) == []


def test_what_a_slow_worker_did_in_its_seconds_counts_as_seconds_of_a_fast_one() -> None:
    grid = Grid(packing(queue_s=1.0))
    grid.pc("a", speed=0.5)
    tasks = grid.tasks(*[0.1] * 3)
    grid.tell_pass()
    assert grid.end(*tasks, elapsed=0.2) == tasks
    assert grid.inside.prediction_error.quantile(0.9) == pytest.approx(1.0)
    assert grid.inside.slots.workers["a"].slots[0].busy_s == pytest.approx(0.6)
