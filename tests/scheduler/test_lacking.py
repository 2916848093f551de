"""What explanations say of PCs that lack what a task needs."""

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import Scheduler
from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.policies import make_policy
from tests.scheduler.test_views import explained

GIB = 2**30


@pytest.mark.parametrize(
    ("need", "lacks", "memory"),
    [
        (Need(labels=frozenset({"gpu", "tpu"})), ("tpu",), None),
        (Need(memory=4 * GIB), (), float(2 * GIB)),
    ],
)
def test_slots_of_pcs_that_lack_something_come_last_and_say_what(
    need: Need, lacks: tuple[str, ...], memory: float | None
) -> None:
    scheduler = Scheduler(make_policy("fcfs"))
    scheduler.handle(ev.WorkerJoined("a", 1, 100.0, labels=frozenset({"gpu"}), memory=2 * GIB), 0.0)
    scheduler.handle(ev.TasksSubmitted(bag=1, first=1, count=1, runtimes=(50.0,), need=need), 0.0)
    (slot,) = explained(scheduler, 1, 0.0).slots
    assert (slot.lacks, slot.memory) == (lacks, memory)
