"""A task that meddles with the pipes of its process, or lies on them: it harms its own attempt, and nobody else's."""

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from deskgrid.wire import Outcome, TaskOptions
from deskgrid.worker.run import parent as parent_module
from deskgrid.worker.run.jobs import Job
from deskgrid.worker.run.nursery import Birth
from tests.executor.rig import Rig, call, child_finder, error, python_template, value
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are things that its pipes can do")


def meddling(how: str) -> Callable[[str], None]:
    """A task that does something to all pipes of its process, writes to a file that it has, and waits."""

    find = child_finder()

    def task(done: str) -> None:
        import fcntl
        import os
        import stat
        import time
        from contextlib import suppress

        for pipe in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
                    continue
                if how == "small":
                    fcntl.fcntl(pipe, 1031, 4096)  # F_SETPIPE_SZ
                if how == "waiting":
                    os.set_blocking(pipe, True)
        if how == "waiting":
            find()._tell(["saved", 0, 1, None, 0.0, 0.0, b""])
        with open(done, "w") as file:
            file.write("done")
        time.sleep(60)

    return task


def began(rig: Rig, how: str, done: Path) -> tuple[str, Job]:
    """Run a task that meddles; its template, and its job, which may save."""
    digest = rig.know(python_template(meddling(how)))
    (job,) = rig.jobs(digest, call(str(done)), timeout=1.0)
    job = job._replace(checkpoint=b"", options=TaskOptions(1.0, checkpoint=True))
    rig.executor.run(0, [job])

    def has_meddled() -> bool:
        rig.poll()
        return done.exists()

    assert eventually(has_meddled)
    return digest, job


def test_a_worker_never_waits_for_room_in_the_pipe_of_a_process(rig: Rig, tmp_path: Path) -> None:
    digest, _ = began(rig, "small", tmp_path / "done")
    rig.executor.run(0, rig.jobs(digest, call("x" * 6000)))
    assert rig.until(1)[0].outcome is Outcome.TIMEOUT


def test_what_has_no_room_at_once_arrives_later(rig: Rig, tmp_path: Path) -> None:
    find, shrunk = child_finder(), tmp_path / "shrunk"

    def shrinks(text: str) -> int:
        import fcntl

        fcntl.fcntl(find()._in, 1031, 4096)  # F_SETPIPE_SZ
        shrunk.touch()
        __import__("time").sleep(0.2)
        return len(text)

    digest = rig.know(python_template(shrinks))
    rig.executor.run(0, rig.jobs(digest, call("")))
    assert eventually(lambda: (rig.poll(), shrunk.exists())[1])  # a pipe that holds more cannot be made smaller
    rig.executor.run(0, rig.jobs(digest, call("x" * 6000)))
    assert [value(ended) for ended in rig.until(2)] == [0, 6000]


def test_a_worker_never_waits_for_what_a_process_prints(rig: Rig, tmp_path: Path) -> None:
    _, job = began(rig, "waiting", tmp_path / "done")
    assert rig.executor.shown(job.task, job.number, 0, 0, 1000) is not None
    assert rig.until(1)[0].outcome is Outcome.TIMEOUT


def test_a_process_cannot_replace_the_checkpoints_of_other_tasks(rig: Rig) -> None:
    find = child_finder()

    def forges() -> None:
        child = find()
        path = f"{child._times_file.removesuffix('.due')}".rpartition("/")
        os.makedirs(f"{path[0]}/tasks", exist_ok=True)
        with open(f"{path[0]}/tasks/{path[2]}.checkpoint-1", "wb") as file:
            file.write(b"forged")
        child._tell(["saved", 98, 1, None, 0.0, 0.0, b"forged"])
        child._tell(["saved", 99, 1, None, 0.0, 0.0, 1])
        __import__("time").sleep(60)

    files = rig.executor.checkpoints
    for task in (98, 99):
        files.write(task, 1, b"theirs")
    assert rig.call(forges).outcome is Outcome.CRASH
    assert [files.read(task, 1) for task in (98, 99)] == [b"theirs", b"theirs"]


def test_a_task_cannot_begin_again_for_ever(rig: Rig) -> None:
    find = child_finder()

    def ends_its_process() -> None:
        import os

        os.write(find()._out, b"\x00\x00\x00\x07\x91\xa5spent")
        __import__("time").sleep(60)

    ended = rig.call(ends_its_process)
    assert (ended.outcome, error(ended)[1]) == (Outcome.CRASH, "killed, because it could not run a task")


def test_what_a_process_left_is_killed_until_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    left = [2**30]
    for name, instead in (("signal.signal", None), ("signal.set_wakeup_fd", None), ("os.kill", killed.append)):
        monkeypatch.setattr(name, lambda *given, instead=instead, **_: instead and instead(given[0]))
    monkeypatch.setattr(parent_module, "_dead", lambda: iter(()))
    ours, theirs = socket.socketpair()
    parent = parent_module.Parent(theirs.detach(), lambda: left)
    parent._ended.append((1, 0))  # and it has been looked for long enough
    parent._bury()
    assert ours.recv(100)[4:] == msgpack.packb(["ended", 1, 0])
    assert parent._wait_ms() == int(parent_module.PATIENCE_S * 1000) + 1
    parent._bury()
    assert killed == [2**30] * 2
    left.clear()
    parent._bury()
    assert parent._wait_ms() is None
    assert killed == [2**30] * 2
    for descriptor in (parent._woken, parent._wake):
        os.close(descriptor)
    parent._worker.close()
    ours.close()


def test_a_process_is_bounded_only_if_its_parent_is_its_parent(rig: Rig) -> None:
    rig.pid()
    (nursery,) = rig.executor._spawner._nurseries.values()
    birth = Birth(nursery, 1)  # type: ignore[arg-type]
    for pid, is_real in ((rig.pid(), True), (os.getpid(), False), (1, False), (2**30, False)):
        birth.is_born(pid)
        assert birth.is_of_its_parent is is_real
