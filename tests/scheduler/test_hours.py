"""How PCs keep the hours that they announce, and when their windows are expected to close."""

import math

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import PlannedWindow, Windows
from deskgrid.scheduler.prediction.hours import (
    DAY,
    ENOUGH,
    HOUR,
    LATEST,
    OTHERS,
    OWN,
    PCS,
    WEEK,
    WINDOWS,
    Habit,
    Hours,
)
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.state.timers import Timer
from deskgrid.scheduler.views.snapshot import HoursView, worker_view
from tests.scheduler.builders import Grid, packing


def hours(pc: str = "a", **windows: tuple[float, float]) -> Hours:
    """A PC with these windows, (planned, lasted)."""
    found = Hours()
    for window in windows.values():
        found.add(pc, *window, 0)
    return found


def test_who_does_as_announced_is_taken_at_its_word() -> None:
    assert hours().lengths("a", 100, 0) == []
    assert hours(one=(100, 100), two=(80, 80.5)).lengths("a", 70, 0) == []


def test_who_always_goes_when_it_goes_is_expected_to_whatever_it_announces() -> None:
    known = hours(one=(300, 100), two=(20, 101), three=(150, 99))
    assert known.lengths("a", 1000, 0) == known.lengths("a", math.inf, 0) == [99, 100, 101]
    assert known.habit("a", 0) == Habit(3, lasts=(99, 101))


def test_who_leaves_early_as_announced_is_expected_to_leave_as_early() -> None:
    known = hours(one=(200, 100), two=(1000, 510), three=(120, 62.4))
    assert known.lengths("a", 200, 0) == [100, 102, 104]
    assert known.lengths("a", math.inf, 0) == []
    assert known.habit("a", 0) == Habit(3, early_s=100)
    assert known.early("a", 0) == pytest.approx((100 + 490 + 57.6) / 3)


def test_a_pc_without_an_end_that_goes_home_is_expected_as_its_history_says() -> None:
    known = hours(one=(math.inf, 100), two=(math.inf, 120))
    assert known.lengths("a", math.inf, 0) == [100, 120]
    assert known.early("a", 0) is None
    assert known.habit("a", 0) == Habit(2, lasts=(100, 120))


def test_what_is_usual_leaves_out_the_tenth_at_each_end() -> None:
    known = Hours()
    for lasted in (60, 100, 101, 102, 103, 104, 105, 106, 107, 900):
        known.add("a", math.inf, lasted, 0)
    assert known.habit("a", 0) == Habit(10, lasts=(100, 107))


def test_who_goes_as_announced_has_no_habit_of_its_own() -> None:
    assert hours().habit("a", 0) == Habit(0)
    assert hours(one=(100, 80)).habit("a", 0) == Habit(1)
    assert hours(one=(100, 100), two=(80, 80.5)).habit("a", 0) == Habit(2)
    assert hours(one=(100, 100), two=(100, 100)).habit("a", 0) == Habit(2)
    assert hours(one=(math.inf, 100), two=(math.inf, 1000), three=(math.inf, 70)).habit("a", 0).early_s is None


def test_a_pc_of_which_little_is_known_is_judged_by_most_others() -> None:
    known = Hours()
    for pc in range(OTHERS):
        known.add(f"pc{pc}", 100, 80, 0)
        assert known.lengths("new", 10, 0) == [], "PCs with one window say nothing of others"
    for pc in range(OTHERS):
        assert known.lengths("new", 10, 0) == []
        known.add(f"pc{pc}", 200, 160, 0)
    assert known.lengths("new", 10, 0) == [8] * OTHERS + [10] * OTHERS
    assert known.lengths("new", math.inf, 0) == []
    for pc in range(OTHERS):
        known.add(f"pc{pc}", 300, 81, 0)
        known.add(f"pc{pc}", 500, 81, 0)
    known.add("new", 100, 70, 0)
    assert known.lengths("new", 50, 0) == [70], "most PCs go by habit"
    assert known.early("new", 0) is None


def test_one_absurd_pc_changes_nothing_for_others() -> None:
    known = Hours()
    for _ in range(WINDOWS):
        known.add("absurd", 1e6, 60, 0)
        for pc in range(OTHERS):
            known.add(f"pc{pc}", 100, 100, 0)
    assert known.lengths("new", 100, 0) == known.lengths("pc0", 100, 0) == []


def test_pcs_that_leave_at_once_do_not_make_the_plan_of_a_new_one_worthless() -> None:
    known = Hours()
    for pc in range(100):
        for _ in range(pc % 3):
            known.add(f"pc{pc}", 8 * HOUR, 62, 0)
    windows = Windows([PlannedWindow(0, 8 * HOUR)])
    assert [*known.really("new", windows)] == [*windows]
    assert min(known.lengths("new", 8 * HOUR, 0)) == 62, "but it may leave as soon"


def test_absurd_windows_are_left_out_and_the_oldest_are_forgotten() -> None:
    known = hours(no=(0, 100), never=(100, math.inf), nothing=(math.nan, 100), neither=(100, math.nan))
    assert known.kept("a") == []
    for lasted in range(101, WINDOWS + 102):
        known.add("a", 200, lasted, 0)
    assert known.kept("a")[1::3] == list(range(102, WINDOWS + 102))
    for pc in range(PCS):
        known.add(f"pc{pc}", 100, 100, 0)
    assert known.kept("a") == []


@pytest.mark.parametrize("planned", [20, 3600, math.inf])
def test_a_window_of_less_than_a_minute_teaches_nothing(planned: float) -> None:
    known = hours(one=(planned, 5), two=(planned, 59.9))
    assert known.lengths("a", planned, 0) == known.kept("a") == []
    assert known.habit("a", 0) == Habit(0)
    known.add("a", planned, 60, 0)
    assert known.kept("a") == [planned, 60, 0]


def test_what_is_kept_is_what_goes_on() -> None:
    before, after = hours(one=(300, 100), two=(20, 101)), Hours()
    after.restore("a", before.kept("a"))
    assert after.kept("a") == before.kept("a") == [300, 100, 0, 20, 101, 0]
    assert after.lengths("a", 5, 0) == [100, 101]
    assert list(after.names) == ["a"]
    after.forget()
    assert after.lengths("a", 5, 0) == [] == list(after.fresh)


def test_announced_windows_are_as_long_as_they_really_are() -> None:
    windows = Windows([PlannedWindow(100, 200), PlannedWindow(300, 350)])
    assert hours().really("a", windows) is windows
    assert hours(one=(200, 70), two=(80, 70)).really("a", windows) == (PlannedWindow(100, 170), PlannedWindow(300, 370))


def test_a_window_closes_after_now_and_as_announced_when_all_that_is_known_is_over() -> None:
    assert closings(100, 200, [10, 20, 30], now=115) == [120, 130]
    assert closings(100, 200, [10, 20, 30], now=130) == [200]
    assert closings(100, 200, [], now=210) == [200]


# --- in the scheduler ------------------------------------------------------------------------------------------------


def stays(grid: Grid, seconds: float, planned: bool = True) -> None:
    """A PC opens a window and is gone after so many seconds."""
    grid.pc("a", 1000)
    grid.wait(seconds)
    grid.leave("a", planned=planned)
    grid.wait(50)


def test_a_task_is_not_sent_to_a_pc_that_will_have_gone() -> None:
    grid = Grid(packing())
    for _ in range(OWN):
        stays(grid, 400)
    grid.pc("a", 1000)
    long, short = grid.tasks(600, 300)
    grid.expect(a=[short])
    assert grid.priority() == [long]


def test_a_worker_that_was_tried_for_seconds_gets_its_first_long_task_at_once() -> None:
    grid = Grid(packing())
    for _ in range(OWN):
        grid.pc("a")
        grid.wait(5)
        grid.leave("a", planned=True)
    grid.pc("a")
    (task,) = grid.tasks(600)
    grid.expect(a=[task])


def test_a_pc_that_is_still_there_is_believed_again_and_a_pass_is_due_then() -> None:
    grid = Grid(packing())
    for _ in range(OWN):
        stays(grid, 400)
    grid.pc("a", 1100)
    (task,) = grid.tasks(600)
    grid.expect()
    assert grid.scheduler.wakes_at == grid.now + 400
    grid.wait(400)
    grid.expect(a=[task])


def test_a_heartbeat_that_says_the_same_changes_nothing() -> None:
    grid = Grid(packing())
    for _ in range(OWN):
        stays(grid, 400)
    grid.pc("a", 1000)
    grid.wait(100)
    grid.refresh("a", 900)
    grid.refresh("a", 1500)
    assert grid.inside.slots.workers["a"].ends_at == grid.now + 300
    grid.leave("a")
    grid.wait(300)
    grid.expect()


def test_a_loss_is_no_closing_and_a_new_connection_no_opening() -> None:
    grid = Grid(packing())
    stays(grid, 400, planned=False)
    assert grid.inside.hours.kept("a") == []
    grid.pc("a", 1000)
    grid.wait(300)
    grid.tell(ev.WorkerJoined("a", 1, 700))
    grid.wait(200)
    grid.leave("a")
    assert grid.inside.hours.kept("a") == [1000, 500, 450]


def test_a_pass_ends_although_a_pc_has_outlasted_its_announcement_and_its_habits() -> None:
    grid = Grid(packing())
    for seconds in (1200.0, 1210.0, 1220.0):
        stays(grid, seconds)
    grid.pc("a", 1000)
    for seconds in (1215.0, 50.0):
        grid.wait(seconds)
        grid.expect()
    assert grid.inside.slots.workers["a"].ends_at < grid.now
    assert not grid.inside.timers.at[Timer.CLOSING]


# --- as it is told ----------------------------------------------------------------------------------------------------


def told(grid: Grid) -> HoursView:
    return worker_view(grid.inside, "a", grid.now, 1, 1).hours


def test_a_view_of_a_pc_says_how_it_keeps_its_hours_and_when_it_should_go() -> None:
    grid = Grid(packing())
    assert told(grid) == HoursView(Habit(0))
    for seconds in (400, 500):
        stays(grid, seconds)
    by_habit = Habit(2, lasts=(400, 500))
    assert told(grid) == HoursView(by_habit)
    grid.pc("a", 1000)
    assert told(grid) == HoursView(by_habit, (400, 500))
    grid.wait(450)
    assert told(grid) == HoursView(by_habit, (50, 50))
    grid.wait(100)
    assert told(grid) == HoursView(by_habit, (450, 450)), "it has outlasted all that, and goes when it says"
    grid.expect()
    assert told(grid) == HoursView(by_habit)


def test_a_pc_without_a_plan_that_outlasts_its_habits_may_stay() -> None:
    grid = Grid(packing())
    for _ in range(OWN):
        grid.pc("a")
        grid.wait(400)
        grid.leave("a", planned=True)
        grid.wait(50)
    grid.pc("a")
    assert told(grid) == HoursView(Habit(2, lasts=(400, 400)), (400, 400))
    grid.wait(500)
    assert told(grid) == HoursView(Habit(2, lasts=(400, 400)))


# --- hours of the week ------------------------------------------------------------------------------------------------


def nights(weeks: int, lasts: tuple[float, ...] = (14, 14, 14, 14, 62)) -> Hours:
    """A PC without a plan that is on from 18:00 on each working day, for so many hours, by day of the week."""
    known = Hours()
    for week in range(weeks):
        for day, hours_on in enumerate(lasts):
            known.add("a", math.inf, hours_on * HOUR, week * WEEK + day * DAY + 18 * HOUR)
    return known


def test_windows_of_an_hour_of_the_week_count_alone_once_they_are_enough() -> None:
    friday, monday, saturday = (10 * WEEK + day * DAY + 17.5 * HOUR for day in (4, 0, 5))
    known = nights(weeks=ENOUGH)
    assert known.lengths("a", math.inf, friday) == [62 * HOUR] * ENOUGH
    assert known.lengths("a", math.inf, monday) == [14 * HOUR] * ENOUGH
    assert known.habit("a", friday) == Habit(ENOUGH, lasts=(62 * HOUR, 62 * HOUR))
    assert len(known.lengths("a", math.inf, saturday)) == 5 * ENOUGH
    assert len(nights(weeks=ENOUGH - 1).lengths("a", math.inf, friday)) == 5 * (ENOUGH - 1)


def test_before_that_those_of_the_same_time_on_such_days_do() -> None:
    known = Hours()
    for day in range(3):
        known.add("a", math.inf, 3 * HOUR, day * DAY + 9 * HOUR)
        known.add("a", math.inf, 5 * HOUR, day * DAY + 13 * HOUR)
    assert known.lengths("a", math.inf, 3 * DAY + 9 * HOUR) == [3 * HOUR] * 3
    assert known.lengths("a", math.inf, 4 * DAY + 13 * HOUR) == [5 * HOUR] * 3
    assert len(known.lengths("a", math.inf, 5 * DAY + 13 * HOUR)) == 6, "Saturdays may be different"


def test_windows_of_an_hour_that_are_as_different_as_all_are_do_not_count_alone() -> None:
    known = Hours()
    for week in range(ENOUGH):
        known.add("a", math.inf, (2 + 20 * week) * HOUR, week * WEEK)
        known.add("a", math.inf, (3 + 21 * week) * HOUR, week * WEEK + DAY)
    assert len(known.lengths("a", math.inf, 0)) == 2 * ENOUGH


def test_plans_may_hold_at_some_hours() -> None:
    known = Hours()
    for week in range(ENOUGH):
        known.add("a", 10 * HOUR, 10 * HOUR, week * WEEK)
        known.add("a", 10 * HOUR, 2 * HOUR, week * WEEK + 3 * DAY)
    assert known.lengths("a", 8 * HOUR, 0) == []
    assert known.early("a", 0) is None
    assert known.lengths("a", 8 * HOUR, 3 * DAY) == [2 * HOUR] * ENOUGH
    assert known.early("a", 3 * DAY) == 8 * HOUR


def test_a_week_begins_where_the_last_one_ends_and_the_latest_windows_count() -> None:
    known = Hours()
    for week in range(LATEST + 5):
        known.add("a", math.inf, (10 + week) * HOUR, week * WEEK + WEEK - HOUR)
        known.add("a", math.inf, HOUR, week * WEEK + 3 * DAY)
    assert known.lengths("a", math.inf, WEEK) == [(10 + week) * HOUR for week in range(5, LATEST + 5)]


def test_a_long_task_goes_to_a_pc_that_stays_over_the_weekend() -> None:
    grid = Grid(packing())
    for week in range(ENOUGH + 1):
        for day in range(5):
            grid.wait(week * WEEK + day * DAY + 18 * HOUR - grid.now)
            grid.pc("a")
            if week == ENOUGH and day in (0, 4):
                (task,) = grid.tasks(40 * HOUR)
                grid.expect(**({"a": [task]} if day == 4 else {}))
                grid.cancel(task)
            grid.wait((14 if day < 4 else 62) * HOUR)
            grid.leave("a", planned=True)
