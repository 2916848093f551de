"""Timers go off at their times, in order and once; and waits after failures grow."""

import math

import pytest

from deskgrid.scheduler.model import InvariantBroken
from deskgrid.scheduler.state.timers import AT_A_TIME, Backoff, Timer, Timers


def test_timers_go_off_in_their_order_and_those_of_one_instant_as_they_were_set() -> None:
    timers = Timers()
    timers.set(Timer.PAUSE, 2, 5.0)
    timers.set(Timer.PAUSE, 1, 5.0)
    timers.set(Timer.REST, "a", 4.0)
    timers.set(Timer.REST, "b", 6.0)
    assert timers.next == 4.0
    assert list(timers.due(5.5)) == [(Timer.REST, "a", 4.0), (Timer.PAUSE, 2, 5.0), (Timer.PAUSE, 1, 5.0)]
    assert (timers.next, list(timers.due(5.5))) == (6.0, [])


def test_a_timer_that_is_dropped_or_set_anew_does_not_go_off_at_its_old_time() -> None:
    timers = Timers()
    timers.set(Timer.PAUSE, 1, 5.0)
    timers.drop(Timer.PAUSE, 1)
    timers.drop(Timer.PAUSE, 1)
    assert timers.next == math.inf
    timers.set(Timer.PAUSE, 1, 5.0)
    timers.set(Timer.PAUSE, 1, 6.0)
    assert (timers.next, list(timers.due(5.0))) == (6.0, [])
    assert list(timers.due(6.0)) == [(Timer.PAUSE, 1, 6.0)]


def test_a_timer_that_is_set_when_it_goes_off_may_be_due_at_once() -> None:
    timers, went_off = Timers(), list[float]()
    timers.set(Timer.WIDENING, "a", 2.0)
    for timer, of, at in timers.due(7.0):
        went_off.append(at)
        timers.set(timer, of, at + 2.0)
    assert (went_off, timers.next) == ([2.0, 4.0, 6.0], 8.0)


def test_timers_that_are_dropped_take_no_memory() -> None:
    timers = Timers()
    timers.set(Timer.PAUSE, 0, 5.0)
    for task in range(1, 5_000):
        timers.set(Timer.PAUSE, task, 1e6 + task)
        timers.drop(Timer.PAUSE, task)
    assert len(timers._heap) < 1_100
    assert list(timers.due(5.0)) == [(Timer.PAUSE, 0, 5.0)]


def test_when_very_many_are_due_at_once_they_go_off_some_at_a_time() -> None:
    timers = Timers()
    for task in range(AT_A_TIME + 10):
        timers.set(Timer.PAUSE, task, 5.0)
    assert [len(list(timers.due(6.0))) for _ in range(3)] == [AT_A_TIME, 10, 0]


def test_the_check_finds_a_timer_that_will_not_go_off() -> None:
    timers = Timers()
    timers.set(Timer.PAUSE, 1, 5.0)
    timers.check()
    timers._heap.clear()
    with pytest.raises(InvariantBroken, match="will not go off"):
        timers.check()


def test_waits_grow_up_to_their_limit() -> None:
    backoff = Backoff(10.0, 600.0)
    waits = [backoff.nth(failures) for failures in range(1, 9)]
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]
    assert [backoff.after(lasted) for lasted in [0.0, *waits[:-1]]] == waits
    assert backoff.nth(10**6) == 600.0
    assert Backoff(1.0, 100.0, 4.0).nth(3) == 16.0
