"""A worker on which everybody's work crashes is put in quarantine, but not the last one, nor one that does a task."""

import math

import pytest

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import CRASH_LIMIT
from deskgrid.scheduler.model import AttemptOutcome, State
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.failures import BAG_WORKERS, STREAK
from deskgrid.scheduler.state.quarantine import FIRST_QUARANTINE_S, LONGEST_QUARANTINE_S
from deskgrid.scheduler.state.timers import Timer
from tests.scheduler.builders import Grid, fcfs, pgs

ENDLESS = 10_000.0
ANN, BOB = CategoryKey("ann"), CategoryKey("bob")


def of_two(grid: Grid, count: int, runtime: float = 5.0) -> list[int]:
    """So many tasks of two people, of one bag of each."""
    tasks: list[int] = []
    for number in range(count):
        tasks += grid.tasks(runtime, bag=1 + number % 2, key=(ANN, BOB)[number % 2])
    return tasks


def crash(grid: Grid, task: int) -> list[int]:
    """The newest attempt of ``task`` crashes; which tasks have ended by that."""
    commands = grid.tell(ev.AttemptsEnded("?", [ev.EndedAttempt(grid.attempts[task], AttemptOutcome.CRASH, 0.1)]))
    return [attempt.task for command in commands if isinstance(command, cmd.Settle) for attempt in command.attempts]


def keep_busy(grid: Grid) -> int:
    """Another worker is there, with something to do for long: that."""
    grid.pc("good")
    (long,) = grid.tasks(ENDLESS)
    grid.expect(good=[long])
    return long


def broken(grid: Grid, name: str = "bad") -> list[int]:
    """A worker on which three tasks of two people have crashed while another worker is busy; all their tasks."""
    keep_busy(grid)
    grid.pc(name)
    tasks = of_two(grid, 4)
    for _ in range(STREAK):
        (task,) = grid.tell_pass()[name]
        assert crash(grid, task) == []
    return tasks


def crashed_on_one(grid: Grid) -> int:
    """A task that crashed as often as a task may, each time on one worker, and is now on another."""
    long = keep_busy(grid)
    grid.pc("bad")
    (task,) = grid.tasks(5.0, bag=1)
    for _ in range(CRASH_LIMIT):
        grid.expect(bad=[task])
        assert crash(grid, task) == []
    grid.end(long)
    grid.expect(good=[task])
    return task


def in_quarantine(grid: Grid) -> dict[str, float]:
    """How long each resting worker has been told to rest."""
    return {name: rest.lasts for name, rest in grid.inside.quarantine.workers.items()}


def test_a_worker_on_which_task_after_task_crashes_gets_no_more_of_them() -> None:
    grid = Grid()
    tasks = broken(grid)
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}
    grid.expect()
    assert State.SENT not in {grid.state(task) for task in tasks}


def test_when_a_quarantine_is_over_a_pass_is_due_to_try_the_worker() -> None:
    grid = Grid()
    broken(grid)
    grid.expect()
    assert grid.scheduler.wakes_at == grid.now + FIRST_QUARANTINE_S
    grid.wait(FIRST_QUARANTINE_S)
    (task,) = grid.tell_pass()["bad"]
    assert grid.scheduler.wakes_at == math.inf
    assert crash(grid, task) == []
    due = grid.inside.timers.at[Timer.QUARANTINE]
    assert due == {"bad": grid.now + 2 * FIRST_QUARANTINE_S}
    grid.tell(ev.WorkerLeft("bad", True))
    grid.tell(ev.WorkerForgotten("bad"))
    assert due == {}


def test_a_task_is_not_given_up_for_crashes_that_were_all_on_one_broken_worker() -> None:
    grid = Grid()
    task = crashed_on_one(grid)
    assert grid.end(task) == [task]
    assert grid.state(task) == State.DONE


def test_a_worker_in_quarantine_works_again_when_what_it_still_ran_succeeds() -> None:
    grid = Grid()
    keep_busy(grid)
    grid.pc("bad", slots=3)
    still = grid.tasks(9.0, 9.0)
    grid.expect(bad=still[:1], bad_1=still[1:])
    tasks = of_two(grid, 4)
    for _ in range(STREAK):
        (task,) = grid.tell_pass()["bad_2"]
        assert crash(grid, task) == []
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}
    grid.expect()
    assert grid.end(*still) == still
    assert in_quarantine(grid) == {}
    handed = grid.tell_pass()
    assert len(handed) == 3
    assert all(set(work) <= set(tasks) for work in handed.values())


def test_a_task_that_crashes_elsewhere_as_well_is_given_up() -> None:
    grid = Grid()
    task = crashed_on_one(grid)
    assert crash(grid, task) == [task]
    assert grid.state(task) == State.FAILED


@pytest.mark.parametrize("outcome", [AttemptOutcome.DONE, AttemptOutcome.ERROR, AttemptOutcome.TIMEOUT])
def test_whatever_is_no_crash_shows_that_a_worker_works(outcome: AttemptOutcome) -> None:
    grid = Grid()
    keep_busy(grid)
    grid.pc("pc")
    for place in range(2 * STREAK):
        grid.tasks(5.0, bag=1 + place, key=(ANN, BOB)[place % 2])
        (task,) = grid.tell_pass()["pc"]
        grid.answer([grid.attempts[task]], AttemptOutcome.CRASH if place % STREAK else outcome)
        grid.cancel(task)
    assert in_quarantine(grid) == {}


def test_after_the_rest_one_task_is_tried_and_all_is_well_when_it_does_not_crash() -> None:
    grid = Grid()
    keep_busy(grid)
    grid.pc("bad", slots=3)
    tasks = of_two(grid, 6)
    handed = grid.tell_pass()
    for task in sorted(task for slot in handed.values() for task in slot):
        crash(grid, task)
    grid.wait(FIRST_QUARANTINE_S - 0.1)
    grid.expect()
    grid.wait(0.2)
    ((slot, (probe,)),) = grid.tell_pass().items()
    assert probe in tasks
    grid.wait(1.0)
    grid.expect()  # one task at a time, whatever its slots
    grid.end(probe)
    assert in_quarantine(grid) == {}
    assert len(grid.tell_pass()) == 3
    assert slot.startswith("bad")


def test_each_rest_is_twice_as_long_as_the_last_up_to_a_limit() -> None:
    grid = Grid()
    broken(grid)
    lengths = [FIRST_QUARANTINE_S]
    while lengths[-1] < LONGEST_QUARANTINE_S and len(lengths) < 20:
        grid.wait(lengths[-1] + 0.1)
        grid.tasks(6.0, bag=2 + len(lengths))
        (probe,) = grid.tell_pass()["bad"]
        crash(grid, probe)
        grid.cancel(probe)
        lengths.append(in_quarantine(grid)["bad"])
    assert lengths[:3] == [FIRST_QUARANTINE_S, 2 * FIRST_QUARANTINE_S, 4 * FIRST_QUARANTINE_S]
    assert lengths[-1] == LONGEST_QUARANTINE_S


def test_what_still_runs_on_a_resting_worker_ends_the_rest_when_it_works_and_not_when_it_crashes() -> None:
    grid = Grid(pgs(queue_length=0))
    keep_busy(grid)
    grid.pc("bad", slots=3)
    first, second = grid.tasks(700.0, 600.0)
    grid.expect(bad=[first], bad_1=[second])
    for task in of_two(grid, 3):
        grid.expect(bad_2=[task])
        crash(grid, task)
        grid.cancel(task)
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}
    crash(grid, second)
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}
    grid.end(first)
    assert in_quarantine(grid) == {}


def test_work_that_waits_at_a_broken_worker_is_taken_back() -> None:
    grid = Grid(pgs(queue_length=3))
    keep_busy(grid)
    grid.pc("bad", uptime=9000.0)
    for _ in range(STREAK - 1):
        (task,) = grid.tasks(5.0, bag=2, key=BOB)
        grid.expect(bad=[task])
        crash(grid, task)
        grid.cancel(task)
    first, second, ahead, queued = grid.tasks(0.1, 0.1, 0.1, 50.0, bag=1)
    grid.expect(bad=[first, second, ahead])
    assert grid.queues()["bad"] == [queued]
    commands = grid.tell(ev.AttemptsEnded("bad", [ev.EndedAttempt(grid.attempts[first], AttemptOutcome.CRASH, 0.1)]))
    assert commands == [cmd.Recall("bad", [grid.attempts[ahead]])]
    assert "bad" not in grid.queues()
    assert grid.state(queued) == State.WAITING


def test_a_bag_that_crashes_everywhere_is_broken_itself_and_no_worker_rests_for_it() -> None:
    grid = Grid(fcfs())
    names = [f"pc{number}" for number in range(BAG_WORKERS + 2)]
    for name in names:
        grid.pc(name)
    tasks = grid.tasks(*[5.0] * 20)
    passes = 0
    while any(grid.state(task) != State.FAILED for task in tasks):
        for handed in grid.tell_pass().values():
            crash(grid, handed[0])
        passes += 1
        assert passes < 100
    assert in_quarantine(grid) == {}
    assert grid.scheduler.counters.crashes == 20 * CRASH_LIMIT


def test_a_bag_that_has_worked_is_to_blame_when_it_crashes_on_several_workers_in_a_row() -> None:
    grid = Grid(fcfs())
    names = [f"pc{number}" for number in range(BAG_WORKERS)]
    for name in names:
        grid.pc(name)
    grid.tasks(*[5.0] * 60)
    for handed in grid.tell_pass().values():
        grid.end(*handed)
    for _ in range(STREAK):
        for handed in grid.tell_pass().values():
            crash(grid, handed[0])
    assert in_quarantine(grid) == {}


def test_bags_that_work_elsewhere_between_their_crashes_are_not_to_blame() -> None:
    grid = Grid(fcfs())
    for name in ("good", "bad"):
        grid.pc(name)
    of_two(grid, 60)
    for _ in range(STREAK):
        handed = grid.tell_pass()
        grid.end(*handed.get("good", []))
        crash(grid, handed["bad"][0])
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}


def test_the_only_worker_never_rests_and_tasks_are_given_up_as_ever() -> None:
    grid = Grid()
    grid.pc("only")
    tasks = grid.tasks(5.0, 5.0)
    ended: list[int] = []
    for _ in range(2 * CRASH_LIMIT):
        (task,) = grid.tell_pass()["only"]
        ended += crash(grid, task)
    assert sorted(ended) == tasks
    assert in_quarantine(grid) == {}


def test_when_only_resting_workers_are_left_they_are_tried_at_once() -> None:
    grid = Grid()
    broken(grid)
    grid.expect()
    grid.leave("good")
    (probe,) = grid.tell_pass()["bad"]
    crash(grid, probe)
    assert in_quarantine(grid) == {}  # nobody else is there


def test_the_last_worker_works_on_all_its_slots_again() -> None:
    grid = Grid()
    keep_busy(grid)
    grid.pc("bad", slots=3)
    of_two(grid, 9)
    for handed in grid.tell_pass().values():
        crash(grid, handed[0])
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}
    grid.leave("good")
    ((probe,),) = grid.tell_pass().values()
    crash(grid, probe)
    assert len(grid.tell_pass()) == 3


def test_a_worker_that_comes_back_still_rests_until_it_is_forgotten() -> None:
    grid = Grid()
    tasks = broken(grid)
    grid.pc("bad")
    grid.expect()
    grid.leave("bad")
    grid.pc("bad")
    grid.expect()
    grid.leave("bad")
    grid.tell(ev.WorkerForgotten("bad"))
    grid.pc("bad")
    (task,) = grid.tell_pass()["bad"]
    assert task in tasks


def test_a_crash_that_comes_late_counts_for_the_worker_that_tells_of_it() -> None:
    grid = Grid()
    grid.pc("bad", slots=STREAK)
    tasks = of_two(grid, STREAK)
    assert len(grid.tell_pass()) == STREAK
    grid.pc("good")
    grid.leave("bad", planned=False)
    for task in tasks:
        grid.tell(ev.AttemptsEnded("bad", [ev.EndedAttempt(grid.attempts[task], AttemptOutcome.CRASH, 0.1)]))
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}
    grid.wait(LONGEST_QUARANTINE_S)
    assert "bad" not in grid.tell_pass()
    grid.pc("bad", slots=STREAK)
    (slot,) = grid.tell_pass()
    assert slot == "bad"


def test_one_person_in_two_environments_is_as_good_as_two_people() -> None:
    grid = Grid(fcfs())
    keep_busy(grid)
    grid.pc("bad")
    for number in range(STREAK):
        key = CategoryKey("ann", environment=("one", "two")[number % 2])
        grid.tell(ev.EnvironmentsReady("bad", frozenset({"one", "two"})))
        (task,) = grid.tasks(5.0, bag=1 + number, key=key)
        grid.expect(bad=[task])
        assert in_quarantine(grid) == {}
        crash(grid, task)
        grid.cancel(task)
    assert in_quarantine(grid) == {"bad": FIRST_QUARANTINE_S}


def test_one_person_with_many_bags_that_crash_puts_no_worker_in_quarantine() -> None:
    grid = Grid(fcfs())
    for name in ("a", "b"):
        grid.pc(name)
    for bag in range(40):
        grid.tasks(5.0, bag=bag, key=ANN)
    while handed := grid.tell_pass():
        for tasks in handed.values():
            crash(grid, *tasks)
        assert in_quarantine(grid) == {}
        grid.wait(1.0)
    assert grid.scheduler.counters.crashes >= 40 * CRASH_LIMIT


def test_what_is_known_of_a_bag_goes_with_it() -> None:
    grid = Grid()
    grid.pc("pc")
    (task,) = grid.tasks(5.0)
    grid.expect(pc=[task])
    crash(grid, task)
    grid.cancel(task)
    grid.tell(ev.BagForgotten(0))
    grid.expect()


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", [make_policy("pgs"), make_policy("fcfs")], ids=["pgs", "fcfs"])
def test_one_broken_pc_among_many_costs_a_bag_a_few_crashes(policy: Policy) -> None:
    """It is always idle, so without a rest it would eat the bag: 3 crashes each for most of its tasks."""
    grid = Grid(policy)
    for number in range(4):
        grid.pc(f"good{number}")
    grid.pc("bad")
    tasks = grid.tasks(*[20.0] * 200)
    running: dict[int, float] = {}
    while running or any(grid.state(task) < State.DONE for task in tasks):
        for slot, handed in grid.tell_pass().items():
            for task in handed:
                running[task] = grid.now + (0.1 if slot == "bad" else 20.0)
        task = min(running, key=running.__getitem__)
        grid.now = max(grid.now, running.pop(task))
        name = grid.inside.bound[task].slot.worker.name
        crash(grid, task) if name == "bad" else grid.end(task)
    counters = grid.scheduler.counters
    assert (counters.done, [task for task in tasks if grid.state(task) != State.DONE]) == (200, [])
    assert counters.crashes <= 12
