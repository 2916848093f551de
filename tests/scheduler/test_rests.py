"""A worker that does not get ranks ready, or does not keep them, gets no gangs for a while: they go elsewhere."""

import math

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import AttemptOutcome, InvariantBroken
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.state.failures import BAG_WORKERS
from deskgrid.scheduler.state.rests import FIRST_REST_S, LONGEST_REST_S, SILENT_REST_S
from tests.scheduler.test_gangs import Lab

ONE = Need(gang=True)


def refuse(lab: Lab, task: int, *blamed: str, silent: bool = False, pause: float = 0.0) -> None:
    """A gang cannot begin."""
    lab.grid.tell(ev.GangRefused(lab.grid.attempts[task], pause, blamed, silent))


def resting() -> tuple[Lab, int]:
    """Two workers, of which the first has refused a gang of one rank; and the gang's task, which waits."""
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10, need=ONE)
    lab.starts()
    refuse(lab, task, "a")
    return lab, task


def rest_of(lab: Lab, name: str) -> float | None:
    """For how long a worker gets no gangs."""
    until = lab.grid.scheduler.rests_until(name)
    return None if until is None else until - lab.grid.now


@pytest.mark.parametrize(("silent", "rest"), [(False, FIRST_REST_S), (True, SILENT_REST_S)])
def test_a_worker_that_is_not_ready_gets_no_gang_for_a_while_and_longer_each_time(silent: bool, rest: float) -> None:
    lab = Lab()
    lab.pcs("a", "b")
    (task,) = lab.submit(10, need=ONE)
    for _ in range(8):
        assert lab.starts() == {task: "a"}
        attempt = lab.grid.attempts[task]
        refuse(lab, task, "a", "gone", silent=silent)
        lab.grid.tell(ev.GangRefused(attempt, 0.0, ["a"], silent))  # it is not blamed twice
        assert rest_of(lab, "a") == rest
        assert lab.grid.scheduler.wakes_at <= lab.grid.now + rest
        assert lab.starts() == {task: "b"}
        refuse(lab, task)
        lab.grid.wait(rest)
        rest = min(2 * rest, LONGEST_REST_S)
    assert rest == LONGEST_REST_S


def test_a_worker_that_rests_does_single_tasks_and_its_slots_are_expected_back() -> None:
    lab = Lab()
    lab.pcs("a", slots=2, uptime=7.0)
    lab.pcs("b", slots=2, uptime=3.0)
    (task,) = lab.submit(2, need=ONE)
    lab.starts()
    refuse(lab, task, "a")
    assert lab.starts() == {task: "b"}
    (site,) = lab.grid.inside.gangs.sites
    assert [(host.idle, host.frees) for host in site.hosts] == [(0, [(7.0, 2)]), (1, [(2.0, 1)])]
    (single,) = lab.grid.tasks(5.0, bag=1)
    assert lab.grid.tell_pass() == {"a": [single]}


def test_ranks_that_began_and_are_given_back_count() -> None:
    lab = Lab()
    lab.pcs("a", "b", "c")
    (task,) = lab.submit(10)
    assert lab.starts() == {task: "a b"}
    lab.began(task)
    lab.grid.tell(ev.AttemptsReturned("a", [lab.grid.attempts[task]]))
    assert rest_of(lab, "a") == FIRST_REST_S
    assert lab.starts() == {task: "b c"}
    lab.grid.tell(ev.AttemptsReturned("a", [lab.grid.attempts[task]]))  # it has none of these
    assert rest_of(lab, "a") == FIRST_REST_S


def test_of_gangs_that_fail_together_one_counts() -> None:
    lab = Lab()
    lab.pcs("a", slots=3)
    tasks = lab.submit(10, 10, 10, need=ONE)
    assert lab.starts() == dict.fromkeys(tasks, "a")
    for task in tasks:
        refuse(lab, task, "a")
    assert rest_of(lab, "a") == FIRST_REST_S


def test_after_a_rest_one_gang_is_tried_and_one_that_is_done_makes_good() -> None:
    lab = Lab()
    lab.pcs("a", slots=3)
    first, second, third = lab.submit(10, 10, 10, need=ONE)
    assert lab.starts() == {first: "a", second: "a", third: "a"}
    for task in (first, second, third):
        refuse(lab, task, "a")
    assert lab.starts() == {}
    lab.grid.wait(FIRST_REST_S)
    assert lab.starts() == {first: "a"}
    lab.end(first, AttemptOutcome.ERROR)
    assert lab.starts() == {second: "a"}
    lab.end(second)
    rest = lab.submit(10, 10, need=ONE)
    assert lab.starts() == dict.fromkeys([third, *rest], "a")


def test_a_failure_is_not_forgotten_with_one_gang_that_is_done_if_there_were_more() -> None:
    lab = Lab()
    lab.pcs("a")
    (task,) = lab.submit(10, need=ONE)
    for rest in (FIRST_REST_S, 2 * FIRST_REST_S):
        lab.starts()
        refuse(lab, task, "a")
        lab.grid.wait(rest)
    assert lab.starts() == {task: "a"}
    lab.end(task)
    (task,) = lab.submit(10, need=ONE)
    lab.starts()
    refuse(lab, task, "a")
    assert rest_of(lab, "a") == 2 * FIRST_REST_S


def test_a_bag_that_no_worker_gets_ready_makes_no_rest_longer() -> None:
    lab = Lab()
    names = ("a", "b", "c")
    assert len(names) == BAG_WORKERS
    lab.pcs(*names)
    (task,) = lab.submit(10, need=Need(3, 3))
    for _ in range(4):
        assert lab.starts() == {task: "a b c"}
        refuse(lab, task, *names)
        assert rest_of(lab, "c") == FIRST_REST_S
        lab.grid.wait(4 * FIRST_REST_S)
    lab.grid.cancel(task)
    lab.grid.tell(ev.BagForgotten(0))


def test_a_worker_cannot_end_its_rest_by_leaving_and_joining_anew() -> None:
    lab, task = resting()
    lab.grid.leave("a")
    lab.grid.tell(ev.WorkerForgotten("a"))
    lab.pcs("a")
    assert lab.starts() == {task: "b"}
    lab.grid.leave("a")
    lab.grid.wait(FIRST_REST_S)
    lab.grid.tell(ev.PassDue())
    assert lab.grid.scheduler.wakes_at == math.inf
    assert not lab.grid.inside.rests


def test_a_worker_that_is_forgotten_after_its_rest_is_a_new_one() -> None:
    lab, _ = resting()
    lab.grid.wait(FIRST_REST_S)
    lab.grid.tell(ev.PassDue())
    lab.grid.leave("a")
    lab.grid.tell(ev.WorkerForgotten("a"))
    assert not lab.grid.inside.rests


def test_the_check_finds_failures_that_are_none() -> None:
    lab = Lab()
    lab.grid.inside.rests._failures["a"] = 0
    with pytest.raises(InvariantBroken, match="failures"):
        lab.grid.scheduler.check(0.0)
