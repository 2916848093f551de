"""Tasks that need an environment go only where it is ready, whatever the policy; all others go where they went."""

from typing import Any

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.placing.copying import AGAIN_S
from deskgrid.scheduler.policies import Policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.views.explain import Explanation, explain
from tests.scheduler.builders import Grid, fcfs, packing, pgs
from tests.scheduler.test_views import made

POLICIES = [pgs(), packing(), fcfs()]
NEEDS = CategoryKey(environment="numpy")


def ready(grid: Grid, worker: str, *environments: str) -> None:
    assert grid.tell(ev.EnvironmentsReady(worker, frozenset(environments))) == []


def why(grid: Grid, task: int) -> Explanation:
    found: Any = made(explain(grid.inside, task, grid.now))
    assert isinstance(found, Explanation)
    return found


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_task_waits_until_its_environment_is_ready_on_a_worker_with_room(policy: Policy) -> None:
    grid = Grid(policy)
    needy = grid.tasks(10, bag=1, key=NEEDS)
    grid.pc("a", 100)
    grid.pc("b", 50)
    grid.expect()
    ready(grid, "a", "scipy")
    ready(grid, "b", "numpy")
    grid.expect(b=needy)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_tasks_without_an_environment_take_the_slots_that_others_cannot_have(policy: Policy) -> None:
    grid = Grid(policy)
    needy = grid.tasks(20, 20, bag=1, key=NEEDS)
    plain = grid.tasks(10, bag=2)
    grid.pc("a", 100)
    ready(grid, "a", "numpy")
    grid.pc("b", 100)
    grid.expect(a=needy[:1], b=plain)
    grid.end(*plain)
    grid.expect()


def test_a_worker_that_joins_again_has_to_say_again_what_is_ready() -> None:
    grid = Grid()
    grid.pc("a", 100)
    ready(grid, "a", "numpy")
    grid.leave("a")
    ready(grid, "a", "numpy")  # it is away: it has nothing
    grid.pc("a", 100)
    needy = grid.tasks(10, bag=1, key=NEEDS)
    grid.expect()
    ready(grid, "a", "numpy")
    ready(grid, "a", "numpy")
    grid.expect(a=needy)


def test_a_piece_of_a_checkpointable_task_needs_its_environment_too() -> None:
    grid = Grid(packing())
    needy = grid.tasks(500, bag=1, key=NEEDS, min_piece=60)
    grid.pc("a", 100)
    grid.expect()
    ready(grid, "a", "numpy")
    grid.expect(a=needy)


def test_the_longest_waiting_task_decides_which_environment_has_its_turn() -> None:
    grid = Grid(packing())
    ann = CategoryKey("ann", environment="numpy")
    long, short = grid.tasks(50, bag=1, key=ann), grid.tasks(10, bag=2, key=CategoryKey("ann"))
    grid.pc("a", 100)
    ready(grid, "a", "numpy")
    grid.expect(a=long)
    grid.end(*long)
    grid.expect(a=short)


def test_a_task_that_fits_only_rare_windows_has_its_claim_only_where_its_environment_is_ready() -> None:
    grid = Grid(packing())
    assert grid.tell(ev.UsageRestored({"ann": 100_000.0})) == []
    long = grid.tasks(500, bag=1, key=CategoryKey("ann", environment="numpy"))
    short = grid.tasks(10, bag=2, key=CategoryKey("bob"))
    for number in range(10):
        grid.pc(f"pc{number}", 50)
    grid.pc("long", 1000)
    handed = grid.tell_pass()
    assert list(handed.values()) == [short]
    ready(grid, "long", "numpy")
    grid.expect(long=long)


def test_a_parallel_task_starts_where_its_environment_is_ready_on_all_its_pcs() -> None:
    grid = Grid()
    grid.pc("early", 100, site="lab")
    ready(grid, "early", "numpy")
    grid.tasks(10, need=Need(2, 2), key=NEEDS)
    for name in ("a", "b"):
        grid.pc(name, 100, site="lab")
    ready(grid, "a", "scipy")
    assert grid.tell(ev.PassDue()) == []
    (queue,) = grid.inside.gangs.queues.values()
    assert queue.waits
    ready(grid, "b", "scipy", "numpy")
    (start,) = grid.tell(ev.PassDue())
    assert isinstance(start, cmd.StartGang)
    assert {place.worker for place in start.ranks} == {"early", "b"}
    assert not queue.waits


def test_a_copy_starts_only_where_the_environment_is_ready() -> None:
    grid = Grid(packing())
    needy = grid.tasks(10, bag=1, key=NEEDS, copies=True)
    grid.pc("a")
    ready(grid, "a", "numpy")
    grid.expect(a=needy)
    grid.pc("b")
    grid.wait(100)
    grid.say_alive()
    grid.expect()
    ready(grid, "b", "numpy")
    grid.wait(AGAIN_S)
    grid.say_alive()
    grid.expect(b=needy)


def test_explain_says_where_the_environment_is_not_ready() -> None:
    grid = Grid()
    (needy,) = grid.tasks(10, bag=1, key=NEEDS)
    grid.pc("a", 100)
    grid.pc("b", 5)
    ready(grid, "b", "numpy")
    grid.expect()
    assert [(slot.worker, slot.ready) for slot in why(grid, needy).slots] == [("b", True), ("a", False)]
    (plain,) = grid.tasks(200, bag=2)
    assert {slot.ready for slot in why(grid, plain).slots} == {True}
