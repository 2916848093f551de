"""``memory=`` is what a task may use, with all that it starts: by groups of the kernel, or by limits of processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.wire import Outcome, TaskOptions
from deskgrid.worker.run import cgroup
from deskgrid.worker.run.cgroup import PROCESSES, ControlGroup, Groups, find_groups
from deskgrid.worker.run.jobs import GangStart, JobEnded, RankEnded, RankJob, RankReady, RankReport
from tests.executor.rig import Rig, alive, call, command_template, error, python_template, value, written
from tests.waiting import eventually

MIB = 1024**2
ASKED = 256 * MIB

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts so")


def run(rig: Rig, template: bytes, payload: bytes, memory: int) -> JobEnded:
    """How a task ends that asks for so much."""
    (job,) = rig.jobs(rig.know(template), payload)
    rig.executor.run(0, [job._replace(options=TaskOptions(memory=memory))])
    (ended,) = rig.until(1)
    return ended


# Uses so many MiB.
FILL = python_template(lambda size: __import__("os").getpid() * (len(bytearray(size * 1024**2)) > 0))


# --- without groups ---------------------------------------------------------------------------------------------------


@linux
def test_a_task_that_needs_more_than_it_asked_for_is_an_error_that_says_so(rig: Rig) -> None:
    over = run(rig, FILL, call(500), ASKED)
    assert over.outcome is Outcome.ERROR
    assert error(over)[:2] == ("MemoryError", "it needs more than the 256 M of memory that it asked for (memory=)")


@linux
def test_what_a_task_starts_may_not_use_more_either(rig: Rig) -> None:
    program = command_template(sys.executable, "-c", f"print(len(bytearray({2 * ASKED})))")
    ended = run(rig, program, b"", ASKED)
    assert ended.outcome is Outcome.ERROR
    assert b"MemoryError" in ended.stderr


@linux
def test_a_crash_says_that_a_task_may_not_use_more_than_it_asked_for(rig: Rig) -> None:
    ended = run(rig, python_template(lambda: __import__("os").abort()), call(), ASKED)
    assert error(ended)[1].endswith("; it may not use more than the 256 M of memory that it asked for (memory=)")


def test_a_task_that_asked_for_nothing_is_not_limited_after_one_that_did(rig: Rig) -> None:
    first = value(run(rig, FILL, call(1), ASKED))
    assert value(run(rig, FILL, call(1), ASKED)) == first
    assert value(run(rig, FILL, call(400), 0)) != first
    assert value(run(rig, FILL, call(400), 4 * ASKED)) != first


@linux
def test_the_smaller_of_both_limits_holds(rigs: Callable[..., Rig]) -> None:
    over = run(rigs(task_memory=ASKED), FILL, call(400), 4 * ASKED)
    assert error(over)[1] == "the limit is 268,435,456 bytes for a task on lab3-07 (deskgrid worker --task-memory)"
    over = run(rigs(task_memory=4 * ASKED), FILL, call(400), ASKED)
    assert error(over)[1] == "it needs more than the 256 M of memory that it asked for (memory=)"


@linux
def test_each_rank_of_a_gang_may_use_what_it_asked_for(rig: Rig) -> None:
    digest, ranks = rig.know(FILL), rig.executor.ranks
    ranks.prepare(RankJob(1, 1, 0, 1, 0, 1, digest, call(500), TaskOptions(gang=True, memory=ASKED)))
    reports: list[RankReport] = []

    def polled() -> bool:
        reports.extend(ranks.poll(0.0))
        return bool(reports)

    assert eventually(polled)
    assert reports.pop() == RankReady((1, 1, 0))
    ranks.begin((1, 1, 0), GangStart(("127.0.0.1",), 1, (0,)), 0.0)
    assert eventually(polled)
    (ended,) = reports
    assert isinstance(ended, RankEnded)
    assert error(ended.ended)[1] == "it needs more than the 256 M of memory that it asked for (memory=)"


# --- with groups that are only files ----------------------------------------------------------------------------------


class Kernel:
    """The files of a worker's own group, and what says where it is."""

    def __init__(self, place: Path, controllers: str = "cpu memory pids", members: str = "") -> None:
        self.proc, self.own = place / "self", place / "cgroup" / "system.slice" / "deskgrid.service"
        self.proc.mkdir()
        self.own.mkdir(parents=True)
        mounts = ["25 30 0:23 / /sys rw - sysfs sysfs rw", f"26 25 0:24 / {place}/cgroup rw - cgroup2 cgroup2 rw"]
        (self.proc / "cgroup").write_text("4:memory:/x\n0::/system.slice/deskgrid.service\n")
        (self.proc / "mountinfo").write_text("\n".join(mounts))
        (self.own / "cgroup.controllers").write_text(controllers)
        (self.own / "cgroup.procs").write_text(f"{os.getpid()}\n{members}")

    def read(self, name: str) -> str:
        return (self.own / name).read_text()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(cgroup, "rmdir", shutil.rmtree)
    return Kernel(tmp_path)


@pytest.fixture
def grouped(kernel: Kernel, rigs: Callable[..., Rig]) -> Rig:
    return rigs(groups=find_groups(kernel.proc))


def test_a_worker_moves_into_a_group_of_its_own_and_divides_the_one_above(kernel: Kernel) -> None:
    assert find_groups(kernel.proc) is not None
    assert kernel.read("worker/cgroup.procs") == str(os.getpid())
    assert kernel.read("cgroup.subtree_control") == "+pids", "after +memory, in a real kernel both"


@pytest.mark.parametrize("how", [{"controllers": "cpu pids"}, {"members": "1\n"}])
def test_a_group_that_cannot_be_divided_or_is_not_the_workers_own_is_left_alone(
    how: dict[str, str], tmp_path: Path
) -> None:
    kernel = Kernel(tmp_path, **how)
    assert find_groups(kernel.proc) is None
    assert not (kernel.own / "worker").exists()


def test_a_worker_without_a_group_goes_on_without(tmp_path: Path) -> None:
    assert find_groups(tmp_path) is None
    kernel = Kernel(tmp_path)
    (kernel.own / "worker").touch()
    assert find_groups(kernel.proc) is None


def test_what_a_killed_worker_left_is_removed(kernel: Kernel) -> None:
    (kernel.own / "task-7").mkdir()
    find_groups(kernel.proc)
    assert not (kernel.own / "task-7").exists()


def test_the_process_of_a_task_is_in_a_group_with_what_it_asked_for(kernel: Kernel, grouped: Rig) -> None:
    pid = value(run(grouped, FILL, call(1), ASKED))
    names = ("cgroup.procs", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max")
    found = [kernel.read(f"task-1/{name}") for name in names]
    assert found == [str(pid), str(ASKED), "0", "1", str(PROCESSES)]


def test_a_task_that_asked_for_nothing_has_no_group(kernel: Kernel, grouped: Rig) -> None:
    value(run(grouped, FILL, call(1), 0))
    assert not list(kernel.own.glob("task-*"))


def test_a_group_is_removed_with_its_process(kernel: Kernel, grouped: Rig) -> None:
    value(run(grouped, FILL, call(1), ASKED))
    grouped.executor.rest()
    assert eventually(lambda: not list(kernel.own.glob("task-*")))


def test_a_task_that_the_kernel_killed_for_its_memory_says_so(kernel: Kernel, grouped: Rig) -> None:
    events = kernel.own / "task-1" / "memory.events"

    def killed(events: str) -> None:
        import os
        import pathlib

        pathlib.Path(events).write_text("low 0\noom 1\noom_kill 1\n")
        os.kill(os.getpid(), 9)

    ended = run(grouped, python_template(killed), call(str(events)), ASKED)
    assert ended.outcome is Outcome.CRASH
    assert error(ended)[1] == "killed, because it used more than the 256 M of memory that it asked for (memory=)"


def test_a_task_whose_process_served_others_has_another_try_in_a_new_one(kernel: Kernel, grouped: Rig) -> None:
    def killed(place: str) -> int:
        import os
        import pathlib

        events = pathlib.Path(place, "task-1", "memory.events")
        if not place or not events.parent.exists():
            return os.getpid()
        events.write_text("oom_kill 1\n")
        os.kill(os.getpid(), 9)
        return 0

    template = python_template(killed)
    first = value(run(grouped, template, call(""), ASKED))
    assert value(run(grouped, template, call(str(kernel.own)), ASKED)) != first


# --- for real ---------------------------------------------------------------------------------------------------------


def mounted() -> Path | None:
    """Where groups can be made; None if nowhere."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    rows = (line.partition(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines())
    places = [Path(mount.split()[4]) for mount, _, kind in rows if kind.split()[0] == "cgroup2"]
    return next((place for place in places if os.access(place / "cgroup.procs", os.W_OK)), None)


@pytest.mark.skipif(mounted() is None, reason="no groups can be made here")
def test_all_that_is_in_a_group_is_killed_with_it(tmp_path: Path) -> None:
    place = mounted()
    assert place is not None
    folder = place / f"deskgrid-test-{os.getpid()}"
    folder.mkdir()
    group = ControlGroup(folder)
    script = f"read line; setsid sleep 1000 & echo $! > {tmp_path}/pid; wait"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE) as process:
        group.add(process.pid)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        pid = int(written(tmp_path / "pid"))
        assert not group.overran()
        group.remove()
    assert not folder.exists()
    assert eventually(lambda: not alive(pid))


@pytest.mark.skipif(mounted() is None, reason="no groups can be made here")
def test_a_group_whose_memory_the_kernel_does_not_count_is_not_made() -> None:
    place = mounted()
    assert place is not None
    if "memory" in (place / "cgroup.subtree_control").read_text():
        pytest.skip("it counts here")
    with pytest.raises(PermissionError):
        Groups(place).new(ASKED)
    assert not (place / "task-1").exists()
