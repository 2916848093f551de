"""Reading a journal: what it tells, and what cannot be read."""

import math
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid.broker.store.journal import NAME
from deskgrid.broker.store.schema import FORMAT
from deskgrid.sleepbench.history import History, HistoryError, PastWindow, read_history, whole
from deskgrid.wire import Outcome
from tests.live import ROOT
from tests.sleepbench.replay.past import T0, Past, Ran


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    """A journal that is open; whatever a test does not end is closed."""
    made = Past(tmp_path)
    yield made
    made.journal.db.close()


def stays(history: History, worker: str = "pc1") -> list[tuple[float, float]]:
    """When that worker's windows really were open."""
    return [(w.opened - T0, w.closed - T0) for w in whole(history.windows, history.until, T0 + 1000.0)[worker]]


def test_tasks_are_as_they_were_submitted_and_as_they_turned_out(past: Past, tmp_path: Path) -> None:
    past.bag("late", 50.0, [Ran(5.0, 6.0, 60.0)])
    past.bag("early", 10.0, [Ran(1.0, 2.0, 20.0), Ran(2.0, 3.0, 30.0, Outcome.ERROR)], [Ran(7.0, 8.0, 40.0)])
    past.ends(99.0)
    history = read_history(tmp_path)
    assert [(batch.bag.id, batch.arrived - T0, len(batch.tasks)) for batch in history.batches] == [
        ("early", 10.0, 2),
        ("early", 11.0, 1),
        ("late", 50.0, 1),
    ]
    assert history.batches[0].tasks == ((1.0, 2.0, T0 + 20.0, False), (2.0, 3.0, T0 + 30.0, True))
    assert history.until == T0 + 99.0


def test_the_prediction_is_the_one_a_task_was_submitted_with(past: Past, tmp_path: Path) -> None:
    past.bag("a", 0.0, [Ran(5.0, 6.0, 60.0)] * 2)
    past.journal.predict(0, [9.0, 9.0])
    past.ends(99.0)
    assert [task.predicted for task in read_history(tmp_path).batches[0].tasks] == [5.0, 5.0]


def test_one_prediction_may_stand_for_all(past: Past, tmp_path: Path) -> None:
    past.bag("a", 0.0, [Ran(5.0, 1.0, 60.0), Ran(5.0, 2.0, 60.0)])
    past.journal.db.execute("UPDATE batches SET runtimes = substr(runtimes, 1, 8)")
    past.ends(99.0)
    assert [task.predicted for task in read_history(tmp_path).batches[0].tasks] == [5.0, 5.0]


def test_what_was_cancelled_or_never_ended_is_counted_and_left_out(past: Past, tmp_path: Path) -> None:
    tasks = [Ran(1.0, 1.0, 5.0), Ran(1.0, 0.0, 6.0, Outcome.CANCELLED), Ran(1.0, 0.0, None, None)]
    past.bag("a", 0.0, tasks, [Ran(1.0, 0.0, None, None)])
    past.ends(99.0)
    history = read_history(tmp_path)
    assert [len(batch.tasks) for batch in history.batches] == [1]
    assert (history.bags[0].cancelled, history.bags[0].open) == (1, 2)


# --- windows ----------------------------------------------------------------------------------------------------------


def test_a_window_that_closed_as_planned_closed_when_it_was_planned(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 60.4, 60.0)
    past.window("pc1", 70.0, 90.0, 130.0, how="stop")
    past.window("pc1", 95.0, 100.0, 130.0, how="loss")
    past.window("pc1", 110.0, 119.0, 130.0)  # its plan was changed meanwhile
    past.ends(200.0)
    assert stays(read_history(tmp_path)) == [(0.0, 60.0), (70.0, 90.0), (95.0, 100.0), (110.0, 119.0)]


def test_a_window_that_outlasted_the_broker_is_one(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 20.0, 60.0, how="broker", kills=1, wasted_s=3.0)
    past.window("pc1", 25.0, 30.0, 60.5, how="broker")
    past.window("pc1", 33.0, 60.5, 60.5, kills=2, wasted_s=4.0)
    past.window("pc2", 0.0, 20.0, how="broker")
    past.window("pc2", 25.0, 80.0, how="stop")
    past.ends(200.0)
    history = read_history(tmp_path)
    assert stays(history) == [(0.0, 60.5)]
    assert stays(history, "pc2") == [(0.0, 80.0)]
    (window,) = whole(history.windows, history.until, T0 + 1000.0)["pc1"]
    assert (window.kills, window.wasted_s) == (3, 7.0)


@pytest.mark.parametrize(("session", "planned"), [("another", 60.0), ("s", 140.0), ("s", None)])
def test_a_window_after_a_restart_is_another_when_it_is_another_ones_or_for_another_time(
    past: Past, tmp_path: Path, session: str, planned: float | None
) -> None:
    past.window("pc1", 0.0, 20.0, 60.0, how="broker")
    past.window("pc1", 55.0, 58.0, planned, how="stop", session=session)
    past.ends(200.0)
    assert stays(read_history(tmp_path)) == [(0.0, 55.0), (55.0, 58.0)]


def test_a_window_that_nobody_saw_close_closed_as_planned(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 20.0, 60.0, how="broker")
    past.window("pc1", 100.0, 150.0, 900.0, how="broker")
    past.window("pc2", 0.0, 20.0, 15.0, how="broker")  # it was there still when its time was over
    past.ends(150.0)
    history = read_history(tmp_path)
    assert stays(history) == [(0.0, 60.0), (100.0, 900.0)]
    assert stays(history, "pc2") == [(0.0, 20.0)]


def test_an_open_ended_window_at_the_end_of_the_record_stays_for_ever(past: Past, tmp_path: Path) -> None:
    past.window("gone", 0.0, 20.0, how="broker")
    past.window("pc1", 0.0, 150.0, how="broker")
    past.window("killed", 0.0, None)
    past.ends(150.0)
    history = read_history(tmp_path)
    assert stays(history, "gone") == [(0.0, 20.0)]
    assert stays(history) == stays(history, "killed") == [(0.0, math.inf)]


def test_a_window_that_was_stopped_when_all_was_done_might_have_stayed(past: Past, tmp_path: Path) -> None:
    past.window("early", 0.0, 70.0, 90.0, how="stop")
    past.window("planned", 0.0, 80.0, 90.0, how="stop")
    past.window("open", 0.0, 81.0, how="stop")
    past.window("lost", 0.0, 82.0, 90.0, how="loss")
    past.window("open again", 0.0, 83.0, how="stop")
    past.window("open again", 85.0, 95.0, how="loss")
    past.ends(200.0)
    found = whole(read_history(tmp_path).windows, T0 + 200.0, T0 + 80.0)
    assert {name: windows[0].closed - T0 for name, windows in found.items()} == {
        "early": 70.0,
        "planned": 90.0,
        "open": math.inf,
        "lost": 82.0,
        "open again": 85.0,
    }


def test_a_clock_that_was_put_back_makes_no_windows_overlap(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 50.0, how="loss")
    past.window("pc1", 40.0, 60.0, how="stop")
    past.ends(150.0)
    assert stays(read_history(tmp_path)) == [(0.0, 40.0), (40.0, 60.0)]


def test_workers_are_told_apart(past: Past, tmp_path: Path) -> None:
    past.window("pc1", 0.0, 50.0, how="broker", session="one")
    past.window("pc2", 50.0, 60.0, how="broker", session="one")
    past.ends(60.0)
    found = whole(read_history(tmp_path).windows, T0 + 60.0, T0 + 60.0)
    assert {name: len(windows) for name, windows in found.items()} == {"pc1": 1, "pc2": 1}
    assert isinstance(found["pc1"][0], PastWindow)


# --- journals that cannot be read, or only just -----------------------------------------------------------------------


def refusal(home: Path) -> str:
    with pytest.raises(HistoryError) as error:
        read_history(home)
    reason = str(error.value)
    assert "\n" not in reason
    assert str(home) in reason
    return reason


def test_the_journal_of_a_broker_that_runs_is_refused(past: Past, tmp_path: Path) -> None:
    assert "a broker runs on" in refusal(tmp_path)
    assert "stop it first, or copy the folder" in refusal(tmp_path)


def test_a_copy_of_a_running_brokers_home_can_be_read(past: Past, tmp_path: Path) -> None:
    past.bag("a", 0.0, [Ran(1.0, 1.0, 5.0)])
    past.journal.commit()
    copy = shutil.copytree(tmp_path, tmp_path / "copy")
    assert len(read_history(copy).batches) == 1


def test_reading_changes_nothing_in_the_home(past: Past, tmp_path: Path) -> None:
    past.bag("a", 0.0, [Ran(1.0, 1.0, 5.0)])
    past.ends(9.0)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    read_history(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_the_journal_of_a_broker_that_was_killed_can_be_read_with_its_last_commit(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from tests.sleepbench.replay.past import Past, Ran
past = Past(Path(sys.argv[1]))
past.bag("a", 0.0, [Ran(1.0, 1.0, 5.0)])
past.window("pc1", 2.0, None)
past.journal.commit()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=False)
    history = read_history(tmp_path)
    assert len(history.batches) == 1
    assert [(window.how, window.closed - T0) for window in history.windows] == [("broker", 5.0)]


@pytest.mark.parametrize("found", [FORMAT + 1, FORMAT - 1])
def test_a_journal_of_another_format_is_refused(past: Past, tmp_path: Path, found: int) -> None:
    past.ends(9.0)
    with closing(sqlite3.connect(tmp_path / NAME)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (found,))
        db.commit()
    assert f"format {found}; this deskgrid reads {FORMAT}" in refusal(tmp_path)


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    assert "there is no journal in" in refusal(tmp_path)
    assert not list(tmp_path.iterdir())


def test_garbage_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"neither empty nor a database" * 100)
    assert "cannot read" in refusal(tmp_path)
