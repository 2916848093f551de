"""The alarm: after each boundary and never before, whatever happens to the clocks."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from deskgrid.worker.windows import alarm
from deskgrid.worker.windows.alarm import Alarm
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import Cycle, Instant, OpenEnded, UptimePlan, parse_until, weekly_from_table
from tests.uptime.builders import BOOT, BRUSSELS, at
from tests.waiting import eventually

NIGHTS = weekly_from_table({"zone": BRUSSELS, "windows": ["daily 18:00-08:00"]}, "test")


class Clock:
    """Both clocks, moved by the test; counts how often it is read."""

    def __init__(self, start: Instant) -> None:
        self.now = start
        self.reads = 0

    def __call__(self) -> Instant:
        self.reads += 1
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now = Instant(self.now.wall + seconds, self.now.mono + seconds)

    def set_wall(self, seconds: float) -> None:
        self.now = Instant(self.now.wall + seconds, self.now.mono)


class Bell:
    """Counts its rings and remembers from which thread they came."""

    def __init__(self) -> None:
        self.rings = 0
        self.threads: set[str] = set()

    def __call__(self) -> None:
        self.rings += 1
        self.threads.add(threading.current_thread().name)


@contextmanager
def running(plan: UptimePlan, fire: Callable[[], None], clock: Callable[[], Instant] = read_clocks) -> Iterator[Alarm]:
    it = Alarm(plan, fire, clock)
    it.start()
    try:
        yield it
    finally:
        it.close()


def looks(clock: Clock, times: int = 6) -> bool:
    """Wait until the alarm has looked at the clock a few more times."""
    wanted = clock.reads + times
    return eventually(lambda: clock.reads >= wanted)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the alarm look all the time, as a test moves its clocks much faster than they go."""
    monkeypatch.setattr(alarm, "RECHECK_S", 0.01)


def test_it_rings_after_each_boundary_and_never_before_one() -> None:
    start = read_clocks()
    plan = Cycle([(0.15, 0.1)], start)
    rings: list[float] = []
    with running(plan, lambda: rings.append(read_clocks().mono - start.mono)):
        assert eventually(lambda: len(rings) >= 6)
    # On a busy machine a ring may be late, and one may be for several boundaries; but each is for another one.
    boundaries = [0.25 * (n // 2) + (0.15 if n % 2 == 0 else 0.25) for n in range(200)]
    passed = [sum(boundary <= ring for boundary in boundaries) for ring in rings]
    assert all(count >= number for number, count in enumerate(passed, start=1))


def test_boundaries_twenty_milliseconds_apart_ring_apart() -> None:
    start = read_clocks()
    plan = Cycle([(0.08, 0.02)], start)
    seen: set[bool] = set()
    with running(plan, lambda: seen.add(plan.uptime(read_clocks()) > 0)):
        assert eventually(lambda: seen == {True, False})


def test_it_rings_at_the_end_of_some_seconds() -> None:
    plan = parse_until("0.1", read_clocks())
    over: list[bool] = []
    with running(plan, lambda: over.append(plan.over(read_clocks()))):
        assert eventually(lambda: bool(over))
    assert over == [True]


@pytest.mark.usefixtures("impatient")
def test_it_does_not_ring_until_the_boundary_has_passed() -> None:
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    with running(NIGHTS, bell, clock):
        clock.pass_(3600 - 0.001)
        assert looks(clock)
        assert bell.rings == 0
        clock.pass_(0.001)
        assert eventually(lambda: bell.rings == 1)
        assert looks(clock)
        assert bell.rings == 1
        clock.pass_(14 * 3600)
        assert eventually(lambda: bell.rings == 2)
    assert bell.threads == {"APScheduler"}


@pytest.mark.usefixtures("impatient")
def test_boundaries_that_passed_while_the_pc_slept_ring_once() -> None:
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    with running(NIGHTS, bell, clock):
        clock.set_wall(40 * 86_400.0 + 60.0)  # the monotonic clock of a PC that sleeps may stand still
        assert eventually(lambda: bell.rings == 1)
        assert looks(clock)
    assert bell.rings == 1


@pytest.mark.usefixtures("impatient")
def test_weekly_windows_follow_a_wall_clock_that_is_set() -> None:
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    with running(NIGHTS, bell, clock):
        clock.set_wall(1800.0)
        assert looks(clock)
        assert bell.rings == 0
        clock.set_wall(3600.0)  # over an opening
        assert eventually(lambda: bell.rings == 1)
        clock.set_wall(-3600.0)  # and back
        assert eventually(lambda: bell.rings == 2)


@pytest.mark.usefixtures("impatient")
def test_a_cycle_does_not_notice_that_the_wall_clock_is_set() -> None:
    clock, bell = Clock(Instant(1_790_000_000.0, BOOT)), Bell()
    with running(Cycle([(84, 1)], clock.now), bell, clock):
        for jump in (-1e6, 1e6, 83.9, 84.0, -84.0):
            clock.set_wall(jump)
            assert looks(clock)
        assert bell.rings == 0
        clock.pass_(84.0)
        assert eventually(lambda: bell.rings == 1)


@pytest.mark.usefixtures("impatient")
def test_an_apscheduler_whose_clock_is_set_back_still_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    behind = [timedelta(0)]

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Shifted":
            return super().now(tz) - behind[0]

    monkeypatch.setattr("apscheduler.schedulers.base.datetime", Shifted)
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    with running(NIGHTS, bell, clock):
        assert looks(clock)
        behind[0] = timedelta(days=300)
        assert looks(clock, 20)
        clock.pass_(3600.0)
        assert eventually(lambda: bell.rings == 1)


@pytest.mark.usefixtures("impatient")
def test_a_boundary_between_construction_and_start_is_not_missed() -> None:
    clock, bell = Clock(at("2026-11-16T17:59")), Bell()
    it = Alarm(NIGHTS, bell, clock)
    clock.pass_(120.0)
    it.start()
    assert eventually(lambda: bell.rings == 1)
    it.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("before", [OpenEnded(), Cycle([(1e6, 1)], Instant(0.0, BOOT))])
def test_a_plan_may_be_replaced_which_does_not_ring_itself(before: UptimePlan) -> None:
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    with running(before, bell, clock) as it:
        assert looks(clock)
        it.replace(NIGHTS)
        assert looks(clock)
        assert bell.rings == 0
        clock.pass_(3600.0)
        assert eventually(lambda: bell.rings == 1)
        it.replace(OpenEnded())
        clock.pass_(1e6)
        assert looks(clock)
    assert bell.rings == 1


def test_a_new_plan_takes_effect_at_once() -> None:
    bell = Bell()
    with running(OpenEnded(), bell) as it:
        it.replace(parse_until("0.05", read_clocks()))
        assert eventually(lambda: bell.rings == 1, 0.8 * alarm.RECHECK_S)


@pytest.mark.usefixtures("impatient")
def test_a_plan_may_be_replaced_before_the_start_and_after_the_end() -> None:
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    it = Alarm(OpenEnded(), bell, clock)
    it.replace(NIGHTS)
    it.start()
    clock.pass_(3600.0)
    assert eventually(lambda: bell.rings == 1)
    it.close()
    it.replace(OpenEnded())


@pytest.mark.usefixtures("impatient")
def test_a_plan_may_be_replaced_by_the_call_that_it_made() -> None:
    clock = Clock(at("2026-11-16T17:00"))
    cycle = Cycle([(84, 1)], Instant(0.0, clock.now.mono + 3600.0))
    rings: list[int] = []

    def fire() -> None:
        rings.append(len(rings))
        it.replace(cycle)

    with running(NIGHTS, fire, clock) as it:
        clock.pass_(3600.0)
        assert eventually(lambda: len(rings) == 1)
        assert looks(clock)
        clock.pass_(84.0)
        assert eventually(lambda: len(rings) == 2)


@pytest.mark.usefixtures("impatient")
def test_what_the_callback_raises_is_logged_and_the_next_boundary_rings(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(at("2026-11-16T17:00"))
    rings: list[int] = []

    def fire() -> None:
        rings.append(len(rings))
        raise RuntimeError("the agent is not there")

    with running(NIGHTS, fire, clock):
        clock.pass_(3600.0)
        assert eventually(lambda: len(rings) == 1)
        clock.pass_(14 * 3600.0)
        assert eventually(lambda: len(rings) == 2)
    assert "the agent is not there" in caplog.text


@pytest.mark.usefixtures("impatient")
def test_apscheduler_says_nothing_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock, bell = Clock(at("2026-11-16T17:00")), Bell()
    with running(NIGHTS, bell, clock) as it:
        clock.pass_(3600.0)
        assert eventually(lambda: bell.rings == 1)
        it.replace(OpenEnded())
    assert caplog.records == []


def test_it_leaves_no_thread_and_closes_twice_or_without_a_start() -> None:
    before = set(threading.enumerate())
    it = Alarm(OpenEnded(), Bell())
    it.close()
    it.start()
    assert set(threading.enumerate()) - before
    it.close()
    assert set(threading.enumerate()) <= before  # others may have ended
    it.close()


def test_it_sleeps_between_looks() -> None:
    reads = [0]

    def clock() -> Instant:
        reads[0] += 1
        return read_clocks()

    with running(OpenEnded(), Bell(), clock):
        assert not eventually(lambda: reads[0] > 10, 0.3)


def test_a_boundary_that_was_passed_but_not_rung_is_due_at_once() -> None:
    clock = Clock(at("2026-11-16T17:00"))
    watch = alarm._WatchedBoundary(NIGHTS, clock)
    clock.pass_(3600.0)
    assert watch.wait() == 0.0
    assert watch.passed()
    assert watch.wait() == alarm.RECHECK_S
    assert not watch.passed()


@pytest.mark.parametrize("plan", [OpenEnded(), NIGHTS, Cycle([(1e-9, 0)], Instant(0.0, 0.0))])
@pytest.mark.parametrize("late", [0.0, 3600.0, 1e9])
def test_apscheduler_is_always_given_a_time_to_come(plan: UptimePlan, late: float) -> None:
    clock = Clock(at("2026-11-16T17:00"))
    trigger = alarm._Trigger(alarm._WatchedBoundary(plan, clock))
    now = datetime(2026, 11, 16, 17, tzinfo=UTC)
    clock.pass_(late)
    for previous in (None, now):
        following = trigger.get_next_fire_time(previous, now)
        assert now < following <= now + timedelta(seconds=alarm.RECHECK_S, microseconds=1)
