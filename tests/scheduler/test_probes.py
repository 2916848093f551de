"""Probes: the tasks with which a bag begins. Uptimes and runtimes are seconds."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.placing.first import BAGS
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.queues.categories import CategoryKey
from tests.scheduler.builders import Grid, pgs

POLICIES = ["fcfs", "longest", "packing", "pgs"]


@pytest.mark.parametrize("policy", POLICIES)
def test_probes_are_started_first_in_their_order_whatever_the_policy(policy: str) -> None:
    grid = Grid(make_policy(policy))
    tasks = grid.tasks(*[60.0 - number for number in range(8)], probes=[5, 2])
    grid.pc("a", 1_000)
    grid.expect(a=[tasks[5]])
    grid.pc("b", 1_000)
    grid.expect(b=[tasks[2]])
    grid.pc("c", 1_000)
    (begun,) = grid.tell_pass()["c"]
    assert begun not in (tasks[5], tasks[2])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_task_of_a_bag_with_probes_is_done_once(policy: str) -> None:
    grid = Grid(make_policy(policy))
    tasks = grid.tasks(*[2.0] * 20, probes=[19, 0, 7])
    grid.pc("a", 10_000, slots=2)
    begun = list[int]()
    while len(begun) < len(tasks):
        now = [task for its in grid.tell_pass().values() for task in its]
        assert now, "no task is started"
        begun += now
        for task in now:
            grid.end(task)
        grid.wait(2.0)
        grid.say_alive()
    assert sorted(begun) == tasks
    assert set(begun[:3]) >= {19, 0}


def test_a_probe_that_fits_nowhere_comes_first_when_it_fits() -> None:
    grid = Grid(pgs(queue_length=0))
    long, short, _ = grid.tasks(50, 5, 5, probes=[0])
    grid.pc("a", 20)
    grid.expect(a=[short])
    grid.pc("b", 100)
    grid.expect(b=[long])


def test_the_probes_of_a_paused_bag_come_first_when_it_goes_on() -> None:
    grid = Grid(pgs(queue_length=0))
    tasks = grid.tasks(*[5.0] * 4, probes=[3], barred=True)
    (other,) = grid.tasks(5.0, bag=1)
    grid.pc("a", 100)
    grid.expect(a=[other])
    grid.tell(ev.BagGated(0, False))
    grid.tell(ev.TasksRouted([(tasks[0], 4)]))
    grid.pc("b", 100)
    grid.expect(b=[tasks[3]])


def test_a_cancelled_probe_is_passed_over() -> None:
    grid = Grid(pgs(queue_length=0))
    tasks = grid.tasks(*[5.0] * 4, probes=[3, 2])
    grid.cancel(tasks[3])
    grid.pc("a", 100)
    grid.expect(a=[tasks[2]])


def test_a_probe_that_waits_again_has_had_its_turn() -> None:
    grid = Grid(pgs(queue_length=0))
    tasks = grid.tasks(*[5.0] * 4, probes=[3])
    grid.pc("a", 100)
    grid.expect(a=[tasks[3]])
    grid.leave("a")
    grid.pc("b", 100)
    grid.expect(b=[tasks[3]])  # it was lost, and lost tasks come first with PGS
    assert not grid.inside.tasks.bags[0].category.probing


def test_a_limit_holds_for_probes() -> None:
    grid = Grid(pgs(queue_length=0))
    tasks = grid.tasks(*[5.0] * 6, probes=[5, 4, 3], key=CategoryKey(limit=2, bag=0))
    grid.pc("a", 100, slots=4)
    grid.expect(a=[tasks[5]], a_1=[tasks[4]])


def test_probes_of_somebody_who_is_ahead_wait_for_the_others() -> None:
    grid = Grid(pgs(queue_length=0))
    grid.tell(ev.UsageRestored({"ahead": 1e6}))
    grid.tasks(*[5.0] * 4, probes=[3], key=CategoryKey("ahead"))
    (other,) = grid.tasks(5.0, bag=1, key=CategoryKey("behind"))
    grid.pc("a", 100)
    grid.expect(a=[other])


def test_a_pass_looks_at_the_probes_of_a_few_bags_and_the_next_one_at_those_of_others() -> None:
    grid = Grid(pgs(queue_length=0))
    for bag in range(BAGS):
        grid.tasks(*[500.0] * 2, bag=bag, probes=[2 * bag])
    *_, fits = grid.tasks(5.0, 5.0, bag=BAGS, probes=[2 * BAGS + 1])
    grid.pc("short", 1)
    grid.expect()
    grid.pc("a", 20)
    grid.expect(a=[fits])


def test_a_probe_that_the_policy_has_placed_is_not_placed_again_in_the_same_pass() -> None:
    grid = Grid(pgs(queue_length=0))
    for bag in range(BAGS):
        grid.tasks(500.0, bag=bag, probes=[bag], key=CategoryKey("ann"))
    (fits,) = grid.tasks(5.0, bag=BAGS, probes=[BAGS], key=CategoryKey("ann"))
    (other,) = grid.tasks(6.0, bag=BAGS + 1, key=CategoryKey("ben"))
    grid.pc("a", 20, slots=3)
    begun = grid.tell_pass()
    assert sorted(task for its in begun.values() for task in its) == [fits, other]


def test_checkpointable_tasks_have_no_probes() -> None:
    grid = Grid(pgs())
    grid.tasks(5.0, 5.0, probes=[1], min_piece=1.0)
    assert not grid.inside.tasks.bags[0].category.probing


def test_a_forgotten_bag_leaves_no_probes() -> None:
    grid = Grid(pgs())
    tasks = grid.tasks(5.0, 5.0, probes=[1])
    grid.tasks(5.0, bag=1)
    grid.cancel(*tasks)
    category = grid.inside.tasks.bags[0].category
    grid.tell(ev.BagForgotten(0))
    assert not category.probing
