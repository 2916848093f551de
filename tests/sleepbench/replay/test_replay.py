"""A past under other policies: small ones worked out by hand, and one that a policy made itself."""

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, RealWindow, SimulatedPC, Simulator, cycle
from deskgrid.sleepbench.history import HistoryError, read_history
from deskgrid.sleepbench.replay import DAY_S, WEEK_S, Again, Replay
from deskgrid.wire import Outcome, TaskOptions
from tests.sleepbench.replay.past import T0, Past, Ran


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    """A journal to be filled."""
    made = Past(tmp_path)
    yield made
    made.journal.db.close()


def ready(past: Past, home: Path, until: float, bags: tuple[str, ...] = (), since: float = -math.inf) -> Replay:
    past.ends(until)
    return Replay(read_history(home), bags, since)


# --- a past worked out by hand ---------------------------------------------------------------------------------------


@pytest.fixture
def evening(past: Past, tmp_path: Path) -> Replay:
    """One PC that is there for 20 s of every 30; in the record one task was killed by a departure, and ended late.

    Windows from 5, 35 and 65 s on. Tasks of 9, 12 and 4 s, all submitted at 5 s and predicted well.
    """
    for number, kills in ((0, 1), (1, 0), (2, 0)):
        opens = 5.0 + 30.0 * number
        past.window("pc1", opens, opens + 20.0, opens + 20.0, kills=kills, wasted_s=11.0 * kills)
    past.bag("a", 5.0, [Ran(9.0, 9.0, 14.0), Ran(12.0, 12.0, 47.0), Ran(4.0, 4.0, 51.0)])
    return ready(past, tmp_path, 95.0)


def test_what_really_happened_is_taken_from_the_record(evening: Replay) -> None:
    recorded = evening.recorded()
    assert recorded.row is not None
    assert recorded.row.makespan_min * 60.0 == 46.0
    assert (recorded.row.kills, recorded.row.planned_kills, recorded.row.wasted_s) == (1, 1, 11.0)
    # Windows: 20 s, and 16 s of the second until the last task ended. Work: 25 s.
    assert recorded.row.idle_s == 20.0 + 16.0 - 25.0 - 11.0
    assert recorded.turnarounds_s == {1: 46.0}


def test_fcfs_loses_the_task_to_the_departure_again(evening: Replay) -> None:
    played = evening.play("fcfs")
    assert played.row is not None
    assert (played.row.kills, played.row.planned_kills, played.row.wasted_s) == (1, 1, 11.0)
    assert played.row.makespan_min * 60.0 == 46.0
    assert played.turnarounds_s == {1: 46.0}


def test_pgs_puts_what_fits_into_the_first_window(evening: Replay) -> None:
    played = evening.play("pgs")
    assert played.row is not None
    assert (played.row.kills, played.row.wasted_s) == (0, 0.0)
    # 9 and 4 s, or 12 and 4 s, in the first window; what is left from 30 s on.
    assert played.row.makespan_min * 60.0 in (39.0, 42.0)


def test_the_lower_bound_is_when_the_windows_hold_the_work(evening: Replay) -> None:
    assert evening.lower_bound_s == 30.0 + (25.0 - 20.0)


def test_no_task_ends_sooner_than_it_takes(past: Past, tmp_path: Path) -> None:
    for name in ("pc1", "pc2"):
        past.window(name, 0.0, 500.0, how="broker")
    past.bag("a", 0.0, [Ran(2.0, 2.0, 2.0)])
    past.bag("b", 50.0, [Ran(10.0, 10.0, 60.0)])
    assert ready(past, tmp_path, 500.0).lower_bound_s == 60.0


def test_a_policy_that_was_announced_the_wrong_closing_suffers_for_it(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 10.0, 100.0, how="loss", kills=1, wasted_s=10.0)
    past.window("pc1", 20.0, 100.0, how="stop")
    past.bag("a", 0.0, [Ran(15.0, 15.0, 35.0)])
    played = ready(past, tmp_path, 100.0).play("pgs")
    assert played.row is not None
    assert (played.row.kills, played.row.planned_kills, played.row.wasted_s) == (1, 0, 10.0)
    assert played.row.makespan_min * 60.0 == 35.0


def test_bags_come_when_they_came_and_each_has_its_turnaround(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 500.0, how="broker")
    past.bag("late", 100.0, [Ran(3.0, 3.0, 103.0)])
    past.bag("early", 10.0, [Ran(5.0, 5.0, 25.0)], [Ran(6.0, 6.0, 21.0)])
    replay = ready(past, tmp_path, 500.0)
    assert replay.recorded().turnarounds_s == {1: 3.0, 2: 15.0}
    played = replay.play("fcfs")
    assert played.row is not None
    assert played.row.makespan_min * 60.0 == pytest.approx(93.0)
    assert played.turnarounds_s == {1: pytest.approx(3.0), 2: pytest.approx(11.0)}


def test_a_bag_without_predictions_is_predicted_by_its_longest_run(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 500.0, how="broker")
    past.bag("a", 0.0, [Ran(60.0, 5.0, 5.0)], [Ran(60.0, 9.0, 14.0), Ran(60.0, 1.0, 15.0)], predicted=False)
    replay = ready(past, tmp_path, 500.0)
    assert [list(arrival.runtimes) for arrival in replay.arrivals] == [[9.0], [9.0, 9.0]]
    assert [list(arrival.really()) for arrival in replay.arrivals] == [[5.0], [9.0, 1.0]]


def test_what_no_window_holds_is_said_instead_of_a_makespan(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 10.0, 10.0)
    past.bag("a", 0.0, [Ran(50.0, 5.0, 5.0), Ran(1.0, 1.0, 6.0)])
    replay = ready(past, tmp_path, 10.0)
    assert replay.play("fcfs").row is not None
    played = replay.play("pgs")
    assert (played.row, played.turnarounds_s) == (None, {})
    assert "1 of 2 tasks are placed nowhere" in played.stalled


def test_a_record_without_times_is_played_but_not_shown(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 100.0, how="broker")
    past.bag("a", 0.0, [Ran(5.0, 5.0, None), Ran(5.0, 5.0, 10.0)])
    replay = ready(past, tmp_path, 100.0)
    assert "times are not known" in replay.recorded().stalled
    assert replay.play("fcfs").row is not None


# --- which part of it ------------------------------------------------------------------------------------------------


@pytest.fixture
def week(past: Past) -> Past:
    past.window("old", 0.0, 90.0, how="loss", kills=3, wasted_s=5.0)
    past.window("pc1", 0.0, 500.0, how="broker")
    past.bag("early", 10.0, [Ran(5.0, 5.0, 15.0)])
    past.bag("late", 100.0, [Ran(3.0, 3.0, 103.0)])
    return past


def test_only_the_bags_asked_for_are_played(week: Past, tmp_path: Path) -> None:
    replay = ready(week, tmp_path, 500.0, bags=("late",))
    assert (replay.tasks, replay.start) == (1, T0 + 100.0)
    assert any("only the bags asked for" in sentence for sentence in replay.assumed())
    assert [pc.name for pc in replay.pcs] == ["pc1/1"]


def test_only_what_was_submitted_since_then_is_played(week: Past, tmp_path: Path) -> None:
    replay = ready(week, tmp_path, 500.0, since=T0 + 50.0)
    assert [bag.id for bag in replay.bags.values()] == ["late"]
    recorded = replay.recorded().row
    assert recorded is not None
    assert recorded.kills == 0
    assert recorded.makespan_min * 60.0 == pytest.approx(3.0)


def test_a_bag_that_is_not_there_is_refused(week: Past, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no bag other in this journal"):
        ready(week, tmp_path, 500.0, bags=("early", "other"))


def test_nothing_to_play_is_refused(past: Past, tmp_path: Path) -> None:
    past.bag("a", 0.0, [Ran(1.0, 0.0, 5.0, Outcome.CANCELLED)])
    with pytest.raises(HistoryError, match="nothing to replay"):
        ready(past, tmp_path, 10.0)


def test_tasks_without_a_pc_are_refused(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 5.0, how="loss")
    past.bag("a", 5.0, [Ran(1.0, 1.0, 5.0)])
    with pytest.raises(HistoryError, match="no worker's window"):
        ready(past, tmp_path, 10.0)


def test_what_was_assumed_is_said(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 40.0, how="stop")
    tasks = [Ran(1.0, 1.0, 5.0), Ran(1.0, 2.0, 6.0, Outcome.ERROR), Ran(1.0, 0.0, 7.0, Outcome.CANCELLED)]
    past.bag("a", 0.0, [*tasks, *[Ran(1.0, 0.0, None, None)] * 2], predicted=False)
    said = "\n".join(ready(past, tmp_path, 40.0).assumed())
    for part in ("every 40.0 s", "1 bag without predictions", "1 task failed", "1 task cancelled", "2 tasks not ended"):
        assert part in said


# --- when the PCs are there ------------------------------------------------------------------------------------------


def test_a_worker_with_more_slots_at_another_time_is_another_pc(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 20.0, 20.0, slots=2)
    past.window("pc1", 30.0, 60.0, 60.0, slots=4)
    past.bag("a", 10.0, [Ran(1.0, 1.0, 11.0)])
    found = {pc.name: (pc.slots, next(pc.timetable())) for pc in ready(past, tmp_path, 100.0).pcs}
    assert found == {
        "pc1/2": (2, RealWindow(0.0, 10.0, 10.0)),  # it was open at the first submission
        "pc1/4": (4, RealWindow(20.0, 50.0, 50.0)),
    }


def test_a_window_that_outlasted_its_announcement_is_announced_as_it_was(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 50.0, 8.0, how="stop")
    past.bag("a", 10.0, [Ran(1.0, 1.0, 11.0)])
    (pc,) = ready(past, tmp_path, 100.0).pcs
    assert next(pc.timetable()) == RealWindow(0.0, 40.0, 40.0)


def test_a_pc_that_was_stopped_when_all_was_done_is_there_for_a_policy_that_needs_longer(
    past: Past, tmp_path: Path
) -> None:
    past.window("pc1", 0.0, 21.0, how="stop")
    past.window("pc2", 0.0, 19.0, how="stop")
    past.bag("a", 0.0, [Ran(5.0, 5.0, 20.0)], [Ran(5.0, 5.0, 10.0)])
    found = {pc.name: next(pc.timetable()) for pc in ready(past, tmp_path, 30.0).pcs}
    assert found == {"pc1/1": RealWindow(0.0, math.inf, math.inf), "pc2/1": RealWindow(0.0, 19.0, math.inf)}


def test_windows_come_again_after_each_period() -> None:
    again = Again((RealWindow(0.0, 4.0, 5.0), RealWindow(6.0, 8.0, 7.0)), 10.0)
    assert [*islice(again(), 4)] == [
        RealWindow(0, 4, 5),
        RealWindow(6, 8, 7),
        RealWindow(10, 14, 15),
        RealWindow(16, 18, 17),
    ]


def test_a_window_that_reaches_into_the_next_period_comes_before_it() -> None:
    again = Again((RealWindow(0.0, 4.0, 4.0), RealWindow(5.0, 6.0, 5.5), RealWindow(8.0, 15.6, 15.6)), 10.0)
    assert [*islice(again(), 3, 5)] == [RealWindow(15.6, 16.0, 16.0), RealWindow(18.0, 25.6, 25.6)]


def test_a_window_for_ever_is_the_last() -> None:
    assert [*Again((RealWindow(0.0, 4.0, 4.0), RealWindow(5.0, math.inf, 9.0)), 10.0)()][1:] == [
        RealWindow(5.0, math.inf, 9.0)
    ]


@pytest.mark.parametrize(
    ("recorded", "period"),
    [(40.0, 40.0), (DAY_S - 1, DAY_S - 1), (1.2 * DAY_S, 2 * DAY_S), (WEEK_S, WEEK_S), (8 * DAY_S, 2 * WEEK_S)],
)
def test_a_long_record_comes_again_in_whole_days_or_weeks(
    past: Past, tmp_path: Path, recorded: float, period: float
) -> None:
    past.window("pc1", 0.0, 10.0, 10.0)
    past.bag("a", 0.0, [Ran(1.0, 1.0, 1.0)])
    assert ready(past, tmp_path, recorded).period == period


# --- a past that a policy made itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["pgs", "fcfs"])
def test_a_policy_does_again_what_it_did(past: Past, tmp_path: Path, policy: str) -> None:
    pcs = [SimulatedPC(f"pc{up:g}", cycle(up, 3.0)) for up in (17.0, 29.0, 53.0)]
    runtimes = [1.0 + 0.37 * place for place in range(40)]
    run = Simulator(make_policy(policy), pcs, [Arrival(runtimes)], trace=True).run()
    ends = {execution.task: execution.end for execution in run.executions if execution.done}
    past.bag("a", 0.0, [Ran(seconds, seconds, ends[task]) for task, seconds in enumerate(runtimes)])
    for name, span in run.spans:
        over = span.closes <= run.makespan_s
        past.window(
            name,
            span.opens,
            span.closes if over else run.makespan_s,
            span.closes,
            how="departure" if over else "broker",
        )
    played = ready(past, tmp_path, run.makespan_s).play(policy)
    assert played.row is not None
    assert played.row.makespan_min * 60.0 == pytest.approx(run.makespan_s)
    assert played.row.kills == run.counters.kills
    assert played.row.wasted_s == pytest.approx(run.counters.wasted_s)


# --- parallel tasks --------------------------------------------------------------------------------------------------


def test_parallel_tasks_need_all_of_their_slots(past: Past, tmp_path: Path) -> None:
    past.window("a", 0.0, 100.0, 100.0)
    past.window("b", 0.0, 100.0, 100.0)
    past.window("c", 0.0, 100.0, 100.0, slots=2)
    pair = TaskOptions(ranks=(2, 2), gang=True, labels=("gpu",))
    past.bag("gangs", 0.0, [Ran(20.0, 20.0, 20.0), Ran(20.0, 20.0, 40.0)], options=pair)
    past.bag("wide", 0.0, [Ran(30.0, 30.0, 70.0)], options=TaskOptions(slots=2))
    past.bag("either", 0.0, [Ran(1.0, 1.0, 1.0)], options=TaskOptions(ranks=(1, 2), gang=True, speedup=("amdahl", 0.1)))
    replay = ready(past, tmp_path, 100.0)
    assert replay.work_s == 2 * 2 * 20.0 + 2 * 30.0
    played = replay.play("packing")
    assert played.row is not None
    assert played.row.makespan_min * 60.0 >= replay.lower_bound_s >= 140.0 / 4
    assert played.row.tasks == 3
    said = list(replay.assumed())
    assert "1 task moldable: not played, because the journal does not say on how many slots" in said
    assert "parallel tasks need no labels and no memory, and reach all PCs of a site" in said


def test_of_moldable_tasks_alone_nothing_is_known(past: Past, tmp_path: Path) -> None:
    past.window("a", 0.0, 100.0, 100.0)
    past.bag("either", 0.0, [Ran(1.0, 1.0, 1.0)], options=TaskOptions(ranks=(1, 2), gang=True))
    with pytest.raises(HistoryError, match="moldable"):
        ready(past, tmp_path, 100.0)


def test_options_that_cannot_be_read_are_an_error(past: Past, tmp_path: Path) -> None:
    past.bag("a", 0.0, [Ran(1.0, 1.0, 1.0)])
    past.journal.db.execute("UPDATE bags SET options = x'ff'")
    with pytest.raises(HistoryError, match="options of the tasks of bag a cannot be read"):
        ready(past, tmp_path, 100.0)
