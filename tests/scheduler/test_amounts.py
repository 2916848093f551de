"""Amounts of what is counted of PCs."""

from math import inf

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.need import NOTHING, UNBOUNDED, Need, amounts, of_memory
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.builders import Grid
from tests.scheduler.test_views import explained

PC = amounts({"gpu": 2, "scratch": 100}) + UNBOUNDED


def test_amounts_add_up_and_what_is_nothing_has_no_name() -> None:
    assert amounts({"b": 1, "a": 2, "c": 0}).by_name == (("a", 2), ("b", 1))
    assert amounts({"a": 2}) + amounts({"a": 1, "b": 1}) == amounts({"a": 3, "b": 1})
    assert amounts({"a": 2}) - amounts({"a": 2}) == NOTHING
    assert amounts({"a": 2}) * 3 == amounts({"a": 6})
    assert amounts({"a": 2}) * 0 == NOTHING
    assert (amounts({"a": 2}) + NOTHING, NOTHING + amounts({"a": 2})) == (amounts({"a": 2}),) * 2
    assert amounts({"a": 2}) - NOTHING == amounts({"a": 2})
    assert not NOTHING
    assert PC - of_memory(5) == PC
    assert (amounts({"a": 2})["a"], NOTHING["a"]) == (2, 0)


def test_what_is_too_little_is_known() -> None:
    assert amounts({"gpu": 2}).within(PC)
    assert NOTHING.within(NOTHING)
    assert not amounts({"gpu": 3}).within(PC)
    assert amounts({"gpu": 3, "tpu": 1, "scratch": 1}).lacking(PC) == (("gpu", 2), ("tpu", 0))


@pytest.mark.parametrize(
    ("need", "times"),
    [({"gpu": 1}, 2), ({"gpu": 1, "scratch": 60}, 1), ({"memory": 10}, 9), ({"tpu": 1}, 0), ({}, 9)],
)
def test_it_is_known_how_many_times_a_need_fits(need: dict[str, float], times: int) -> None:
    assert amounts(need).times(PC, 9) == times


# --- placing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["packing", "pgs", "fcfs", "longest"])
def test_no_more_tasks_run_at_once_than_a_pc_has_cards(policy: str) -> None:
    grid = Grid(make_policy(policy))
    grid.pc("a", slots=4, amounts=amounts({"gpu": 2, "scratch": 10, "memory": inf}))
    grid.tasks(10, 10, 10, bag=1, need=Need(amounts=amounts({"gpu": 1, "scratch": 1})))
    assert sum(map(len, grid.tell_pass().values())) == 2
    grid.tasks(10, 10, bag=2)
    assert sum(map(len, grid.tell_pass().values())) == 2


def test_parts_of_a_card_add_up() -> None:
    grid = Grid(make_policy("packing"))
    grid.pc("a", slots=4, amounts=amounts({"gpu": 1000}))
    grid.tasks(10, 10, 10, bag=1, need=Need(amounts=amounts({"gpu": 500})))
    assert sum(map(len, grid.tell_pass().values())) == 2


def test_what_a_pc_has_too_little_of_is_explained() -> None:
    scheduler = Scheduler(make_policy("packing"))
    scheduler.handle(ev.WorkerJoined("a", 1, 100.0, amounts=amounts({"gpu": 1})), 0.0)
    need = Need(amounts=amounts({"gpu": 2, "tpu": 1}))
    scheduler.handle(ev.TasksSubmitted(bag=1, first=1, count=1, runtimes=(50.0,), need=need), 0.0)
    (slot,) = explained(scheduler, 1, 0.0).slots
    assert slot.short == (("gpu", 1), ("tpu", 0))
