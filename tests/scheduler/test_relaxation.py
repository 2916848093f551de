"""When the work would be done if tasks could be cut at will."""

import math
from itertools import count

import pytest

from deskgrid.scheduler.policies.planning.planner import done_at


def test_work_ends_when_the_slots_have_been_there_for_it() -> None:
    steps = [(0.0, 1), (10.0, 2), (20.0, -3), (30.0, 1)]
    assert [done_at(steps, work) for work in (5.0, 10.0, 13.0, 40.0, 41.0)] == [5.0, 10.0, 11.0, 20.0, 31.0]


def test_work_for_which_there_are_never_slots_never_ends() -> None:
    assert done_at([], 1.0) == math.inf
    assert done_at([(0.0, 1), (1.0, -1)], 2.0) == math.inf
    assert done_at([(0.0, 2)], 9.0) == 4.5


def test_slots_may_come_and_go_without_end() -> None:
    steps = ((10.0 * turn, 1 if turn % 2 == 0 else -1) for turn in count())
    assert done_at(steps, 25.0) == pytest.approx(45.0)
