"""Views of a grid: the snapshot, and why a task waits."""

import json
from collections.abc import Generator, Iterator
from dataclasses import asdict
from typing import TypeVar

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.model import AttemptOutcome, PlannedWindow, State
from deskgrid.scheduler.need import SINGLE, Need, of_memory
from deskgrid.scheduler.views import explain as explanations
from deskgrid.scheduler.views import snapshot
from deskgrid.scheduler.views.explain import (
    ROWS,
    ComingWindow,
    Explanation,
    SlotReason,
    WaitingCounts,
    explain,
    waiting_of,
)
from deskgrid.scheduler.views.snapshot import (
    BagView,
    Occupancy,
    QueuesView,
    SlotView,
    WorkerView,
    queues_view,
    worker_view,
)
from tests.scheduler.builders import Grid, at_work, pgs
from tests.scheduler.test_illegal import picture

MOST = 10
Made = TypeVar("Made")


def made(pieces: Generator[int, None, Made]) -> Made:
    """What is made in pieces, to its end."""
    found: list[Made] = []

    def whole() -> Iterator[int]:
        found.append((yield from pieces))

    assert all(rows >= 0 for rows in whole())
    return found[0]


def explained(scheduler: Scheduler, task: int, now: float) -> Explanation:
    """An explanation, made to its end."""
    return made(explain(scheduler.grid, task, now))


def occupancy(scheduler: Scheduler, now: float) -> Occupancy:
    """The occupancy, counted to its end."""
    whole = Occupancy(scheduler.grid)
    list(whole.pieces())
    return whole


def workers(grid: Grid) -> list[WorkerView]:
    return [worker_view(grid.inside, name, grid.now, MOST, MOST) for name in grid.inside.slots.workers]


def bags(scheduler: Scheduler, now: float) -> list[BagView]:
    whole = occupancy(scheduler, now)
    return [whole.view(number) for number in scheduler.grid.tasks.bags]


def away(grid: Grid) -> dict[str, object]:
    return {name: worker_view(grid.inside, name, grid.now, MOST, MOST).windows for name in grid.inside.away}


# --- the snapshot --------------------------------------------------------------------------------------------------


def test_a_snapshot_shows_every_worker_and_slot() -> None:
    grid = at_work()
    busy = SlotView(slot=0, running=(0, 30, 10), ahead=0, ahead_s=0, queued=1, queued_s=20, left_s=50)
    idle = SlotView(slot=0, running=None, ahead=0, ahead_s=0, queued=0, queued_s=0, left_s=None)
    assert workers(grid) == [
        WorkerView("a", 90, ((290, 60),), 1, 1, (busy,), "lab", processors=1),
        WorkerView("b", None, (), 1, 0, (idle,), processors=1),
    ]
    assert away(grid) == {"c": ((40, 200), (990, 20))}
    assert worker_view(grid.inside, "c", grid.now, 1, 1) == WorkerView("c", 0.0, ((40, 200),), 0, 0, ())
    assert worker_view(grid.inside, "nobody", grid.now, 1, 1) == WorkerView("nobody", 0.0, (), 0, 0, ())
    whole = occupancy(grid.scheduler, grid.now)
    assert (whole.busy, whole.slots) == (1, 2)


def test_a_view_of_a_worker_with_many_slots_and_windows_shows_the_first_of_them() -> None:
    grid = Grid()
    grid.pc("a", 10, slots=7, windows=[(20 * number, 10) for number in range(1, 6)])
    view = worker_view(grid.inside, "a", grid.now, 3, 2)
    assert [slot.slot for slot in view.slots] == [0, 1, 2]
    assert (view.slot_count, view.busy, view.windows) == (7, 0, ((20, 10), (40, 10)))


def test_a_snapshot_counts_what_was_sent_ahead() -> None:
    grid = Grid()
    grid.pc("a", 10)
    tasks = grid.tasks(0.2, 0.1, 0.1)
    grid.expect(a=tasks)
    ((slot,),) = (worker.slots for worker in workers(grid))
    assert slot.ahead == 2
    assert slot.ahead_s == pytest.approx(0.2)


def test_a_snapshot_counts_bags_and_queues() -> None:
    grid = Grid(pgs(queue_length=0))
    grid.pc("a", 10)
    (done,) = grid.tasks(9, bag=1)
    grid.expect(a=[done])
    grid.end(done)
    failed, running, cancelled, _ = grid.tasks(3, 4, 6, 7, bag=2)
    grid.cancel(cancelled)
    grid.expect(a=[failed])
    grid.end(failed, outcome=AttemptOutcome.ERROR)
    grid.expect(a=[running])
    grid.tasks(80, bag=3)
    assert queues_view(grid.inside) == QueuesView(2, 0, 80)
    assert bags(grid.scheduler, grid.now) == [
        BagView(1, 1, 1, 0, 0, 0, 0, 9, 9),
        BagView(2, 4, 0, 1, 1, 1, 11, 7, 7),
        BagView(3, 1, 0, 0, 0, 0, 80, 80, 80),
    ]


def test_a_snapshot_is_taken_without_a_trace_and_is_plain_data() -> None:
    grid = at_work()
    before = picture(grid.scheduler)
    views: list[WorkerView | BagView] = [*workers(grid), *bags(grid.scheduler, grid.now)]
    explained(grid.scheduler, 0, grid.now)
    assert picture(grid.scheduler) == before
    assert json.loads(json.dumps([asdict(view) for view in views], allow_nan=False))[0]["name"] == "a"


def test_a_snapshot_of_an_empty_grid_is_empty() -> None:
    assert (bags(Scheduler(pgs()), 0.0), queues_view(Scheduler(pgs()).grid)) == ([], QueuesView(0, 0, 0.0))


def test_slots_are_counted_in_pieces_while_the_grid_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "PIECE", 4)
    monkeypatch.setattr(explanations, "PIECE", 4)
    grid = Grid()
    for number in range(20):
        grid.pc(f"pc{number}", slots=2)
        grid.pc(f"away{number}", 10)
        grid.tell(ev.WorkerLeft(f"away{number}", planned=True, windows=[(5, 10)]))
    for bag in range(30):
        grid.tasks(10, bag=bag)
    whole, pieces = Occupancy(grid.inside), 0
    for rows in whole.pieces():
        assert rows <= 40
        pieces += 1
        grid.pc(f"new{pieces}")
    assert pieces > 10
    assert 40 <= whole.slots <= 40 + pieces
    late = grid.tasks(10, bag=99)
    assert (whole.view(99).total, whole.view(99).running) == (1, 0)
    assert len(list(explain(grid.inside, late[0], grid.now))) > 10


def test_windows_that_have_begun_or_ended_meanwhile_are_no_longer_announced() -> None:
    grid = at_work()
    grid.wait(400)
    assert workers(grid)[0].windows == ()
    assert away(grid) == {"c": ((590, 20),)}


# --- why it waits --------------------------------------------------------------------------------------------------


def test_a_task_waits_because_every_slot_is_so_many_seconds_short() -> None:
    grid = at_work()
    grid.leave("b")
    (long,) = grid.tasks(120)
    explanation = explained(grid.scheduler, long, grid.now)
    (short,) = explanation.slots
    assert (short.worker, short.slot, short.left_s) == ("a", 0, 50)
    assert short.short_s == pytest.approx(70)
    assert explanation == Explanation(
        state=State.WAITING,
        runtime_s=120,
        margin_s=0,
        errors=0,
        again_s=0.0,
        on="",
        slots=(short,),
        coming=(
            ComingWindow("c", starts_in_s=40, lasts_s=200, fits=True),
            ComingWindow("a", starts_in_s=290, lasts_s=60, fits=False),
        ),
        longest_window_s=200,
        needs_s=120,
        checkpointable=False,
        left_s=None,
        fraction=None,
        idle_pieces=0,
    )


def test_a_task_is_shown_with_the_worker_that_has_it() -> None:
    grid = at_work()
    running, queued = (explained(grid.scheduler, task, grid.now) for task in (0, 1))
    assert (running.state, running.on) == (State.SENT, "a")
    assert (queued.state, queued.on) == (State.QUEUED, "a")
    assert queued.longest_window_s == float("inf")


def test_the_margin_is_part_of_what_a_task_is_short_of() -> None:
    grid = Grid(pgs(margin=3))
    grid.pc("a", 10, windows=[(20, 12)])
    (task,) = grid.tasks(9)
    explanation = explained(grid.scheduler, task, grid.now)
    assert explanation.slots[0].left_s == 10
    assert explanation.slots[0].short_s == pytest.approx(2)
    assert [window.fits for window in explanation.coming] == [False]


def test_an_explanation_says_how_long_a_task_takes_on_a_slow_pc() -> None:
    grid = Grid()
    grid.pc("a", 10, windows=[(20, 12)], speed=0.5)
    (task,) = grid.tasks(8)
    explanation = explained(grid.scheduler, task, grid.now)
    assert explanation.slots[0].short_s == pytest.approx(6)
    assert [window.fits for window in explanation.coming] == [False]


def test_an_explanation_shows_what_is_nearest_and_no_more_than_fits_on_a_screen() -> None:
    grid = Grid()
    for number in range(30):
        grid.pc(f"pc{number}", 10 + number, windows=[(100 - number, 10 + number)])
    (task,) = grid.tasks(25)
    explanation = explained(grid.scheduler, task, grid.now)
    assert len(explanation.slots) == len(explanation.coming) == ROWS
    assert explanation.slots[0] == SlotReason("pc16", 0, left_s=26, short_s=0, silent_s=None)
    assert explanation.coming[0] == ComingWindow("pc29", starts_in_s=71, lasts_s=39, fits=True)


def test_a_task_as_long_as_the_window_is_not_said_to_wait_for_a_full_queue() -> None:
    grid = Grid()
    grid.pc("a", 10)
    same, shorter = grid.tasks(10, 9.99)
    assert 0 < explained(grid.scheduler, same, grid.now).slots[0].short_s < 0.001
    assert explained(grid.scheduler, shorter, grid.now).slots[0].short_s == 0


def test_only_windows_of_pcs_that_have_what_tasks_need_count() -> None:
    grid, gpu, much = Grid(), Need(labels=frozenset({"gpu"})), Need(amounts=of_memory(8))
    grid.pc("plain", 100, amounts=of_memory(4.0))
    grid.pc("gpu", 80, labels=frozenset({"gpu"}), amounts=of_memory(4.0))
    grid.pc("much", 20, windows=[(30, 60)], amounts=of_memory(16.0))
    longest = grid.scheduler.longest_window
    assert [longest(grid.now, need) for need in (SINGLE, gpu, much)] == [100, 80, 60]
    assert grid.scheduler.has_longer_window(99, grid.now)
    assert not grid.scheduler.has_longer_window(80, grid.now, gpu)
    assert longest(grid.now, SINGLE, {"plain"}) == 80
    assert longest(grid.now, Need(labels=frozenset({"fpga"}))) == 0
    assert grid.scheduler.best_window(grid.now, much) == (60, 1.0)
    grid.refresh("never seen", 0, windows=[PlannedWindow(200, 70)])
    assert longest(grid.now, much) == 70, "it may have what they need"


def test_a_window_of_a_pc_that_lacks_something_fits_nothing() -> None:
    grid = Grid()
    grid.pc("plain", 5, windows=[(20, 100)], amounts=of_memory(4.0))
    (task,) = grid.tasks(50, need=Need(labels=frozenset({"gpu"}), amounts=of_memory(8)))
    (window,) = explained(grid.scheduler, task, grid.now).coming
    assert (window.fits, window.lacks, window.short) == (False, ("gpu",), (("memory", 4.0),))
    assert explained(grid.scheduler, task, grid.now).longest_window_s == 0


def test_the_longest_window_is_open_announced_or_of_a_worker_that_is_away() -> None:
    assert Grid().scheduler.longest_window(0) == 0
    grid = at_work()
    assert grid.scheduler.longest_window(grid.now) == float("inf")
    grid.leave("b")
    assert grid.scheduler.longest_window(grid.now) == 200
    assert grid.scheduler.has_longer_window(199, grid.now)
    assert not grid.scheduler.has_longer_window(200, grid.now)
    grid.tell(ev.WorkerForgotten("c"))
    assert grid.scheduler.longest_window(grid.now) == 90
    grid.leave("a")
    grid.pc("d", 20, windows=[(30, 70)])
    assert grid.scheduler.longest_window(grid.now) == 70


def test_of_a_bag_the_tasks_that_wait_are_counted_and_the_first_of_the_longest_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = Grid(pgs(queue_length=0))
    grid.tasks(3, 20, 7, bag=1)
    grid.tasks(5, 20, bag=1)
    grid.tasks(90, bag=2)
    grid.pc("a", 6)
    grid.expect(a=[0])
    assert made(waiting_of(grid.inside, 1)) == WaitingCounts(4, 0, 0, 1)
    assert len(list(waiting_of(grid.inside, 1))) == 1
    monkeypatch.setattr(explanations, "TASKS_PIECE", 1)
    assert len(list(waiting_of(grid.inside, 1))) == 3
    assert made(waiting_of(grid.inside, 1)) == WaitingCounts(4, 0, 0, 1)
    grid.cancel(1, 2, 3, 4)
    assert made(waiting_of(grid.inside, 1)) == WaitingCounts(0, 0, 0, None)


def test_the_longest_window_counts_as_a_pc_of_speed_1_would_need_it() -> None:
    grid = Grid()
    grid.pc("slow", 60, windows=[(100, 60)], speed=0.5)
    (task,) = grid.tasks(40)
    explanation = explained(grid.scheduler, task, grid.now)
    assert (explanation.longest_window_s, explanation.uneven) == (30, True)
    assert not grid.scheduler.has_longer_window(40, grid.now)
    grid.leave("slow")
    assert grid.scheduler.longest_window(grid.now) == 0
    grid.pc("fast", 25, speed=2.0)
    assert grid.scheduler.longest_window(grid.now) == 50


def test_gangs_that_wait_are_counted() -> None:
    grid = Grid()
    grid.tasks(*[5.0] * 1500, bag=1, need=Need(2, 2, gang=True))
    grid.tasks(5.0, bag=2)
    assert queues_view(grid.inside).regular == 1501
    grid.pc("a", 100, slots=2)
    assert any(isinstance(command, cmd.StartGang) for command in grid.tell(ev.PassDue()))
    assert queues_view(grid.inside).regular == 1500
