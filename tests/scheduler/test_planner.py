"""Plans for windows: the known intervals, the planning methods, the life of a plan, the search for a better one."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.model import (
    ANNOUNCED,
    OPEN_ENDED,
    WEEK_S,
    HabitualWindows,
    PlannedWindow,
    UpcomingWindows,
    Windows,
)
from deskgrid.scheduler.policies.planning import planner as planner_module
from deskgrid.scheduler.policies.planning.planner import (
    INTERVALS,
    FilledInterval,
    Interval,
    KnownWindows,
    Plan,
    Planner,
    SlotKey,
    longest_first,
    packed,
    renewed,
    soonest,
)
from deskgrid.scheduler.prediction.beyond import MOST

A, B = ("a", 0), ("b", 0)


def known(
    current: dict[SlotKey, Interval] | None = None,
    announced: dict[SlotKey, list[PlannedWindow]] | None = None,
    now: float = 0.0,
    reserve: float = 0.0,
) -> KnownWindows:
    coming = [UpcomingWindows(name, 1, Windows(its)) for (name, _), its in (announced or {}).items()]
    return KnownWindows(now, current or {}, coming, reserve)


def rooms_of(known: KnownWindows, least: float = 0.0, until: float = WEEK_S) -> list[Interval]:
    return [interval for interval in islice(known.intervals(least), 12) if interval.start < until]


@st.composite
def some_rooms(draw: st.DrawFn) -> list[Interval]:
    """Intervals of one to three slots, by their start; no two of a slot at once."""
    intervals = []
    for number in range(draw(st.integers(1, 3))):
        end = 0.0
        for _ in range(draw(st.integers(1, 4))):
            start = end + draw(st.integers(0, 5))
            end = start + draw(st.integers(1, 30))
            intervals.append(Interval(float(start), float(end), (f"pc{number}", 0)))
    return sorted(intervals)


RUNTIMES = st.lists(st.integers(1, 25).map(float), min_size=1, max_size=15).map(sorted)


def check_plan(plan: Plan, intervals: list[Interval], runtimes: list[float]) -> None:
    """Each task is in it once, every fill is below its interval, none is filled twice, and nothing ends later."""
    assert Counter(runtime for fill in plan.fills for runtime in fill.runtimes) == Counter(runtimes)
    for fill in plan.fills:
        assert fill.interval in intervals
        assert fill.runtimes
        assert fill.interval.start + sum(fill.runtimes) < fill.interval.end
        assert fill.interval.start + sum(fill.runtimes) <= plan.end
    assert len({fill.interval for fill in plan.fills}) == len(plan.fills)


# --- intervals ------------------------------------------------------------------------------------------------------


def test_rooms_are_what_is_left_of_open_windows_and_those_announced_by_their_start() -> None:
    view = known({A: Interval(3, 10, A)}, {A: [PlannedWindow(12, 20)], B: [PlannedWindow(5, 9)]}, now=3)
    assert rooms_of(view) == [Interval(3, 10, A), Interval(5, 9, B), Interval(12, 20, A)]
    assert rooms_of(known()) == []


def test_a_room_that_holds_not_even_the_shortest_task_is_none() -> None:
    view = known({A: Interval(3, 10, A)}, {A: [PlannedWindow(12, 18)], B: [PlannedWindow(5, 13)]}, now=3)
    assert rooms_of(view, least=6) == [Interval(3, 10, A), Interval(5, 13, B)]
    assert rooms_of(view, least=7) == [Interval(5, 13, B)]
    assert rooms_of(view, least=8) == []


def test_something_is_kept_free_in_each_announced_window_and_is_off_the_open_one_already() -> None:
    view = known({A: Interval(0, 9, A)}, {A: [PlannedWindow(10, 15)], B: [PlannedWindow(5, 14)]}, reserve=1)
    assert rooms_of(view) == [Interval(0, 9, A), Interval(5, 13, B), Interval(10, 14, A)]


def test_a_window_that_should_have_opened_is_a_room_from_now_on() -> None:
    assert rooms_of(known({}, {A: [PlannedWindow(5, 20)]}, now=8)) == [Interval(8, 20, A)]
    assert rooms_of(known({}, {A: [PlannedWindow(5, 8)]}, now=8)) == []


def test_windows_that_overlap_are_not_used_twice() -> None:
    view = known({A: Interval(0, 9, A)}, {A: [PlannedWindow(5, 20), PlannedWindow(15, 30)]}, reserve=1)
    assert rooms_of(view)[:3] == [Interval(0, 9, A), Interval(10, 19, A), Interval(20, 29, A)]


def test_a_window_within_the_one_before_is_no_room() -> None:
    view = known({A: Interval(0, 30, A)}, {A: [PlannedWindow(5, 20), PlannedWindow(40, 45)]})
    assert rooms_of(view)[:2] == [Interval(0, 30, A), Interval(40, 45, A)]


def test_a_window_after_one_within_another_starts_where_both_have_closed() -> None:
    view = known({}, {A: [PlannedWindow(5, 30), PlannedWindow(10, 20), PlannedWindow(25, 40)]})
    assert rooms_of(view)[:2] == [Interval(5, 30, A), Interval(30, 40, A)]


def test_announced_windows_are_expected_again_every_week() -> None:
    view = known({}, {A: [PlannedWindow(0, 10), PlannedWindow(12, 20)]}, reserve=1)
    weeks = [Interval(week * WEEK_S, week * WEEK_S + 9, A) for week in range(8)]
    assert rooms_of(view, least=8, until=OPEN_ENDED) == weeks
    assert rooms_of(view, until=OPEN_ENDED)[1::2] == [
        Interval(week.start + 12, week.start + 19, A) for week in weeks[:6]
    ]
    assert rooms_of(view, least=9) == []


def test_of_more_windows_than_can_be_announced_the_last_two_go_on() -> None:
    windows = [PlannedWindow(start, start + 4) for start in range(0, 10 * ANNOUNCED, 10)]
    many = islice(known({}, {A: [*windows[:-1], PlannedWindow(639, 645)]}, reserve=1).intervals(0.0), ANNOUNCED - 1, 66)
    assert list(many) == [Interval(639, 644, A), Interval(658, 663, A), Interval(677, 682, A)]


def test_of_windows_that_come_again_too_short_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "beyond", lambda known, period_s: pytest.fail("there is none"))
    long, short = (
        PlannedWindow(0, 50),
        [PlannedWindow(start, start + 4) for start in range(60, 60 + 10 * ANNOUNCED, 10)],
    )
    assert rooms_of(known({}, {A: [long, *short]}), least=10.0) == [Interval(0, 50, A)]
    touching = [PlannedWindow(start, start + 12) for start in range(0, 10 * ANNOUNCED, 10)]
    assert len(rooms_of(known({}, {A: touching}), least=11.0)) == 1
    assert rooms_of(known({}, {A: []})) == []


def test_no_more_windows_are_expected_than_a_search_can_look_at() -> None:
    view = KnownWindows(
        0.0, {}, [UpcomingWindows("a", 1, HabitualWindows([PlannedWindow(0, 5), PlannedWindow(6, 11)]))], 0.0
    )
    assert sum(1 for _ in view.intervals(0.0)) == MOST


def test_windows_of_a_worker_with_many_slots_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def noted(least: float, seconds: float) -> bool:
        asked.append(seconds)
        return fits(least, seconds)

    monkeypatch.setattr(planner_module, "fits", noted)
    windows = Windows([PlannedWindow(0, 5), PlannedWindow(10, 30)])
    view = KnownWindows(0.0, {("a", 1): Interval(0, 8, ("a", 1))}, [UpcomingWindows("a", 1000, windows)], 0.0)
    found = list(islice(view.intervals(7.0), 1001))
    assert found == [Interval(0, 8, ("a", 1)), *[Interval(10, 30, ("a", slot)) for slot in range(1000)]]
    assert len(asked) < 10


def test_windows_by_habit_go_on_as_they_began() -> None:
    view = KnownWindows(
        0.0, {}, [UpcomingWindows("a", 1, HabitualWindows([PlannedWindow(5, 10), PlannedWindow(12, 17)]))], 0.0
    )
    assert rooms_of(view)[:4] == [Interval(5 + 7 * n, 10 + 7 * n, A) for n in range(4)]


def test_a_window_without_end_does_not_come_again() -> None:
    assert rooms_of(known({}, {A: [PlannedWindow(5, 10), PlannedWindow(12, OPEN_ENDED)]})) == [
        Interval(5, 10, A),
        Interval(12, OPEN_ENDED, A),
    ]


def test_an_open_ended_window_is_a_room_without_end() -> None:
    view = known({A: Interval(3, OPEN_ENDED, A)})
    assert rooms_of(view, least=1e9) == [Interval(3, OPEN_ENDED, A)]


# --- ways to plan ----------------------------------------------------------------------------------------------------


def test_longest_first_gives_each_slot_the_longest_that_fits() -> None:
    intervals = [Interval(0, 10, A), Interval(0, 6, B), Interval(12, 22, A)]
    found, plan = longest_first(iter(intervals), [2.0, 3.0, 5.0, 9.0])
    # Of slots that are free at once the first interval is the first; 3 no longer fits behind 5, nor behind 9.
    assert plan == Plan(
        17.0,
        [
            FilledInterval(intervals[0], [9.0]),
            FilledInterval(intervals[1], [5.0]),
            FilledInterval(intervals[2], [2.0, 3.0]),
        ],
    )
    assert found == intervals


def test_longest_first_starts_no_room_before_a_slot_is_free() -> None:
    intervals = [Interval(0, 30, A), Interval(4, 30, B)]
    _, plan = longest_first(iter(intervals), [1.0, 2.0, 3.0, 4.0])
    assert plan == Plan(7.0, [FilledInterval(intervals[0], [3.0, 4.0]), FilledInterval(intervals[1], [1.0, 2.0])])


def test_longest_first_returns_the_rooms_that_begin_before_the_end() -> None:
    intervals = [
        Interval(0, 9, A),
        Interval(1, 3, B),
        Interval(4, 20, B),
        Interval(8, 20, ("c", 0)),
        Interval(10, 20, A),
    ]
    found, plan = longest_first(iter(intervals), [8.0])
    assert found == intervals[:3]
    assert plan == Plan(8.0, [FilledInterval(intervals[0], [8.0])])


def test_what_fits_nowhere_has_no_plan() -> None:
    assert longest_first(iter([]), [1.0]) == ([], None)
    assert longest_first(iter([Interval(0, 5, A)]), [5.0]) == ([Interval(0, 5, A)], None)
    assert longest_first(iter([Interval(0, 5, A)]), [3.0, 4.0])[1] is None


def endless() -> Iterator[Interval]:
    for number in range(10 * INTERVALS):
        yield Interval(10.0 * number, 10.0 * number + 9, A)


def test_no_plan_looks_at_more_rooms_than_it_may() -> None:
    intervals, plan = longest_first(endless(), [8.0] * INTERVALS)
    assert plan is not None
    assert len(intervals) == INTERVALS
    intervals, plan = longest_first(endless(), [8.0] * (INTERVALS + 1))
    assert (len(intervals), plan) == (INTERVALS, None)
    slots = [Interval(0.0, OPEN_ENDED, ("pc", slot)) for slot in range(2 * INTERVALS)]
    intervals, plan = longest_first(iter(slots), [8.0])
    assert (len(intervals), plan) == (INTERVALS, None)


@given(some_rooms(), RUNTIMES)
def test_plans_hold_each_task_once_and_no_room_too_much(intervals: list[Interval], runtimes: list[float]) -> None:
    used, plan = longest_first(iter(intervals), runtimes)
    assert used == intervals[: len(used)]
    if plan is None:
        return
    check_plan(plan, intervals, runtimes)
    assert plan.end == max(fill.interval.start + sum(fill.runtimes) for fill in plan.fills)
    assert used == [interval for interval in intervals if interval.start < plan.end]
    assert plan.end >= soonest(used, sum(runtimes)) - 1e-9
    for force in (False, True):
        for end in (plan.end, 0.9 * plan.end, 1.1 * plan.end):
            better = packed(intervals, runtimes, end, force=force)
            if better is not None:
                assert better.end == end
                check_plan(better, intervals, runtimes)
                assert end > soonest(intervals, sum(runtimes))


def test_packing_fills_the_shortest_room_first() -> None:
    intervals = [Interval(0, 20, A), Interval(0, 6, B)]
    assert packed(intervals, [2.0, 3.0, 9.0, 10.0], 20, force=False) == Plan(
        20, [FilledInterval(intervals[1], [2.0, 3.0]), FilledInterval(intervals[0], [9.0, 10.0])]
    )


def test_packing_cuts_rooms_at_the_end_that_is_tried_for() -> None:
    intervals = [Interval(0, 20, A), Interval(5, 20, B)]
    assert packed(intervals, [4.0, 9.0], 10, force=False) == Plan(
        10, [FilledInterval(intervals[1], [4.0]), FilledInterval(intervals[0], [9.0])]
    )
    assert packed(intervals, [4.0, 9.0], 9, force=False) is None
    assert packed(intervals, [5.0, 9.0], 10, force=False) is None
    assert packed(intervals, [4.0], 5, force=False) == Plan(5, [FilledInterval(intervals[0], [4.0])])
    assert packed(intervals, [4.0], 4, force=False) is None


def test_packing_by_force_gives_each_room_the_longest_task_that_it_can_hold() -> None:
    """Filling the first exactly, with 7 and 3, leaves three tasks of 9 for two intervals that hold one each."""
    intervals = [Interval(0, 10.5, A), Interval(0, 17.5, B), Interval(0, 15.5, ("c", 0))]
    runtimes = [3.0, 7.0, 9.0, 9.0, 9.0]
    assert packed(intervals, runtimes, 20, force=False) is None
    fills = [
        FilledInterval(intervals[0], [9.0]),
        FilledInterval(intervals[2], [3.0, 9.0]),
        FilledInterval(intervals[1], [7.0, 9.0]),
    ]
    assert packed(intervals, runtimes, 20, force=True) == Plan(20, fills)


def test_the_soonest_end_is_that_of_tasks_that_can_be_cut() -> None:
    intervals = [Interval(0, 10, A), Interval(5, 20, B), Interval(12, 20, A)]
    assert soonest(intervals, 3) == 3
    assert soonest(intervals, 5) == 5
    assert soonest(intervals, 9) == 7
    assert soonest(intervals, 15) == 10
    assert soonest(intervals, 16) == 11
    assert soonest(intervals, 19) == 13
    assert soonest(intervals, 33) == 20
    assert soonest(intervals, 34) == 20
    assert soonest([Interval(2, 3, A), Interval(8, 9, A)], 1.5) == 8.5
    assert soonest([Interval(2, OPEN_ENDED, A)], 40) == 42


# --- what becomes of a plan ------------------------------------------------------------------------------------------


def test_a_plan_renewed_has_what_still_waits() -> None:
    intervals = [Interval(0, 10, A), Interval(12, 20, A)]
    plan = Plan(18.0, [FilledInterval(intervals[0], [3.0, 6.0]), FilledInterval(intervals[1], [3.0])])
    later = [Interval(6, 10, A), Interval(12, 20, A)]
    assert renewed(plan, later, [3.0, 3.0]) == Plan(
        15.0, [FilledInterval(later[0], [3.0]), FilledInterval(later[1], [3.0])]
    )
    assert renewed(plan, later, [3.0]) == Plan(9.0, [FilledInterval(later[0], [3.0])])


def test_a_plan_without_all_the_tasks_is_none() -> None:
    intervals = [Interval(0, 10, A)]
    plan = Plan(9.0, [FilledInterval(intervals[0], [3.0, 6.0])])
    assert renewed(plan, intervals, [1.0, 3.0, 6.0]) is None
    assert renewed(plan, intervals, [3.0, 6.0, 6.0]) is None
    assert renewed(plan, intervals, [3.0, 6.0]) == plan


def test_a_plan_that_no_longer_fits_is_none() -> None:
    intervals = [Interval(0, 10, A), Interval(12, 20, B)]
    plan = Plan(19.0, [FilledInterval(intervals[0], [9.0]), FilledInterval(intervals[1], [7.0])])
    assert renewed(plan, [Interval(0, 9, A), intervals[1]], [7.0, 9.0]) is None
    assert renewed(plan, intervals[:1], [7.0, 9.0]) is None
    assert renewed(plan, intervals[1:], [7.0, 9.0]) is None
    later = [intervals[0], Interval(15, 23, B)]
    assert renewed(plan, later, [7.0, 9.0]) == Plan(
        22.0, [FilledInterval(later[0], [9.0]), FilledInterval(later[1], [7.0])]
    )


def test_what_was_planned_for_a_window_that_has_gone_goes_into_the_next_if_that_has_room() -> None:
    intervals = [Interval(0, 10, A), Interval(12, 20, A)]
    plan = Plan(19.0, [FilledInterval(intervals[0], [6.0]), FilledInterval(intervals[1], [7.0])])
    assert renewed(plan, intervals[1:], [6.0, 7.0]) is None
    assert renewed(plan, intervals[1:], [6.0]) == Plan(18.0, [FilledInterval(intervals[1], [6.0])])
    wider = [Interval(12, 26, A)]
    assert renewed(plan, wider, [6.0, 7.0]) == Plan(25.0, [FilledInterval(wider[0], [7.0, 6.0])])
    assert renewed(plan, [Interval(12, 25, A)], [6.0, 7.0]) is None


@given(some_rooms(), RUNTIMES, st.data())
def test_a_plan_that_holds_in_other_rooms_fits_them(
    intervals: list[Interval], runtimes: list[float], data: st.DataObject
) -> None:
    _, plan = longest_first(iter(intervals), runtimes)
    kept = data.draw(st.lists(st.sampled_from(intervals), unique=True))
    later = sorted(
        Interval(interval.start, interval.end + data.draw(st.integers(0, 9)), interval.slot) for interval in kept
    )
    if plan is not None and (again := renewed(plan, later, runtimes)) is not None:
        check_plan(again, later, runtimes)


def test_of_a_slot_the_room_that_ends_after_the_planned_one_starts_is_meant() -> None:
    intervals = [Interval(0, 10, A), Interval(12, 20, A)]
    plan = Plan(19.0, [FilledInterval(intervals[1], [7.0])])
    assert renewed(plan, intervals, [7.0]) == plan
    assert renewed(plan, [Interval(0, 12, A), intervals[1]], [7.0]) == plan
    assert renewed(plan, [Interval(0, 13, A), intervals[1]], [7.0]) == Plan(
        7.0, [FilledInterval(Interval(0, 13, A), [7.0])]
    )


@given(some_rooms(), RUNTIMES, st.data())
def test_a_plan_goes_on_to_hold_as_tasks_are_done(
    intervals: list[Interval], runtimes: list[float], data: st.DataObject
) -> None:
    _, plan = longest_first(iter(intervals), runtimes)
    if plan is None:
        return
    left = sorted(data.draw(st.lists(st.sampled_from(runtimes), max_size=len(runtimes))))
    again = renewed(plan, intervals, left)
    if Counter(left) <= Counter(runtimes):
        assert again is not None
        check_plan(again, intervals, left)
        assert again.end <= plan.end
    else:
        assert again is None


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [[], [3.0]])
def test_there_is_no_plan_for_no_tasks(before: list[float]) -> None:
    planner, view = Planner(), known({A: Interval(0, 10, A)})
    assert planner.look(view, before) == len(before)
    assert planner.look(view, []) == 0
    assert planner.best is None


def test_there_is_no_plan_where_the_windows_do_not_suffice() -> None:
    planner = Planner()
    assert planner.look(known({A: Interval(0, 10, A)}), [3.0, 8.0]) == 1
    assert planner.best is None


def hard() -> tuple[KnownWindows, list[float]]:
    """Longest first ends at 14: it puts 6 and 5 beside each other. 12 is best."""
    return known({A: Interval(0, OPEN_ENDED, A), B: Interval(0, OPEN_ENDED, B)}), [4.0, 4.0, 4.0, 6.0, 6.0]


def test_a_plan_is_bettered_with_each_look_until_it_is_near_the_best() -> None:
    view, runtimes = hard()
    _, first = longest_first(view.intervals(4.0), runtimes)
    assert first is not None
    assert first.end == 14
    planner, ends = Planner(), []
    for _ in range(12):
        assert planner.look(view, runtimes) == 2
        assert planner.best is not None
        ends.append(planner.best.end)
        check_plan(planner.best, list(view.current.values()), runtimes)
    assert ends == sorted(ends, reverse=True)
    assert ends[0] <= 14
    assert 12 <= ends[-1] <= 12.05


def test_ends_that_are_tried_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[float, bool]] = []

    def fails(intervals: list[Interval], runtimes: list[float], end: float, *, force: bool) -> None:
        tried.append((end, force))

    monkeypatch.setattr(planner_module, "packed", fails)
    view, runtimes = hard()
    planner = Planner()
    planner.look(view, runtimes)
    # The first time between 12, the bound, and 14, each end in one way.
    assert tried == [(end, False) for end in (13.0, 13.5, 13.75, 13.875)]
    tried.clear()
    planner.look(view, runtimes)
    # Then in both: from a tenth of the way back to the bound.
    failed = 13.875 - 0.1 * (13.875 - 12)
    assert tried == [((failed + 14) / 2, False), ((failed + 14) / 2, True)]


def test_nothing_is_tried_for_where_the_plan_cannot_be_bettered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "packed", lambda *_, **__: pytest.fail("it was tried for"))
    planner = Planner()
    planner.look(known({A: Interval(0, 20, A)}), [4.0, 5.0])
    assert planner.best == Plan(9.0, [FilledInterval(Interval(0, 20, A), [4.0, 5.0])])


def test_a_new_plan_is_made_when_the_old_one_no_longer_holds() -> None:
    planner = Planner()
    planner.look(known({A: Interval(0, 20, A)}), [4.0, 5.0])
    planner.look(known({B: Interval(0, 20, B)}), [4.0, 5.0])
    assert planner.best is not None
    assert [fill.interval.slot for fill in planner.best.fills] == [B]
    planner.look(known({B: Interval(0, 20, B)}), [2.0, 4.0, 5.0])
    assert planner.best is not None
    assert math.isclose(planner.best.end, 11.0)


def test_the_cost_of_a_look_is_the_rooms_it_took() -> None:
    habit = HabitualWindows([PlannedWindow(0, 9), PlannedWindow(10, 19)])
    view = KnownWindows(0.0, {}, [UpcomingWindows("a", 1, habit), UpcomingWindows("b", 1, habit)], 0.0)
    planner = Planner()
    assert planner.look(view, [8.0] * 50) == 50
    assert planner.look(view, [8.0] * 50) == 50
    assert planner.look(view, [8.0] * (INTERVALS + 1)) == INTERVALS
    assert planner.best is None
