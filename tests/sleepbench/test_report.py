"""The tables: what stands in each row, and that they can be drawn where they are read."""

from dataclasses import replace

from rich.console import Console

from deskgrid.sleepbench.report import SUMMARY_CAPTION, RunGroup, clock, lines, summaries, summary, tables
from deskgrid.sleepbench.scenarios import Row

ROW = Row(3, "fcfs", 1, 0, 70.0, 60.25, 121.83, 240, 257, 256, 23935.1, 5120.54)


def test_a_run_is_shown_on_both_clocks_above_the_bound_and_the_papers_figure() -> None:
    assert list(lines([ROW], 0.02)) == [
        ("run 1", "1:24.0", "70.00", "257", "256", "478.7", "23935.1", "5120.5"),
        ("lower bound", "1:12.3", "60.25"),
        ("the paper", "2:26.2", "121.83"),
    ]


def test_several_runs_are_followed_by_their_mean_and_deviation() -> None:
    second = replace(ROW, run=2, makespan_min=72.0, kills=260, wasted_s=0.0)
    first, _, mean, deviation, *_ = lines([ROW, second], 0.02)
    assert first[0] == "run 1"
    assert mean == ("mean", "1:25.2", "71.00", "258.5", "256.0", "239.4", "11967.5", "5120.5")
    assert deviation == ("deviation", "0:01.7", "1.41")


def test_a_policy_without_a_figure_in_the_paper_is_shown_without_one() -> None:
    assert [line[0] for line in lines([replace(ROW, paper_min=None)], 0.02)] == ["run 1", "lower bound"]


def test_minutes_are_shown_as_minutes_and_seconds() -> None:
    shown = [clock(minutes) for minutes in (0.0, 0.9999, 1.5, 121.83)]
    assert shown == ["0:00.0", "1:00.0", "1:30.0", "121:49.8"]


def test_each_scenario_and_policy_has_its_own_table_that_fits_eighty_columns() -> None:
    rows = [ROW, replace(ROW, run=2), replace(ROW, policy="pgs")]
    console = Console(width=80)
    with console.capture() as capture:
        for table in tables(rows, 0.02):
            console.print(table)
    text = capture.get()
    assert text.count("lower bound") == 2
    assert "Scenario 3 under pgs, every time multiplied by 0.02" in text
    assert "…" not in text


# --- simulated -------------------------------------------------------------------------------------------------------


def test_many_runs_are_one_line_with_how_far_they_are_from_the_papers_figure() -> None:
    second = replace(ROW, run=2, makespan_min=72.0, kills=260, wasted_s=0.0)
    assert summary(RunGroup("table", "fcfs", [ROW, second])) == (
        *("fcfs", "71.00", "1.41", "121.83", "-41.7 %", "258.5", "11,968", "5,121"),
    )


def test_a_single_run_has_no_deviation_and_another_grid_no_figure() -> None:
    told = summary(RunGroup("table", "pgs", [replace(ROW, paper_min=None)]))
    assert told == ("pgs", "70.00", "", "", "", "257.0", "23,935", "5,121")


def test_each_title_has_a_table_with_its_bound_and_only_the_last_explains_them() -> None:
    groups = [RunGroup("one", "pgs", [ROW]), RunGroup("one", "fcfs", [ROW]), RunGroup("two", "pgs", [ROW, ROW])]
    console = Console(width=80)
    with console.capture() as capture:
        for table in (found := list(summaries(groups))):
            console.print(table)
    assert [(table.title, table.row_count) for table in found] == [("one", 3), ("two", 2)]
    assert [table.caption for table in found] == [None, SUMMARY_CAPTION]
    assert capture.get().count("lower bound") == 2
    assert "…" not in capture.get()
