"""What explanations say of PCs that lack what a task needs."""

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.need import SINGLE, Need, of_memory
from deskgrid.scheduler.placing.turns import by_needs
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.test_views import explained

GIB = 2**30


@pytest.mark.parametrize(
    ("need", "lacks", "short"),
    [
        (Need(labels=frozenset({"gpu", "tpu"})), ("tpu",), ()),
        (Need(amounts=of_memory(4 * GIB)), (), (("memory", 2 * GIB),)),
    ],
)
def test_slots_of_pcs_that_lack_something_come_last_and_say_what(
    need: Need, lacks: tuple[str, ...], short: tuple[tuple[str, float], ...]
) -> None:
    scheduler = Scheduler(make_policy("fcfs"))
    scheduler.handle(ev.WorkerJoined("a", 1, 100.0, labels=frozenset({"gpu"}), amounts=of_memory(2 * GIB)), 0.0)
    scheduler.handle(ev.TasksSubmitted(bag=1, first=1, count=1, runtimes=(50.0,), need=need), 0.0)
    (slot,) = explained(scheduler, 1, 0.0).slots
    assert (slot.lacks, slot.short) == (lacks, short)


def test_it_is_known_which_labels_all_workers_have() -> None:
    scheduler = Scheduler(make_policy("fcfs"))
    slots = scheduler.grid.slots
    assert slots.all_have({"a"}), "as there is none without"
    for name, labels in (("x", {"a", "b"}), ("y", {"a"})):
        scheduler.handle(ev.WorkerJoined(name, 1, 100.0, labels=frozenset(labels)), 0.0)
    assert (slots.all_have({"a"}), slots.all_have({"a", "b"}), slots.all_have(())) == (True, False, True)
    scheduler.handle(ev.WorkerJoined("y", 1, 100.0, labels=frozenset({"b"})), 1.0)
    assert (slots.all_have({"a"}), slots.all_have({"b"})) == (False, True)
    scheduler.handle(ev.WorkerLeft("y", planned=True), 2.0)
    assert slots.all_have({"a", "b"})


def test_tasks_that_need_what_all_have_hide_nothing_and_others_get_what_they_need() -> None:
    scheduler = Scheduler(make_policy("fcfs"))
    for name, labels in (("x", {"Python 3.11", "Python 3.12"}), ("y", {"Python 3.11"})):
        scheduler.handle(ev.WorkerJoined(name, 1, 100.0, labels=frozenset(labels)), 0.0)
    for bag, python in ((1, "Python 3.12"), (2, "Python 3.11")):
        need = Need(labels=frozenset({python}))
        scheduler.handle(ev.TasksSubmitted(bag=bag, first=2 * bag, count=2, runtimes=(50.0,), need=need), 0.0)
    commands = scheduler.handle(ev.PassDue(100), 0.0)
    found = {each.worker: [row.attempt.task for row in each.work] for each in commands if isinstance(each, cmd.Assign)}
    assert found == {"x": [2], "y": [4]}


def test_tasks_that_need_what_every_pc_has_are_placed_together_with_those_that_need_nothing() -> None:
    scheduler = Scheduler(make_policy("packing"))
    scheduler.handle(ev.WorkerJoined("x", 2, 100.0, labels=frozenset({"Python 3.11"})), 0.0)
    for bag, runtime, need in (
        (1, 50.0, SINGLE),
        (2, 40.0, Need(labels=frozenset({"Python 3.11"}))),
        (3, 30.0, SINGLE),
    ):
        scheduler.handle(ev.TasksSubmitted(bag=bag, first=bag, count=1, runtimes=(runtime,), need=need), 0.0)
    categories = [*scheduler.grid.categories.waiting.values()]
    assert len(categories) == 2
    assert by_needs(categories, scheduler.grid) == [categories]
    scheduler.handle(ev.WorkerJoined("y", 2, 100.0), 0.0)
    assert len(by_needs(categories, scheduler.grid)) == 2
