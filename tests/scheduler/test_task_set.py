"""The set of tasks near each other, beside a plain set."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deskgrid.scheduler.queues import task_set
from deskgrid.scheduler.queues.task_ranges import spans_of
from deskgrid.scheduler.queues.task_set import TaskSet

# Small pages, because the plain set is slow.
BITS = 4
PAGE = 1 << BITS
# On both sides of the borders between pages, and far apart.
FIRSTS = st.sampled_from([0, 5, PAGE - 3, PAGE, 2 * PAGE - 1, 40 * PAGE - 2])
COUNTS = st.sampled_from([0, 1, 2, 4, 7, PAGE, PAGE + 3])


class TaskSetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(task_set, "_BITS", BITS)
        self.patch.setattr(task_set, "PAGE", PAGE)
        self.quick, self.slow = TaskSet(), set[int]()

    def teardown(self) -> None:
        self.patch.undo()

    @rule(first=FIRSTS, count=COUNTS)
    def add(self, first: int, count: int) -> None:
        self.quick.add(first, count)
        self.slow.update(range(first, first + count))

    @rule(first=FIRSTS, count=COUNTS)
    def remove(self, first: int, count: int) -> None:
        self.quick.remove(first, count)
        self.slow.difference_update(range(first, first + count))

    @rule(first=FIRSTS, count=COUNTS)
    def look(self, first: int, count: int) -> None:
        tasks = range(first, first + count)
        here = [task for task in tasks if task in self.slow]
        away = [task for task in tasks if task not in self.slow]
        found = [task for begin, many in self.quick.ranges(first, count) for task in range(begin, begin + many)]
        assert (found, self.quick.count(first, count)) == (here, len(here))
        assert list(self.quick.gaps(first, count)) == spans_of(away)
        assert self.quick.first_gap(first, first + count) == (away[0] if away else first + count)
        assert self.quick.last_gap(first, first + count) == (away[-1] if away else first - 1)

    @invariant()
    def agrees(self) -> None:
        assert self.quick.size == len(self.slow)
        assert all((task in self.quick) == (task in self.slow) for task in (0, 5, PAGE - 1, PAGE, 40 * PAGE + 1))
        assert self.slow or not self.quick._pages


TestTaskSet = TaskSetMachine.TestCase
