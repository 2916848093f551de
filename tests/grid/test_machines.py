"""PCs that crash, sleep, share a name, or learn their windows from the broker."""

import json
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.wire import payload
from tests.grid.builders import bag, executions, submitted
from tests.grid.grid import VirtualGrid, cycle, for_seconds
from tests.grid.late import late_answer
from tests.grid.worker_node import WorkerNode


def windows(*spans: str) -> str:
    """A table of the broker's file. Virtual time begins on a Monday at 10:00."""
    return json.dumps({"zone": "UTC", "windows": list(spans)})


def running(node: WorkerNode) -> bool:
    return node.executor is not None and not node.executor.idle


def test_a_worker_that_crashed_is_given_up_and_its_task_is_made_again(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [10.0])
    pc.crash()
    pc.start()
    grid.finish()
    assert executions(grid) == [2]
    assert grid.counters["losses"] == 1
    assert grid.world.now < 40.0


def test_a_worker_that_is_gone_for_good_is_forgotten(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    cycling = grid.worker("cycling", for_seconds(100.0))
    grid.run(1.0)
    pc.crash()
    cycling.crash()
    grid.run(30.0)
    assert list(grid.broker.sessions.workers.by_name) == ["cycling"], "its window was to last, so it may be back"
    grid.run(80.0)
    assert not grid.broker.sessions.workers.by_name
    assert not grid.broker.sessions.state.scheduler.grid.away


def test_a_worker_stopped_by_its_user_hands_its_work_back_at_once(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [10.0])
    pc.stop()
    grid.worker("other")
    grid.finish()
    assert executions(grid) == [2]
    assert (grid.counters["losses"], grid.counters["planned_kills"], grid.counters["kills"]) == (0, 0, 1)
    assert grid.world.now < 13.0


def test_two_workers_of_one_name_both_work_and_are_told_apart(grid: VirtualGrid) -> None:
    first, second = grid.worker("pc"), grid.worker("pc", key="second")
    submitted(grid, [5.0] * 4)
    assert running(first)
    assert running(second)
    assert set(grid.broker.sessions.workers.by_name) == {"pc", "pc~2"}
    grid.finish()
    assert grid.world.now < 13.0


def test_a_worker_that_is_back_before_its_lease_is_out_takes_no_live_namesakes_place(grid: VirtualGrid) -> None:
    first, second = grid.worker("pc"), grid.worker("pc", key="second")
    submitted(grid, [30.0, 30.0])
    first.clog(1.0)
    grid.client().ask("cancel", {"bag": "bag", "items": []})
    second.break_link()
    grid.finish()
    assert executions(grid) == [1, 1]


def test_a_successor_of_one_that_was_lost_gets_its_name_and_none_of_its_work(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [10.0, 600.0])
    grid.run(10.0)
    pc.crash()
    grid.run(20.0)
    pc.start()
    grid.run(5.0)
    assert list(grid.broker.sessions.workers.by_name) == ["pc"]
    assert running(pc)


def test_a_predecessor_that_was_up_is_lost_when_its_successor_starts_outside_its_window(grid: VirtualGrid) -> None:
    pc = grid.worker("pc")
    submitted(grid, [30.0])
    pc.crash()
    grid.run(1.0)
    (peer,) = grid.broker.sessions.workers.by_peer
    grid.broker.sessions.gone(peer)
    grid.broker.windows.tables["pc"] = windows("daily 23:00-24:00")
    grid.run(2.0)
    grid.worker("pc", None, key="second")
    grid.worker("other")
    grid.finish()
    assert executions(grid) == [2]
    assert grid.counters["losses"] == 1


def test_a_pc_that_sleeps_through_the_end_of_its_window_hands_back_when_it_wakes(grid: VirtualGrid) -> None:
    grid.broker.windows.tables["pc"] = windows("daily 10:00-10:01", "daily 10:05-10:20")
    pc = grid.worker("pc", None)
    grid.run(5.0)
    submitted(grid, [30.0])
    assert running(pc)
    pc.freeze(100.0, suspend=True)
    grid.run(103.0)
    assert not running(pc)
    grid.finish()
    assert 300.0 < grid.world.now < 340.0


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
def test_a_clock_that_jumps_a_day_loses_no_task(grid: VirtualGrid, jump_s: float) -> None:
    grid.broker.windows.tables["pc"] = windows("mon 10:00-11:00")
    pc = grid.worker("pc", None)
    grid.run(5.0)
    submitted(grid, [20.0])
    pc.set_clock(jump_s)
    grid.run(5.0)
    assert not running(pc)
    pc.set_clock(0.0)
    grid.finish()


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
def test_a_clock_that_jumps_does_not_concern_a_pc_without_a_calendar(grid: VirtualGrid, jump_s: float) -> None:
    pc = grid.worker("pc", cycle((100.0, 10.0)))
    submitted(grid, [20.0] * 3)
    pc.set_clock(jump_s)
    grid.finish()
    assert executions(grid) == [1] * 3
    assert grid.counters["kills"] == 0
    assert grid.world.now < 75.0


def test_a_worker_without_a_plan_gets_work_by_the_brokers_windows_from_the_first_task_on(grid: VirtualGrid) -> None:
    grid.broker.windows.tables["pc"] = windows("daily 10:00-10:01", "daily 10:05-10:20")
    grid.run(2.0)
    submitted(grid, [100.0, 20.0])
    grid.worker("pc", None)
    grid.run(40.0)
    assert set(grid.witness.recorded) == {("bag", 1)}, "in the first window, what fits it"
    grid.finish()
    assert executions(grid) == [1, 1]
    assert grid.counters["kills"] == 0


def test_every_worker_of_a_name_gets_that_names_windows(grid: VirtualGrid) -> None:
    grid.broker.windows.tables["pc"] = windows("daily 10:00-10:10")
    grid.run(2.0)
    nodes = [grid.worker("pc", None), grid.worker("pc", None, key="second")]
    grid.run(10.0)
    kinds = [node.session.plan.kind for node in nodes if node.session is not None]
    assert kinds == ["windows", "windows"]


def test_windows_changed_on_the_broker_hold_for_work_that_is_placed_a_second_later(grid: VirtualGrid) -> None:
    pc = grid.worker("pc", None)
    grid.run(10.0)
    grid.broker.windows.tables["pc"] = windows("daily 10:00-10:01", "daily 10:05-10:20")
    grid.run(2.0)
    submitted(grid, [100.0])
    grid.run(60.0)
    assert not running(pc)
    del grid.broker.windows.tables["pc"]
    grid.run(2.0)
    assert running(pc)
    grid.finish()
    assert grid.counters["kills"] == 0


def test_work_ahead_that_no_longer_fits_is_called_back_and_made_elsewhere(grid: VirtualGrid) -> None:
    pc = grid.worker("pc", for_seconds(30.0))
    client = submitted(grid, [0.12] * 40)
    client.ask("runtimes", {"bag": "bag", "items": list(range(40)), "runtimes": [60.0] * 40})
    grid.run_until(lambda: pc.idle, 2.0, "all called back but what ran")
    assert grid.witness.said[wire.Recall] == 1
    grid.worker("other")
    grid.finish()
    assert executions(grid) == [1] * 40


def test_results_that_waited_for_long_come_in_messages_of_bounded_size(
    grid: VirtualGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (wire, payload):
        monkeypatch.setattr(module, "BATCH_BYTES", 50)
    pc = grid.worker("pc", slots=12)
    submitted(grid, [5.0] * 12)
    grid.partition(pc, 12.0)
    grid.finish()
    assert sum(grid.witness.deliveries) == 12
    assert 1 < max(grid.witness.deliveries) <= 4


def test_a_task_that_kills_its_process_is_tried_again_and_then_given_up(grid: VirtualGrid) -> None:
    grid.worker("pc")
    client = grid.client()
    for name, times in (("weak", 2), ("poison", 9)):
        plan = bag([1.0] * 2, name)
        plan.batches = [[task._replace(fate="crash", times=times) for task in batch] for batch in plan.batches]
        client.submit(plan)
    grid.finish()
    assert grid.counters["crashes"] == 2 * 2 + 2 * 3
    assert grid.counters["done"] == 2


@pytest.mark.slow
def test_planned_departures_kill_nothing(grid: VirtualGrid) -> None:
    for number in range(4):
        grid.worker(f"pc{number}", cycle((20.0 + 7 * number, 5.0)))
    submitted(grid, [3.0, 9.0, 14.0, 30.0] * 10)
    grid.finish()
    assert grid.counters["departures"] > 10
    assert grid.counters["kills"] == 0
    assert executions(grid) == [1] * 40


def test_an_answer_that_is_too_old_does_not_count_though_nobody_has_the_task(tmp_path: Path) -> None:
    late_answer(1, tmp_path)
