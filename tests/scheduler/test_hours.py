"""How PCs keep the hours that they announce, and when their windows are expected to close."""

import math

import pytest

from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Window, Windows
from deskgrid.scheduler.prediction.hours import OTHERS, OWN, PCS, WINDOWS, Habit, Hours
from deskgrid.scheduler.prediction.spread import closings
from deskgrid.scheduler.views.snapshot import HoursView, worker_view
from tests.scheduler.builders import Grid, packing


def hours(pc: str = "a", **windows: tuple[float, float]) -> Hours:
    """A PC with these windows, (planned, lasted)."""
    found = Hours()
    for window in windows.values():
        found.add(pc, *window)
    return found


def test_who_does_as_announced_is_taken_at_its_word() -> None:
    assert hours().lengths("a", 100) == []
    assert hours(one=(100, 100), two=(80, 80.5)).lengths("a", 70) == []


def test_who_always_goes_when_it_goes_is_expected_to_whatever_it_announces() -> None:
    known = hours(one=(300, 100), two=(20, 101), three=(150, 99))
    assert known.lengths("a", 1000) == known.lengths("a", math.inf) == [99, 100, 101]
    assert known.habit("a") == Habit(3, lasts=(99, 101))


def test_who_leaves_early_as_announced_is_expected_to_leave_as_early() -> None:
    known = hours(one=(200, 100), two=(1000, 510), three=(120, 62.4))
    assert known.lengths("a", 200) == [100, 102, 104]
    assert known.lengths("a", math.inf) == []
    assert known.habit("a") == Habit(3, early_s=100)
    assert known.early("a") == pytest.approx((100 + 490 + 57.6) / 3)


def test_a_pc_without_an_end_that_goes_home_is_expected_as_its_history_says() -> None:
    known = hours(one=(math.inf, 100), two=(math.inf, 120))
    assert known.lengths("a", math.inf) == [100, 120]
    assert known.early("a") is None
    assert known.habit("a") == Habit(2, lasts=(100, 120))


def test_what_is_usual_leaves_out_the_tenth_at_each_end() -> None:
    known = Hours()
    for lasted in (60, 100, 101, 102, 103, 104, 105, 106, 107, 900):
        known.add("a", math.inf, lasted)
    assert known.habit("a") == Habit(10, lasts=(100, 107))


def test_who_goes_as_announced_has_no_habit_of_its_own() -> None:
    assert hours().habit("a") == Habit(0)
    assert hours(one=(100, 80)).habit("a") == Habit(1)
    assert hours(one=(100, 100), two=(80, 80.5)).habit("a") == Habit(2)
    assert hours(one=(100, 100), two=(100, 100)).habit("a") == Habit(2)
    assert hours(one=(math.inf, 100), two=(math.inf, 1000), three=(math.inf, 70)).habit("a").early_s is None


def test_a_pc_of_which_little_is_known_is_judged_by_most_others() -> None:
    known = Hours()
    for pc in range(OTHERS):
        assert known.lengths("new", 10) == []
        known.add(f"pc{pc}", 100, 80)
    assert known.lengths("new", 10) == [8] * OTHERS
    assert known.lengths("new", math.inf) == []
    for pc in range(OTHERS):
        known.add(f"pc{pc}", 300, 81)
    known.add("new", 100, 70)
    assert known.lengths("new", 50) == [70], "most PCs go by habit"
    assert known.early("new") is None


def test_one_absurd_pc_changes_nothing_for_others() -> None:
    known = Hours()
    for _ in range(WINDOWS):
        known.add("absurd", 1e6, 60)
        for pc in range(OTHERS):
            known.add(f"pc{pc}", 100, 100)
    assert known.lengths("new", 100) == known.lengths("pc0", 100) == []


def test_absurd_windows_are_left_out_and_the_oldest_are_forgotten() -> None:
    known = hours(no=(0, 100), never=(100, math.inf), nothing=(math.nan, 100), neither=(100, math.nan))
    assert known.kept("a") == []
    for lasted in range(101, WINDOWS + 102):
        known.add("a", 200, lasted)
    assert known.kept("a")[1::2] == list(range(102, WINDOWS + 102))
    for pc in range(PCS):
        known.add(f"pc{pc}", 100, 100)
    assert known.kept("a") == []


@pytest.mark.parametrize("planned", [20, 3600, math.inf])
def test_a_window_of_less_than_a_minute_teaches_nothing(planned: float) -> None:
    known = hours(one=(planned, 5), two=(planned, 59.9))
    assert known.lengths("a", planned) == known.kept("a") == []
    assert known.habit("a") == Habit(0)
    known.add("a", planned, 60)
    assert known.kept("a") == [planned, 60]


def test_what_is_kept_is_what_goes_on() -> None:
    before, after = hours(one=(300, 100), two=(20, 101)), Hours()
    after.restore("a", before.kept("a"))
    assert after.kept("a") == before.kept("a") == [300, 100, 20, 101]
    assert after.lengths("a", 5) == [100, 101]
    assert list(after.pcs) == ["a"]
    after.forget()
    assert after.lengths("a", 5) == [] == list(after.fresh)


def test_announced_windows_are_as_long_as_they_really_are() -> None:
    windows = Windows([Window(100, 200), Window(300, 350)])
    assert hours().really("a", windows) is windows
    assert hours(one=(200, 70), two=(80, 70)).really("a", windows) == (Window(100, 170), Window(300, 370))


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
    assert grid.inside.hours.kept("a") == [1000, 500]


def test_a_pass_ends_although_a_pc_has_outlasted_its_announcement_and_its_habits() -> None:
    grid = Grid(packing())
    for seconds in (1200.0, 1210.0, 1220.0):
        stays(grid, seconds)
    grid.pc("a", 1000)
    for seconds in (1215.0, 50.0):
        grid.wait(seconds)
        grid.expect()
    assert grid.inside.slots.workers["a"].ends_at < grid.now
    assert grid.inside.expected == []


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
