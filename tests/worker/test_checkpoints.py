"""When a worker asks its tasks to save, what it sends, and what it keeps until the broker has it."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.wire.saving import FIRST_COST_S, LEAD_LEAST_S
from deskgrid.worker import checkpoints as module
from deskgrid.worker.checkpoints import PERIOD_LEAST_S, PERIOD_MOST_S, UNREADABLE, Checkpoints, Times
from deskgrid.worker.run.checkpoint_files import CheckpointFiles
from deskgrid.worker.run.jobs import JobSaved
from tests.grid.fakes import FakeFiles

OPTIONS = wire.TaskOptions(checkpoint=True)
HOUR_S = 3600.0
KEY = (1, 7)


def work(checkpoint: int = 0, **changes: Any) -> wire.Work:
    return wire.Work(1, 7, 0, "d" * 64, 10.0, OPTIONS, checkpoint, b"")._replace(**changes)


@pytest.fixture
def files() -> FakeFiles:
    return FakeFiles()


@pytest.fixture
def kept(files: FakeFiles) -> Checkpoints:
    """The checkpoints of a worker that runs one attempt, since the moment 0."""
    made = Checkpoints("pc", files)
    assert made.begin(work(), 0.0) == b""
    return made


def saved(kept: Checkpoints, now: float, cost: float = 0.0, data: bytes = b"state") -> wire.Saved:
    message = kept.saved(JobSaved(0, *KEY, 0.5, now, cost, data), now)
    assert message is not None
    return message


def confirm(kept: Checkpoints, message: wire.Saved, now: float, number: int = 3) -> None:
    kept.kept(wire.CheckpointKept(message.task, message.serial, number, 0), now)


def times(kept: Checkpoints, closes: float, now: float) -> Times:
    found = kept.times(KEY, closes, now)
    assert found is not None
    return found


# --- when ------------------------------------------------------------------------------------------------------------


def test_a_piece_ends_shortly_before_the_window_closes(kept: Checkpoints) -> None:
    assert times(kept, 100.0, 0.0) == Times(100.0 - LEAD_LEAST_S, 100.0, True)


@pytest.mark.parametrize(("cost", "lead"), [(1.0, 10.0), (20.0, 45.0), (1000.0, 120.0)])
def test_the_more_saving_costs_the_earlier_a_piece_ends(kept: Checkpoints, cost: float, lead: float) -> None:
    confirm(kept, saved(kept, 10.0, cost / 2), 10.0 + cost / 2)
    assert times(kept, 200.0, 20.0).due == 200.0 - lead


@pytest.mark.parametrize(
    ("cost", "loss", "period"),
    [(0.0, 86_400.0, PERIOD_LEAST_S), (2.0, 10_000.0, 200.0), (100.0, 1e9, PERIOD_MOST_S)],
)
def test_a_task_saves_as_often_as_the_cost_and_the_losses_suggest(
    kept: Checkpoints, cost: float, loss: float, period: float
) -> None:
    kept.loss_s = loss
    confirm(kept, saved(kept, 10.0, cost), 10.0)
    assert times(kept, math.inf, 20.0) == Times(10.0 + period, math.inf, False)


def test_the_end_of_the_window_comes_first_if_it_is_sooner_and_also_if_the_task_is_late(kept: Checkpoints) -> None:
    period = math.sqrt(2.0 * FIRST_COST_S * kept.loss_s)
    assert times(kept, HOUR_S, 0.0) == Times(period, HOUR_S, False)
    assert times(kept, period + 5.0, 0.0) == Times(period - 5.0, period + 5.0, True)
    # It was due long ago, and the task has not asked: now the window ends.
    assert times(kept, HOUR_S, HOUR_S - 5.0) == Times(HOUR_S - 10.0, HOUR_S, True)


def test_a_closing_time_that_trembles_is_the_same(kept: Checkpoints) -> None:
    assert {times(kept, closes, 0.0) for closes in (100.0, 100.4, 99.7)} == {times(kept, 100.0, 0.0)}
    assert times(kept, 200.0, 0.0).closes == 200.0


def test_where_many_windows_close_together_pcs_save_at_different_times() -> None:
    found = set()
    for name in ("pc1", "pc2", "pc3"):
        kept = Checkpoints(name, FakeFiles())
        kept.begin(work(), 0.0)
        kept.spread_s = 60.0
        found.add(times(kept, 200.0, 0.0).due)
    assert len(found) == 3
    assert all(200.0 - LEAD_LEAST_S - 60.0 <= due <= 200.0 - LEAD_LEAST_S for due in found)


def test_an_attempt_that_is_not_checkpointable_has_no_such_times(kept: Checkpoints) -> None:
    assert kept.begin(work(task=2, options=wire.TaskOptions()), 0.0) is None
    assert kept.times((2, 7), 100.0, 0.0) is None
    assert kept.saved(JobSaved(0, 2, 7, None, 1.0, 1.0, b""), 1.0) is None


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_sent_again_until_the_broker_has_it_and_only_the_newest(kept: Checkpoints) -> None:
    first, second = saved(kept, 10.0), saved(kept, 20.0)
    confirm(kept, first, 21.0)
    assert kept.unkept == [second]
    confirm(kept, second, 22.0)
    assert kept.unkept == []
    confirm(kept, second, 23.0)


def test_an_end_with_a_result_makes_the_checkpoints_useless(kept: Checkpoints, files: FakeFiles) -> None:
    files.write(*KEY, b"state")
    confirm(kept, saved(kept, 10.0), 11.0)
    saved(kept, 20.0)
    kept.ended(KEY, goes_on=False)
    assert (kept.unkept, files.here, kept.running) == ([], {}, False)


def test_the_end_of_a_piece_leaves_its_checkpoint_for_the_next_one_here(kept: Checkpoints, files: FakeFiles) -> None:
    files.write(*KEY, b"state")
    message = saved(kept, 10.0)
    kept.ended(KEY, goes_on=True)
    assert kept.unkept == [message]
    confirm(kept, message, 11.0, number=3)
    again = work(3, number=9)
    assert kept.has(again)
    assert kept.begin(again, 20.0) == b"state"


def test_a_newer_checkpoint_of_the_task_takes_the_place_of_the_file(kept: Checkpoints, files: FakeFiles) -> None:
    files.write(*KEY, b"old")
    confirm(kept, saved(kept, 10.0), 11.0)
    kept.ended(KEY, goes_on=True)
    kept.begin(work(3, number=9), 20.0)
    files.write(1, 9, b"new")
    message = kept.saved(JobSaved(0, 1, 9, 0.6, 5.0, 0.0, b"new"), 25.0)
    assert message is not None
    confirm(kept, message, 26.0, number=4)
    assert files.here == {(1, 9): b"new"}


def test_a_checkpoint_that_the_broker_did_not_keep_is_not_gone_on_from(kept: Checkpoints) -> None:
    confirm(kept, saved(kept, 10.0), 11.0, number=0)
    assert not kept.has(work(3))


# --- what is fetched -------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_elsewhere_is_asked_for_once_on_each_connection(kept: Checkpoints) -> None:
    wanted = work(5, number=8)
    assert not kept.has(wanted)
    assert kept.lacks(wanted) == wire.Resume(1, 8, 5, 0)
    assert kept.lacks(wanted) is None
    kept.reconnected()
    assert kept.lacks(wanted) == wire.Resume(1, 8, 5, 0)
    kept.arrived(wire.Checkpoint(1, 8, 5, 0, 5, b"state"))
    assert kept.has(wanted)
    assert kept.begin(wanted, 0.0) == b"state"


def test_a_large_checkpoint_is_sent_part_by_part_and_from_its_start_on_a_new_connection(
    kept: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CHECKPOINT_BYTES", 4)
    first = saved(kept, 1.0, data=b"abcdefghi")
    assert (first.start, first.size, first.data) == (0, 9, b"abcd")
    assert kept.sending(1)
    second = kept.kept(wire.CheckpointKept(1, first.serial, 0, 4), 2.0)
    assert second is not None
    assert (second.start, second.size, second.data) == (4, 9, b"efgh")
    assert kept.kept(wire.CheckpointKept(1, first.serial + 1, 0, 4), 2.0) is None
    assert [each.data for each in kept.unkept] == [b"abcd"]
    last = kept.kept(wire.CheckpointKept(1, first.serial, 0, 8), 3.0)
    assert last is not None
    assert (last.start, last.data) == (8, b"i")
    assert not kept.sending(1)
    assert kept.unconfirmed == 1
    assert kept.kept(wire.CheckpointKept(1, first.serial, 3, 0), 4.0) is None
    assert kept.unconfirmed == 0


def test_a_large_checkpoint_is_asked_for_part_by_part(kept: Checkpoints) -> None:
    wanted = work(5, number=8)
    assert kept.lacks(wanted) == wire.Resume(1, 8, 5, 0)
    assert kept.arrived(wire.Checkpoint(1, 8, 5, 0, 5, b"sta")) == wire.Resume(1, 8, 5, 3)
    assert not kept.has(wanted)
    assert kept.lacks(wanted) is None
    assert kept.arrived(wire.Checkpoint(1, 8, 5, 3, 5, b"te")) is None
    assert kept.has(wanted)
    assert kept.begin(wanted, 0.0) == b"state"


def test_a_file_that_is_gone_is_fetched_again_and_one_that_fails_is_unreadable(
    kept: Checkpoints, files: FakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.lacks(work(5, number=8))
    kept.arrived(wire.Checkpoint(1, 8, 5, 0, 5, b"state"))
    monkeypatch.setattr(files, "read", lambda task, number: None)
    assert kept.begin(work(5, number=8), 0.0) == UNREADABLE
    files.drop(1, 8)
    assert not kept.has(work(5, number=8))


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_are_whole_and_the_oldest_go_first(tmp_path: Path) -> None:
    store = CheckpointFiles(tmp_path / "checkpoints", most=100)
    large = wire.payload_of(bytes(wire.LARGE_BYTES))
    store.write(1, 1, bytes(60))
    store.write(2, 1, bytes(30))
    store.write(1, 1, bytes(20))
    store.write(3, 1, bytes(60))
    assert [store.holds(task, 1) for task in (1, 2, 3)] == [True, False, True]
    assert store.read(1, 1) == bytes(20)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["1-1", "3-1"]
    store.drop(1, 1)
    assert store.read(1, 1) is None
    roomy = CheckpointFiles(tmp_path / "roomy")
    roomy.write(1, 1, large)
    found = roomy.read(1, 1)
    assert found is not None
    assert bytes(found) == bytes(large)


def test_a_file_grows_part_by_part_and_counts_when_it_is_whole(tmp_path: Path) -> None:
    store = CheckpointFiles(tmp_path / "checkpoints")
    store.write(1, 1, b"sta", 0, 5)
    assert not store.holds(1, 1)
    store.write(1, 1, b"?", 4, 5)  # the part before it is missing
    assert not store.holds(1, 1)
    store.write(1, 1, b"te", 3, 5)
    assert store.read(1, 1) == b"state"
    store.write(1, 1, b"new", 0, 3)
    assert store.read(1, 1) == b"new"


def test_what_a_task_wrote_is_copied_and_only_if_it_is_a_file(tmp_path: Path) -> None:
    store, place = CheckpointFiles(tmp_path / "checkpoints"), tmp_path / "left"
    place.write_bytes(large := b"x" * wire.LARGE_BYTES)
    taken = store.take(1, 1, place)
    assert taken is not None
    place.write_bytes(b"y" * wire.LARGE_BYTES)  # the task goes on writing
    assert bytes(taken) == large
    found = store.read(1, 1)
    assert found is not None
    assert bytes(found) == large
    assert store.take(1, 2, tmp_path / "nowhere") is None
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to(place)
        assert store.take(1, 2, tmp_path / "pipe") is None
        assert store.take(1, 2, tmp_path / "link") is None
    with place.open("wb") as file:
        file.truncate(wire.CHECKPOINT_LIMIT + 1)
    assert store.take(1, 2, place) is None
    assert not store.holds(1, 2)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can do it")
def test_a_second_name_for_a_file_of_somebody_else_is_no_checkpoint(tmp_path: Path) -> None:
    store, secret = CheckpointFiles(tmp_path / "checkpoints", uids=[65534]), tmp_path / "secret"
    secret.write_bytes(b"secret")
    secret.chmod(0o600)
    (tmp_path / "left").hardlink_to(secret)
    assert store.take(1, 1, tmp_path / "left") is None
    os.chown(secret, 65534, -1)
    assert store.take(1, 1, tmp_path / "left") == b"secret"


def test_a_disk_that_fills_up_leaves_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    store, place = CheckpointFiles(tmp_path / "checkpoints"), tmp_path / "left"
    place.write_bytes(bytes(1_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))  # as on such a disk, a longer write is cut short
    try:
        store.write(1, 1, bytes(1_000))
        taken = store.take(1, 2, place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert taken is None
    assert store.read(1, 1) is None
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_disk_that_fails_only_costs_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError("the disk is full")

    store = CheckpointFiles(tmp_path / "checkpoints")
    monkeypatch.setattr("deskgrid.worker.run.checkpoint_files.os.fsync", fails)
    store.write(1, 1, b"state")
    assert not store.holds(1, 1)
    (tmp_path / "left").write_bytes(b"state")
    assert store.take(1, 1, tmp_path / "left") is None
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert module.SAME_S > 0
