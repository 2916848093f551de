"""PGS as the paper has it (Sections 2.2 and 2.3): examples worked out by hand. Uptimes and runtimes are seconds."""

import math

import pytest

from deskgrid.scheduler.events import PassDue
from deskgrid.scheduler.model import OPEN_ENDED, State
from tests.scheduler.builders import Grid, pgs

# --- phase 1: the first task that fits, for each slot with an empty queue -------------------------------------------


def test_each_slot_gets_the_first_task_that_fits_it() -> None:
    grid = Grid(pgs())
    eight, three, five = grid.tasks(8, 3, 5)
    grid.pc("short", 4)
    grid.pc("long", 10)
    grid.expect(short=[three], long=[eight])
    assert grid.priority() == [five]


def test_no_slot_idles_while_another_is_given_a_second_task() -> None:
    grid = Grid(pgs())
    first, second = grid.tasks(2, 2)
    grid.pc("a", 5)
    grid.pc("b", 6)
    # By phase 2 alone both would go to a: after the first it has 3 s left, still the least that is enough.
    grid.expect(a=[first], b=[second])


def test_an_idle_slot_is_served_before_a_busy_one_with_nothing_queued() -> None:
    grid = Grid(pgs())
    (first,) = grid.tasks(2)
    grid.pc("a", 5)
    grid.expect(a=[first])
    (second,) = grid.tasks(2)
    grid.pc("b", 50)
    grid.expect(b=[second])


def test_a_busy_slot_with_nothing_queued_is_given_a_task_to_queue() -> None:
    grid = Grid(pgs())
    first, second, third = grid.tasks(5, 4, 3)
    grid.pc("a", 20)
    grid.expect(a=[first])
    assert grid.queues() == {"a": [second]}
    assert grid.regular() == [third]


def test_phase_one_takes_the_first_task_in_order_and_not_the_best_one() -> None:
    grid = Grid(pgs(queue_length=0))
    one, _, _ = grid.tasks(1, 19, 18)
    grid.pc("a", 20)
    grid.expect(a=[one])


# --- phase 2: the smallest remaining time strictly greater than the runtime ----------------------------------------


def test_a_task_goes_to_the_slot_with_the_least_time_left_that_is_enough() -> None:
    grid = Grid(pgs(queue_length=2))
    for name, uptime in (("a", 100), ("b", 50), ("c", 25)):
        grid.pc(name, uptime)
    running, queued = grid.tasks(10, 10, 10), grid.tasks(1, 1, 1)
    grid.expect(c=running[:1], b=running[1:2], a=running[2:])
    assert grid.queues() == {"c": queued[:1], "b": queued[1:2], "a": queued[2:]}
    # Left: a 89, b 39, c 14.
    twenty, fourteen, thirteen = grid.tasks(20, 14, 13)
    grid.expect()
    assert grid.queues() == {
        "c": [queued[0], thirteen],
        "b": [queued[1], twenty],
        "a": [queued[2], fourteen],
    }


def test_a_task_as_long_as_the_window_does_not_fit() -> None:
    grid = Grid(pgs())
    (task,) = grid.tasks(10)
    grid.pc("same", 10)
    grid.expect()
    assert grid.priority() == [task]
    grid.pc("longer", 10.001)
    grid.expect(longer=[task])


def test_a_task_as_long_as_what_the_queue_leaves_does_not_fit() -> None:
    grid = Grid(pgs())
    grid.pc("a", 10)
    running, same, shorter = grid.tasks(4, 6, 5.999)
    grid.expect(a=[running])
    assert grid.queues() == {"a": [shorter]}
    assert grid.regular() == [same]


def test_the_margin_is_kept_free() -> None:
    grid = Grid(pgs(margin=2))
    grid.pc("a", 10)
    (eight,) = grid.tasks(8)
    grid.expect()
    (less,) = grid.tasks(7.999)
    grid.expect(a=[less])
    assert grid.priority() == [eight]


def test_a_slot_without_end_takes_any_task() -> None:
    grid = Grid(pgs())
    (task,) = grid.tasks(1e9)
    grid.pc("a", 2e9)
    grid.pc("b", OPEN_ENDED)
    grid.expect(a=[task])
    (longer,) = grid.tasks(3e9)
    grid.expect(b=[longer])


def test_slots_without_end_share_the_work() -> None:
    grid = Grid(pgs(queue_length=2))
    for name in "ab":
        grid.pc(name)
    tasks = grid.tasks(9, 5, 9, 9, 9, 9)
    grid.expect(a=tasks[:1], b=tasks[1:2])
    # b is free after 5 s, a after 9: the third is queued on b, then a has less to do, and so on.
    assert grid.queues() == {"b": [tasks[2], tasks[4]], "a": [tasks[3], tasks[5]]}


# --- the priority queue --------------------------------------------------------------------------------------------


def test_what_is_too_long_for_every_slot_joins_the_priority_queue() -> None:
    grid = Grid(pgs())
    grid.pc("a", 10)
    thirty, five, forty = grid.tasks(30, 5, 40)
    grid.expect(a=[five])
    assert (grid.priority(), grid.regular()) == ([forty, thirty], [])


def test_too_long_tasks_get_the_first_chance_on_a_longer_window() -> None:
    grid = Grid(pgs(queue_length=0))
    grid.pc("a", 10)
    (thirty,) = grid.tasks(30)
    grid.expect()
    assert grid.priority() == [thirty]
    (five,) = grid.tasks(5)
    (six,) = grid.tasks(6)
    grid.pc("b", 50)
    grid.expect(a=[five], b=[thirty])
    assert grid.regular() == [six]


def test_only_what_the_walk_passes_joins_the_priority_queue() -> None:
    grid = Grid(pgs(queue_length=2))
    grid.pc("a", 20)
    one, thirty, two, three, forty = grid.tasks(1, 30, 2, 3, 40)
    grid.expect(a=[one])
    # Phase 1 runs the first and queues the third; the walk then meets 30, which fits nowhere, and queues the fourth.
    assert grid.queues() == {"a": [two, three]}
    assert (grid.priority(), grid.regular()) == ([thirty], [forty])


def test_nothing_joins_the_priority_queue_while_no_slot_has_room() -> None:
    grid = Grid(pgs(queue_length=0))
    grid.pc("a", 10)
    running, thirty = grid.tasks(5, 30)
    grid.expect(a=[running])
    assert (grid.priority(), grid.regular()) == ([], [thirty])


def test_the_priority_queue_is_walked_before_the_regular_one() -> None:
    grid = Grid(pgs(queue_length=2))
    grid.pc("gone", 1000)
    (lost,) = grid.tasks(500)
    grid.expect(gone=[lost])
    grid.leave("gone")
    running, queued = grid.tasks(3, 2)
    grid.pc("a", 400)
    grid.expect(a=[running])
    assert grid.queues() == {"a": [queued]}
    (regular,) = grid.tasks(1)
    grid.refresh("a", 600)
    grid.expect()
    assert grid.queues() == {"a": [queued, lost]}
    assert grid.regular() == [regular]


@pytest.mark.parametrize("planned", [True, False])
def test_running_and_queued_work_of_a_slot_that_goes_joins_the_priority_queue(planned: bool) -> None:
    grid = Grid(pgs(order="fifo"))
    grid.pc("a", 20)
    running, queued = grid.tasks(9, 8)
    grid.expect(a=[running])
    grid.leave("a", planned)
    assert grid.priority() == [running, queued]
    (regular,) = grid.tasks(1)
    grid.pc("b", 30)
    grid.expect(b=[running])
    assert grid.queues() == {"b": [queued]}
    assert grid.regular() == [regular]


@pytest.mark.parametrize(
    ("order", "expected"), [("fifo", [0, 1, 2, 3]), ("newest-first", [3, 2, 1, 0]), ("longest-first", [1, 3, 0, 2])]
)
def test_the_order_of_the_priority_queue_is_a_parameter(order: str, expected: list[int]) -> None:
    grid = Grid(pgs(order=order, queue_length=0))
    grid.pc("short", 1)
    grid.tasks(20, 40, 10, 40)
    grid.expect()
    assert grid.priority() == expected
    grid.pc("long", 1000)
    for task in expected:
        grid.expect(long=[task])
        assert grid.end(task) == [task]


def test_equally_long_tasks_of_the_priority_queue_keep_their_order_when_runtimes_are_updated() -> None:
    grid = Grid(pgs(order="longest-first"))
    grid.pc("short", 1)
    tasks = grid.tasks(5, 5, 5, 7)
    grid.expect()
    for runtime in (8, 9):
        grid.predict({tasks[3]: runtime})
        assert grid.priority() == [tasks[3], *tasks[:3]]


# --- queue length --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue_length", [0, 1, 2, 5])
def test_a_queue_holds_as_many_tasks_as_it_may(queue_length: int) -> None:
    grid = Grid(pgs(queue_length))
    grid.pc("a", 1000)
    tasks = grid.tasks(*[10] * 9)
    grid.expect(a=tasks[:1])
    assert grid.queues().get("a", []) == tasks[1 : 1 + queue_length]
    assert grid.regular() == tasks[1 + queue_length :]


def test_a_queue_may_hold_more_short_tasks_up_to_some_seconds_of_work() -> None:
    grid = Grid(pgs(queue_length=1, queue_s=10))
    grid.pc("a", 1000)
    tasks = grid.tasks(*[3] * 9)
    grid.expect(a=tasks[:1])
    # 3 s run; with 9 s in all there still is room, with 12 s there is none.
    assert grid.queues() == {"a": tasks[1:4]}


# --- bounds that rounding must not break ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("margin", "now", "runtime", "uptime"),
    [(0.8, 0.2, 2.0, 2.8000000000000003), (1.1, 2.7, 6.6, 7.7), (1.1, 0.2, 4.6, 5.7), (1.6, 4.7, 4.4, 6.0)],
)
def test_a_task_that_fits_by_rounding_only_does_not_hold_up_the_pass(
    margin: float, now: float, runtime: float, uptime: float
) -> None:
    grid = Grid(pgs(margin=margin))
    grid.wait(now)
    (task,) = grid.tasks(runtime)
    grid.pc("a", uptime)
    grid.expect()
    assert grid.priority() == [task]


@pytest.mark.parametrize("scale", [1e10, 1e11, 1e15, 1e300])
def test_absurd_runtimes_do_not_hold_up_the_pass(scale: float) -> None:
    grid = Grid(pgs(margin=0.3))
    grid.tasks(scale, math.nextafter(scale, math.inf), 2 * scale)
    for number in range(5):
        grid.pc(f"pc{number}", scale + number * math.ulp(scale))
    (short,) = grid.tasks(1)
    grid.scheduler.handle(PassDue(), grid.now)
    assert grid.state(short) in (State.SENT, State.QUEUED)
