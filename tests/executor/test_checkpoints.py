"""A checkpointable task in a real process: it is told when to save, its piece ends, and it goes on from there."""

import importlib
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import msgpack
import pytest

from deskgrid import File, checkpoint
from deskgrid.wire import LARGE_BYTES, Outcome, Payload, TaskOptions
from deskgrid.worker.run import child
from deskgrid.worker.run.child import CHECKPOINT, Frames, Piece, TaskModules, Unreadable, frame
from deskgrid.worker.run.jobs import Job, JobSaved
from deskgrid.worker.run.nursery import PROGRAM
from deskgrid.worker.run.process import NOT_KEPT
from tests.executor.rig import HERE, Rig, call, child_finder, error, python_template, value
from tests.waiting import eventually

NEVER = float("inf")
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


def began(rig: Rig, digest: str, payload: bytes, saved: Payload = b"", task: int = 1) -> None:
    """Begin a checkpointable task, which may have ended by now."""
    rig.executor.run(0, [Job(task, 1, digest, payload, TaskOptions(checkpoint=True), saved)])

    def runs() -> bool:
        rig.poll()
        return bool(rig.ended or rig.executor.running(time.monotonic()))

    assert eventually(runs)


def due_now(rig: Rig, *, last: bool) -> None:
    now = time.monotonic()
    rig.executor.tell_times(0, now, now + 60.0, last)


def saved(rig: Rig) -> JobSaved:
    """The next checkpoint."""
    found: list[JobSaved] = []

    def some() -> bool:
        rig.poll()
        found.extend(rig.executor.saved())
        return bool(found)

    assert eventually(some)
    (one,) = found
    return one


def counts(until: int) -> object:
    """Counts, and saves how far it is, until it is told to stop."""
    import time

    from deskgrid import checkpoint

    state = checkpoint.load({"count": 0, "left": 0.0})
    begun = state["count"]
    while state["count"] < until:
        state["count"] += 1
        state["left"] = checkpoint.seconds_left()
        checkpoint.save(state, progress=state["count"] / until if until < 1e12 else None)
        time.sleep(0.001)
    return begun, state


def endless(rig: Rig, **more: Any) -> str:
    digest = rig.know(python_template(counts))
    began(rig, digest, call(10**12), **more)
    return digest


def test_a_task_saves_once_for_each_time_that_it_is_due_and_goes_on(rig: Rig) -> None:
    endless(rig)
    due_now(rig, last=False)
    first = saved(rig)
    assert (first.slot, first.task, first.number, first.progress) == (0, 1, 1, None)
    assert 0.0 <= first.cost <= first.elapsed < 60.0
    due_now(rig, last=False)
    second = saved(rig)
    assert second.elapsed > first.elapsed
    assert not rig.ended
    assert 55.0 < pickle.loads(Piece(_key(second.data), bytes(second.data), (), print, 0)._body())["left"] <= 60.0


def tells(_: int) -> float:
    """How long the window lasts, asked at once."""
    from deskgrid import checkpoint

    return checkpoint.seconds_left()


def test_a_task_knows_from_its_beginning_when_the_window_closes(rig: Rig) -> None:
    digest = rig.know(python_template(tells))
    rig.executor.tell_times(0, NEVER, time.monotonic() + 600.0, False)
    began(rig, digest, call(0))
    (ended,) = rig.until(1)
    assert 500.0 < pickle.loads(bytes(ended.payload)) <= 600.0


def _key(data: Payload) -> bytes:
    return bytes(data).split(b"\n")[1]


def test_the_last_checkpoint_of_a_window_ends_the_piece_and_the_process_goes_on(rig: Rig) -> None:
    pid = rig.pid()
    digest = endless(rig)
    due_now(rig, last=True)
    one = saved(rig)
    (ended,) = rig.until(1)
    assert (ended.outcome, bytes(ended.payload)) == (Outcome.PIECE, b"")
    began(rig, digest, call(10**12), one.data, task=2)
    due_now(rig, last=True)
    two = saved(rig)
    (ended,) = rig.until(1)
    counted = [pickle.loads(Piece(_key(s.data), bytes(s.data), (), print, 0)._body())["count"] for s in (one, two)]
    assert 0 < counted[0] < counted[1]
    assert rig.pid() == pid


def test_a_task_that_ends_in_time_returns_its_value(rig: Rig) -> None:
    digest = rig.know(python_template(counts))
    began(rig, digest, call(300))
    due_now(rig, last=False)
    one = saved(rig)
    assert one.progress is not None
    assert 0.0 < one.progress < 1.0
    (ended,) = rig.until(1)
    assert value(ended)[0] == 0
    began(rig, digest, call(300), one.data, task=2)
    (ended,) = rig.until(1)
    assert value(ended)[0] > 0


def test_a_large_checkpoint_travels_there_and_back(rig: Rig) -> None:
    def grows(size: int) -> object:
        from deskgrid import checkpoint

        state = checkpoint.load(b"")
        while not state:
            checkpoint.save(bytes(size))
        return len(state)

    digest = rig.know(python_template(grows))
    began(rig, digest, call(3 * LARGE_BYTES))
    due_now(rig, last=True)
    one = saved(rig)
    rig.until(1)
    began(rig, digest, call(3 * LARGE_BYTES), one.data, task=2)
    (ended,) = rig.until(1)
    assert value(ended) == 3 * LARGE_BYTES


def test_a_checkpoint_over_the_limit_is_the_error_of_the_task() -> None:
    piece = Piece(b"key", b"", [0.0, NEVER, 0.0], print, limit=1000)
    with pytest.raises(child.TaskFailure, match="the limit is 1,000") as raised:
        piece.save(bytes(2000), 0.5)
    assert raised.value.kind == "CheckpointTooLarge"


def test_a_checkpoint_that_is_too_large_for_the_pipe_is_a_file_which_is_gone_when_we_have_it(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(result_limit=1000)

    def grows(size: int) -> int:
        import time

        from deskgrid import checkpoint

        state = checkpoint.load(bytes(size))
        while len(state) < 2 * size:
            checkpoint.save(state, progress=0.5)
            time.sleep(0.001)
        return len(state)

    digest = rig.know(python_template(grows))
    began(rig, digest, call(2 * LARGE_BYTES))
    due_now(rig, last=True)
    one = saved(rig)
    assert len(one.data) > 2 * LARGE_BYTES
    (ended,) = rig.until(1)
    assert ended.outcome is Outcome.PIECE
    assert list((rig.executor.folder.path / child.TASKS).iterdir()) == []
    began(rig, digest, call(LARGE_BYTES), one.data, task=2)
    (ended,) = rig.until(1)
    assert value(ended) == 2 * LARGE_BYTES


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="takes a folder away, as root")
@pytest.mark.parametrize("last", [False, True])
def test_a_checkpoint_for_which_there_is_no_room_is_lost_and_its_piece_has_no_room(
    rigs: Callable[..., Rig], last: bool
) -> None:
    rig = rigs(result_limit=1000)

    def large() -> bool:
        import time

        from deskgrid import checkpoint

        while not checkpoint.save(bytes(2000)):
            time.sleep(0.001)
        return True

    began(rig, rig.know(python_template(large)), call())
    (rig.executor.folder.path / child.TASKS).rmdir()
    due_now(rig, last=last)
    (ended,) = rig.until(1)
    assert rig.executor.saved() == []
    assert ended.outcome is (Outcome.NO_ROOM if last else Outcome.DONE)
    if last:
        assert error(ended)[:2] == ("NoRoom", NOT_KEPT)
        began(rig, rig.know(python_template(lambda: 1)), call(), task=2)
        (ended,) = rig.until(1)
        assert value(ended) == 1


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_a_progress_that_is_none_is_an_error(rig: Rig, progress: float) -> None:
    def wrong(progress: float) -> None:
        from deskgrid import checkpoint

        while True:
            checkpoint.save(0, progress)

    began(rig, rig.know(python_template(wrong)), call(progress))
    due_now(rig, last=False)
    (ended,) = rig.until(1)
    assert error(ended)[0] == "ValueError"


def test_a_state_of_the_users_own_class_is_saved_with_its_code(rig: Rig) -> None:
    def task() -> object:
        from deskgrid import checkpoint

        class Mine:
            count = 3

        state: Any = checkpoint.load(None)
        while state is None:
            checkpoint.save(Mine())
        return state.count

    digest = rig.know(python_template(task))
    began(rig, digest, call())
    due_now(rig, last=True)
    one = saved(rig)
    rig.until(1)
    began(rig, digest, call(), one.data, task=2)
    (ended,) = rig.until(1)
    assert value(ended) == 3


@pytest.mark.parametrize("harm", ["cut", "changed", "other code", "garbage", "no pickle"])
def test_a_checkpoint_that_cannot_be_used_ends_the_attempt_as_unreadable(rig: Rig, harm: str) -> None:
    digest = endless(rig)
    due_now(rig, last=True)
    data = bytes(saved(rig).data)
    rig.until(1)
    key = _key(data)
    harmed = {
        "cut": data[:-1],
        "changed": data[:-1] + bytes([data[-1] ^ 1]),
        "other code": data.replace(key, b"0" * 64 + key[64:]),
        "garbage": b"?",
        "no pickle": b"\n".join([CHECKPOINT, key, b"00000000", b""]),
    }[harm]
    began(rig, digest, call(10**12), harmed, task=2)
    (ended,) = rig.until(1)
    assert ended.outcome is Outcome.UNREADABLE


def test_outside_a_checkpointable_task_nothing_is_saved(rig: Rig) -> None:
    assert checkpoint.load("default") == "default"
    assert not checkpoint.save("state", progress=0.5)
    assert not checkpoint.due()
    assert checkpoint.seconds_left() == NEVER
    assert value(rig.call(counts, 3))[0] == 0
    digest = endless(rig)
    due_now(rig, last=True)
    saved(rig)
    rig.until(1)
    (ended,) = rig.run(digest, call(3))
    assert value(ended)[1]["left"] == NEVER


def test_a_task_can_ask_whether_it_is_due(rig: Rig) -> None:
    def asks() -> object:
        from deskgrid import checkpoint

        while not checkpoint.due():
            pass
        return checkpoint.save(1), checkpoint.due(), checkpoint.save(2)

    began(rig, rig.know(python_template(asks)), call())
    due_now(rig, last=False)
    (ended,) = rig.until(1)
    assert value(ended) == (True, False, False)


@pytest.mark.skipif(sys.platform == "win32", reason="no forks there")
def test_a_copy_of_the_process_does_not_save(rig: Rig) -> None:
    def forks() -> object:
        import os

        from deskgrid import checkpoint

        while not checkpoint.due():
            pass
        if os.fork() == 0:
            os._exit(7 if checkpoint.save(1) or checkpoint.due() else 0)
        return os.waitstatus_to_exitcode(os.wait()[1])

    began(rig, rig.know(python_template(forks)), call())
    due_now(rig, last=False)
    (ended,) = rig.until(1)
    assert value(ended) == 0


def test_a_process_that_reports_checkpoints_of_others_is_killed(rig: Rig) -> None:
    find = child_finder()

    def forges(report: list[object]) -> None:
        import time

        find()._tell(report)

        time.sleep(60)

    digest = rig.know(python_template(forges))
    reports: list[list[object]] = [
        ["saved", 99, 1, 0.5, 1.0, 1.0, b"mine"],
        ["saved", 1, 1, 2.0, 1.0, 1.0, b""],
        ["saved", 1, 1, 0.5, -1.0, 1.0, b""],
        ["saved", 1, "1", 0.5, 1.0, 1.0, b""],
        ["saved", 1, 1, 0.5, 1.0, 1.0, "text"],
        ["saved", 1, 1, 0.5, 1.0, 1.0],
    ]
    for report in reports:
        began(rig, digest, call(report))
        (ended,) = rig.until(1)
        assert ended.outcome is Outcome.CRASH
        assert not rig.executor.saved()


def test_an_ordinary_task_cannot_save(rig: Rig) -> None:
    find = child_finder()

    def forges() -> None:
        find()._tell(["saved", 0, 1, 0.5, 1.0, 1.0, b"mine"])

    assert rig.call(forges).outcome is Outcome.CRASH


# --- commands --------------------------------------------------------------------------------------------------------

# Counts in a file until it is told to save; says what it has counted when it has counted enough.
COUNTS = """
import pathlib, signal, sys, time
state = pathlib.Path("state/count")
count = int(state.read_text()) if state.exists() else 0
def save(*_):
    state.parent.mkdir(exist_ok=True)
    state.write_text(str(count))
    pathlib.Path("other").write_text("not saved")
    sys.exit(85)
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
while count < 60 or not state.exists():
    count += 1
    time.sleep(0.01)
print(count, pathlib.Path("other").exists())
"""


def saving_template(*argv: str, exit_code: int = 85, patterns: tuple[str, ...] = ("state/*",)) -> bytes:
    saves = {"checkpoint": list(patterns), "signal": "USR1", "exit": exit_code}
    return bytes(msgpack.packb({"kind": "command", "argv": argv} | saves))


def begun_counting(rig: Rig, digest: str, data: Payload = b"", task: int = 1) -> None:
    began(rig, digest, b"", data, task)
    (process,) = rig.executor.processes
    assert eventually(lambda: b"ready" in process.captured()[0])


@needs_signals
def test_a_command_saves_its_files_when_it_gets_the_signal_and_goes_on_from_them(rig: Rig) -> None:
    digest = rig.know(saving_template(sys.executable, "-c", COUNTS))
    begun_counting(rig, digest)
    due_now(rig, last=True)
    one = saved(rig)
    (ended,) = rig.until(1)
    assert ended.outcome is Outcome.PIECE
    begun_counting(rig, digest, one.data, task=2)
    (ended,) = rig.until(1)
    counted, other = value(ended).split()[1:]
    assert int(counted) >= 60
    assert other == "False", "a file that no pattern names is not there"
    folders = rig.executor.folder.path / child.TASKS
    assert not [path for path in folders.rglob("*") if path.is_file()]


@needs_signals
@pytest.mark.parametrize("options", [{"exit_code": 84}, {"patterns": ("nothing/*",)}])
def test_another_exit_code_or_no_file_is_a_failure(rig: Rig, options: dict[str, Any]) -> None:
    digest = rig.know(saving_template(sys.executable, "-c", COUNTS, **options))
    begun_counting(rig, digest)
    due_now(rig, last=True)
    (ended,) = rig.until(1)
    assert ended.outcome is Outcome.ERROR
    assert "exit code 85" in error(ended)[1]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "a/../../b", "", "a\\b"])
def test_a_pattern_that_leaves_the_folder_is_refused(rig: Rig, pattern: str) -> None:
    with pytest.raises(ValueError, match="place"):
        rig.know(saving_template("true", patterns=(pattern,)))


def test_packed_files_come_back_and_links_do_not_lead_out(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "state" / "deep").mkdir(parents=True)
    new.mkdir()
    (old / "state" / "deep" / "ä b").write_bytes(b"content")
    (old / "state" / "link").symlink_to("/etc/passwd")
    packed = child.pack_files(old, ["state/*/*"], {})
    assert child.pack_files(old, ["state"], {}) == child.pack_files(old, ["state/*"], {}) == packed
    child.unpack_files(packed, new)
    assert [path.relative_to(new).as_posix() for path in new.rglob("*") if path.is_file()] == ["state/deep/ä b"]
    child.unpack_files(b"", new)
    child.unpack_files("not bytes", new)
    assert child.pack_files(old, ["none/*"], {}) == b""
    with pytest.raises(Unreadable):
        child.unpack_files(b"garbage", new)


def test_empty_folders_are_saved_with_the_files_beside_them(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "state" / "empty" / "inner").mkdir(parents=True)
    (old / "none").mkdir()
    (new / "state" / "empty").mkdir(parents=True)
    assert child.pack_files(old, ["none", "state"], {}) == b"", "there is no file"
    (old / "state" / "file").touch()
    child.unpack_files(child.pack_files(old, ["state"], {}), new)
    assert {path.relative_to(new).as_posix() for path in new.rglob("*")} == {
        "state",
        "state/empty",
        "state/empty/inner",
        "state/file",
    }


def test_the_inputs_of_a_command_are_saved_only_if_it_replaced_them_and_are_replaced_again(tmp_path: Path) -> None:
    old, new, stored = (tmp_path / name for name in ("old", "new", "stored"))
    for folder in (old, new, stored):
        folder.mkdir()
    for name in ("kept", "replaced"):
        (stored / name).write_text("input")
        (stored / name).chmod(0o444)
        os.utime(stored / name, (1e9, 1e9))
        for folder in (old, new):
            os.link(stored / name, folder / name)
    inputs = {path: path.stat().st_mtime_ns for path in old.iterdir()}
    (old / "replaced").unlink()
    (old / "replaced").write_text("state")
    packed = child.pack_files(old, ["*"], inputs)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["replaced"]
    child.unpack_files(packed, new)
    assert [(new / name).read_text() for name in ("kept", "replaced")] == ["input", "state"]
    assert (stored / "replaced").read_text() == "input", "other tasks have it"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "{}/outside", "link/outside", ".", ".."])
def test_a_checkpoint_that_leads_out_of_the_folder_changes_nothing_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    packed, evil = io.BytesIO(), tarfile.TarInfo(name.format(tmp_path))
    for evil.type in (tarfile.REGTYPE, tarfile.DIRTYPE):
        packed.seek(0)
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.addfile(evil, io.BytesIO())
        with pytest.raises(Unreadable):
            child.unpack_files(packed.getvalue(), tmp_path / "folder")
    assert (tmp_path / "outside").read_text() == "mine"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_checkpoint_has_nothing_but_files_and_folders(tmp_path: Path, kind: bytes) -> None:
    packed, odd = io.BytesIO(), tarfile.TarInfo("odd")
    odd.type, odd.linkname = kind, "odd"
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(odd)
    with pytest.raises(Unreadable):
        child.unpack_files(packed.getvalue(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes there")
def test_files_come_back_with_their_times_and_whether_they_are_programs_also_links_to_one_file(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (old / "program").write_text("#!/bin/sh")
    (old / "program").chmod(0o777)
    os.utime(old / "program", (1e9, 1e9))
    (old / "same").hardlink_to(old / "program")
    child.unpack_files(child.pack_files(old, ["*"], {}), new)
    for name in ("program", "same"):
        state = (new / name).stat()
        assert (state.st_mode & 0o777, state.st_mtime, state.st_size) == (0o755, 1e9, 9)


def test_no_python_needs_a_filter_to_unpack_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)  # Python 3.11.2 of Debian 12 has none
    (tmp_path / "state").write_text("x")
    packed = child.pack_files(tmp_path, ["*"], {})
    (tmp_path / "state").unlink()
    child.unpack_files(packed, tmp_path)
    assert (tmp_path / "state").read_text() == "x"


# --- without deskgrid ------------------------------------------------------------------------------------------------


def test_the_module_is_found_where_deskgrid_is_not_installed() -> None:
    top, module = (TaskModules.find_spec(name) for name in ("deskgrid", "deskgrid.checkpoint"))
    assert top is not None
    assert top.submodule_search_locations == []
    assert module is not None
    assert module.loader is not None
    made = types.ModuleType("deskgrid.checkpoint")
    module.loader.exec_module(made)
    assert made.load(5) == 5
    assert Path(str(module.origin)).samefile(str(checkpoint.__file__))
    gang = TaskModules.find_spec("deskgrid.gang")
    assert gang is not None
    assert Path(str(gang.origin)).name == "gang.py"
    assert TaskModules.find_spec("deskgrid.wire") is None
    stub = types.ModuleType("deskgrid")
    assert TaskModules.create_module(top) is None
    TaskModules.exec_module(stub)
    assert stub.File is File
    with pytest.raises(AttributeError, match="'Grid' in the process of a task"):
        _ = stub.Grid


def test_a_task_keeps_the_output_of_all_its_pieces(rig: Rig) -> None:
    def task() -> int:
        from deskgrid import checkpoint

        count = checkpoint.load(0)
        print("piece", count)
        print("at", count, file=sys.stderr)
        while count < 2:
            if checkpoint.due():
                checkpoint.save(count + 1)
        return int(count)

    digest, data = rig.know(python_template(task)), b""
    for number in (1, 2):
        began(rig, digest, call(), data, task=number)
        due_now(rig, last=True)
        data = bytes(saved(rig).data)
        assert rig.until(1)[0].outcome is Outcome.PIECE
    began(rig, digest, call(), data, task=3)
    (ended,) = rig.until(1)
    assert value(ended) == 2
    assert ended.stdout == b"piece 0\npiece 1\npiece 2\n"
    assert ended.stderr == b"at 0\nat 1\nat 2\n"


def test_a_checkpoint_has_the_output_of_its_own_task_though_the_end_of_another_came_with_it(rig: Rig) -> None:
    def task(name: str, count: int) -> None:
        from deskgrid import checkpoint

        count = checkpoint.load(count)
        print(name, count)
        while count:
            if checkpoint.due():
                checkpoint.save(count - 1)

    digest = rig.know(python_template(task))
    jobs = [
        Job(number, 1, digest, call(name, count), TaskOptions(checkpoint=True), b"")
        for number, (name, count) in enumerate([("one", 0), ("two", 1)], 1)
    ]
    rig.call(lambda: None)
    rig.executor.run(0, jobs)
    due_now(rig, last=True)
    assert [ended.stdout for ended in rig.until(2)] == [b"one 0\n", b"two 1\n"]
    ((number, data),) = [(one.task, bytes(one.data)) for one in rig.executor.saved()]
    assert number == 2
    rig.executor.run(0, [*jobs[:1], jobs[1]._replace(checkpoint=data), *jobs[:1]])
    assert [ended.stdout for ended in rig.until(3)] == [b"one 0\n", b"two 1\ntwo 0\n", b"one 0\n"]


def test_a_task_saves_in_a_python_that_lacks_deskgrid(tmp_path: Path) -> None:
    def saves_at_once() -> None:
        from deskgrid import checkpoint

        checkpoint.save(checkpoint.load(4), 0.5)

    for name in ("msgpack", "cloudpickle"):
        (tmp_path / name).symlink_to(Path(str(importlib.import_module(name).__file__)).parent)
    times = tmp_path / "slot.due"
    times.write_bytes(struct.pack("ddd", 0.0, NEVER, 1.0))
    argv = [
        sys.executable,
        "-S",
        "-P",
        str(PROGRAM),
        "",
        "2",
        str(times),
        "name",
        "1000",
        "0",
        str(tmp_path),
        "",
        "",
        str(tmp_path / "temporary"),
    ]
    (tmp_path / "temporary").mkdir()
    template = {"kind": "python", "python": HERE, "function": cloudpickle.dumps(saves_at_once), "folder": ""}
    told = frame(["template", "digest", template]) + frame(["run", "digest", [[1, 1, call(), b""]]])
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        argv, input=told, stdout=subprocess.PIPE, env=environment, start_new_session=True, check=False
    )
    read, write = os.pipe()
    os.write(write, done.stdout)
    os.close(write)
    reports = Frames(read).read()[1]
    os.close(read)
    assert [report[0] for report in reports] == ["ready", "saved", "ended"]
    assert reports[1][3] == 0.5
    assert reports[2][3] == Outcome.PIECE


def test_a_checkpoint_that_is_too_large_is_refused_before_a_byte_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(child.CHECKPOINT_LIMIT // 2 + 1)
    monkeypatch.setattr(tarfile, "open", lambda *given, **options: pytest.fail("they are packed"))
    with pytest.raises(child.TaskFailure, match="the checkpoint has 1,073,741,826 bytes"):
        child.pack_files(tmp_path, ["*"], {})


@pytest.mark.skipif(sys.platform == "win32", reason="needs folders that are open")
def test_temporary_files_of_any_depth_are_gone_when_the_process_of_their_task_is(rig: Rig) -> None:
    def nest(depth: int) -> str:
        import os
        import tempfile

        made = at = tempfile.mkdtemp()
        os.chdir(at)
        for _ in range(depth):
            os.mkdir("deep")
            os.chdir("deep")
        return made

    made = Path(value(rig.call(nest, 3_000)))
    rig.executor.rest()

    def is_gone() -> bool:
        rig.executor.poll(time.monotonic())
        return not made.parent.exists()

    assert eventually(is_gone, 30.0)
