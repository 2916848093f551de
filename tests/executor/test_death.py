"""Processes that die or are killed: only the current attempt is lost, and nothing is left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.wire import Outcome
from deskgrid.worker.run.child import frame
from deskgrid.worker.run.nursery import PROGRAM
from tests.executor.rig import Rig, alive, call, command_template, error, python_template, value, written
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
LONG = 1e9  # seconds: later than any timeout
# A program that waits, after writing its process id to the file that it was given.
WAITS = "import os, sys, threading; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); threading.Event().wait(300)"

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are POSIX's")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only its kernel kills what holds the interpreter")


def dying() -> Callable[[str], str]:
    """A task that kills its process in one way or another."""

    def task(how: str) -> str:
        if how == "segfault":
            ctypes.string_at(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how.isdigit():
            os._exit(int(how))
        return "alive"

    return task


def waiting() -> Callable[[str], None]:
    """A task that starts a program, and waits with it."""
    program = WAITS

    def task(note: str) -> None:
        subprocess.run([sys.executable, "-c", program, note], check=True)

    return task


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("0", "exit code 0"),
        ("3", "exit code 3"),
        pytest.param("segfault", f"exit code {-signal.SIGSEGV} (SIGSEGV)", marks=posix),
        pytest.param("kill", "killed, perhaps out of memory (SIGKILL)", marks=posix),
    ],
)
def test_a_crash_costs_only_its_own_attempt(rig: Rig, how: str, told: str) -> None:
    digest = rig.know(python_template(dying()))
    first, crashed, *rest = rig.run(digest, call("not"), call(how), call("not"), call("not"))
    assert (crashed.task, crashed.number, crashed.outcome) == (1, 1, Outcome.CRASH)
    assert error(crashed)[:2] == ("Crash", told)
    assert crashed.elapsed >= 0
    assert [value(one) for one in (first, *rest)] == ["alive"] * 3


@posix
def test_a_segfault_says_where_it_happened(rig: Rig) -> None:
    (crashed,) = rig.run(rig.know(python_template(dying())), call("segfault"))
    assert b"Segmentation fault" in crashed.stderr
    assert f'File "{__file__}"'.encode() in crashed.stderr
    assert error(crashed)[2] == crashed.stderr.decode()


def test_crash_after_crash_each_costs_one_attempt(rig: Rig) -> None:
    digest = rig.know(python_template(dying()))
    ended = rig.run(digest, *[call(how) for how in ("1", "2", "not", "3", "4", "5", "6", "not")])
    assert [one.outcome for one in ended] == [Outcome.CRASH if how in "123456" else Outcome.DONE for how in "12x3456x"]
    assert [error(one)[1] for one in ended if one.outcome] == [f"exit code {code}" for code in range(1, 7)]


def test_a_task_over_its_time_is_killed_and_the_rest_goes_on(rig: Rig) -> None:
    def task(forever: bool) -> str:
        print("begun")
        if forever:
            threading.Event().wait(300)
        return "done"

    digest = rig.know(python_template(task))
    rig.executor.run(0, rig.jobs(digest, call(False), call(True), call(False), timeout=0.2))
    before, late, after = rig.until(3)
    assert (value(before), value(after)) == ("done", "done")
    assert late.outcome is Outcome.TIMEOUT
    assert error(late)[:2] == ("Timeout", "not done after 0.2 s")
    assert 0.2 <= late.elapsed < 10
    assert late.stdout == b"begun\n"


def test_what_a_killed_task_started_dies_with_it(rig: Rig, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    digest = rig.know(python_template(waiting()))
    rig.executor.run(0, rig.jobs(digest, call(str(note)), timeout=1000.0))
    rig.until_running()
    grandchild = int(written(note))
    assert alive(grandchild)
    (late,) = rig.executor.poll(LONG)
    assert late.outcome is Outcome.TIMEOUT
    assert eventually(lambda: not alive(grandchild))


def test_what_a_crashed_task_started_dies_with_it(rig: Rig, tmp_path: Path) -> None:
    program = WAITS
    note = tmp_path / "pid"

    def task(path: str) -> None:
        subprocess.Popen([sys.executable, "-c", program, path])
        while not os.path.exists(path) or not os.path.getsize(path):
            threading.Event().wait(0.005)
        os._exit(1)

    assert rig.call(task, str(note)).outcome is Outcome.CRASH
    grandchild = int(written(note))
    assert eventually(lambda: not alive(grandchild))


def test_a_command_over_its_time_is_killed_itself(rig: Rig, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    digest = rig.know(command_template(sys.executable, "-c", WAITS, "{}"))
    rig.executor.run(0, rig.jobs(digest, str(note).encode(), timeout=1000.0))
    rig.until_running()
    command = int(written(note))
    (late,) = rig.executor.poll(LONG)
    assert late.outcome is Outcome.TIMEOUT
    assert eventually(lambda: not alive(command))


@posix
def test_a_copy_that_a_task_forks_neither_speaks_nor_keeps_a_crash_unseen(rig: Rig, tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def fork(path: str) -> str:
        pid = os.fork()
        if not pid:
            return "the copy"
        os.waitpid(pid, 0)
        return "the task"

    def leave(path: str) -> None:
        pid = os.fork()
        if not pid:
            os.setsid()  # so that no kill of the group reaches it: were the pipe open in it, we would wait
            threading.Event().wait(300)
        with open(path, "w") as file:
            file.write(str(pid))
        os._exit(7)

    assert value(rig.call(fork, "")) == "the task"
    left = rig.call(leave, str(note))
    assert not alive(int(written(note)))
    assert error(left)[1] == "exit code 7"


def another_program(note: str) -> None:
    os.execvp("sleep", ["sleep", "300"])


def closed_pipes(note: str) -> None:
    os.closerange(3, 256)
    threading.Event().wait(300)


@posix
@pytest.mark.parametrize("how", [another_program, closed_pipes])
def test_a_process_that_cannot_report_any_more_is_killed(rig: Rig, tmp_path: Path, how: Callable[[str], None]) -> None:
    def task(note: str) -> None:
        Path(note).write_text(f"{os.getpid()}\n")
        how(note)

    note = tmp_path / "pid"
    ended = rig.call(task, str(note))
    assert ended.outcome is Outcome.CRASH
    assert error(ended)[1] == "killed, because it closed its pipe to the worker"
    assert not alive(int(written(note)))
    assert value(rig.call(lambda: 1)) == 1


@posix
@pytest.mark.parametrize("kernel_helps", [True, False])
def test_the_end_of_its_lifeline_ends_a_process_and_what_it_started(tmp_path: Path, kernel_helps: bool) -> None:
    """As when the worker dies while a task runs."""
    note = tmp_path / "pid"
    template = {"kind": "command", "argv": [sys.executable, "-c", WAITS, str(note)], "in_folder": False}
    theirs, ours = os.pipe()
    (tmp_path / "temporary").mkdir()
    argv = ["", str(tmp_path / "times"), "name", "1000", "0", str(tmp_path), "", "", str(tmp_path / "temporary")]
    program = "import sys\nfrom deskgrid.worker.run import child\n"
    program += f"sys.platform = sys.platform if {kernel_helps} else 'another'\n"
    command = [sys.executable, "-c", f"{program}child.main({argv}, [0, 1, 2, __import__('os').dup(2), {theirs}])"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, pass_fds=(theirs,)
    ) as process:
        os.close(theirs)
        try:
            assert process.stdin is not None
            process.stdin.write(frame(["template", "digest", template]) + frame(["run", "digest", [[1, 1, b"", None]]]))
            process.stdin.flush()
            started = int(written(note))
            assert alive(started)
            os.close(ours)
            assert eventually(lambda: process.poll() is not None)
        finally:
            process.kill()
    assert eventually(lambda: not alive(started))


def test_the_end_of_its_input_ends_an_idle_process(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    places = [str(tmp_path), "", "", str(tmp_path / "temporary")]
    argv = [sys.executable, "-P", str(PROGRAM), "", "2", str(tmp_path / "times"), "name", "1000", "0", *places]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.read(1)
            process.stdin.close()
            assert eventually(lambda: process.poll() is not None)
        finally:
            process.kill()


# The worker that is killed: it runs a task on each of two slots, and tells the ids of all that it started.
WORKER = """
import sys, time, threading
from tests.executor.rig import *
from tests.executor.test_death import holding, waiting
rig = Rig(2)
rig.executor.run(0, rig.jobs(rig.know(python_template(waiting())), call(sys.argv[1])))
rig.executor.run(1, rig.jobs(rig.know(python_template({second}())), call(sys.argv[2])))
threading.Thread(target=lambda: (written(Path(sys.argv[1])), written(Path(sys.argv[2])), print(
    *[process.pid for process in rig.executor.processes], flush=True)), daemon=True).start()
while True:
    rig.woken.wait()
    rig.poll()
"""


def holding() -> Callable[[str], None]:
    """A task in C code that never lets go of the interpreter, so that no thread of its process ever runs."""

    def task(note: str) -> None:
        with open(note, "w") as file:
            file.write(f"{os.getpid()}\n")
        ctypes.PyDLL(None).sleep(300)

    return task


@pytest.mark.parametrize("second", ["waiting", pytest.param("holding", marks=linux)])
def test_nothing_outlives_a_worker_that_is_killed(tmp_path: Path, second: str) -> None:
    notes = [tmp_path / "first", tmp_path / "second"]
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER.format(second=second), *map(str, notes)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    with worker:
        try:
            assert worker.stdout is not None
            pids = [int(pid) for pid in worker.stdout.readline().split()]
            pids += [int(written(note)) for note in notes]
            assert len(pids) == 4
            assert all(alive(pid) for pid in pids)
        finally:
            worker.kill()
    assert eventually(lambda: not any(alive(pid) for pid in pids))


# A Python, or a program, that leaves a process in a session of its own, and hangs. It tells their ids.
HANGS = """#!{python}
import os, pathlib, threading
read, write = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(write, str(os.getpid()).encode())
        threading.Event().wait(300)
    os._exit(0)
os.wait()
note = pathlib.Path({note!r})
note.with_suffix(".new").write_text(f"{{os.getpid()}} {{os.read(read, 20).decode()}}")
note.with_suffix(".new").rename(note)
threading.Event().wait(300)
"""
# Workers that are killed while what they have started hangs: the parent of an environment, the guard, and a helper.
HANGING_WORKERS = {
    "the parent of an environment": """
from tests.executor.rig import *
from deskgrid.worker.environments.site import EnvironmentSite
rig = Rig()
rig.executor.sites = {"key": EnvironmentSite("identity", sys.argv[2], sys.argv[1], sys.argv[1])}
(job,) = rig.jobs(rig.know(python_template(lambda: 1)), call())
rig.executor.run(0, [job._replace(environment="key")])
""",
    "the guard": """
from tests.executor.rig import *
from deskgrid.worker.run import nursery
nursery.PROGRAM = Path(sys.argv[2])
rig = Rig()
rig.executor.start()
""",
    "a helper": """
from pathlib import Path
from deskgrid.worker.environments import helpers
helpers.PROGRAM = Path(sys.argv[2])
threading.Thread(target=helpers.Helpers(0).run, args=["check"], daemon=True).start()
""",
}


@linux
@pytest.mark.parametrize("what", HANGING_WORKERS)
def test_what_hangs_before_it_is_up_ends_with_the_worker(tmp_path: Path, what: str) -> None:
    program, note = tmp_path / "hangs", tmp_path / "note"
    program.write_text(HANGS.format(python=sys.executable, note=str(note)))
    program.chmod(0o755)
    start = f"import sys, threading\n{HANGING_WORKERS[what]}\nprint('up', flush=True)\nthreading.Event().wait(300)"
    with subprocess.Popen(
        [sys.executable, "-c", start, str(tmp_path), str(program)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
    ) as worker:
        try:
            hanging, left = map(int, written(note).split())
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"up\n"
            assert alive(hanging)
        finally:
            worker.kill()
    try:
        assert eventually(lambda: not alive(hanging))
        if what == "the parent of an environment":  # others run nobody's code
            assert eventually(lambda: not alive(left))
    finally:
        for pid in (hanging, left):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@linux
def test_what_a_task_that_kills_its_parent_has_started_is_gone_when_it_has_ended(rig: Rig, tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def task(path: str) -> None:
        parent = os.getppid()
        if not os.fork():
            os.setsid()
            if not os.fork():
                with open(path, "w") as file:
                    file.write(str(os.getpid()))
                threading.Event().wait(300)
            os._exit(0)
        os.wait()
        while not os.path.exists(path) or not os.path.getsize(path):
            threading.Event().wait(0.005)
        os.kill(parent, signal.SIGKILL)
        threading.Event().wait(300)

    ended = rig.call(task, str(note))
    left = int(written(note))
    try:
        assert ended.outcome is Outcome.CRASH
        assert not alive(left)
    finally:
        if alive(left):
            os.kill(left, signal.SIGKILL)
    assert value(rig.call(lambda: 1)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no parent")
def test_a_parent_that_a_task_has_stopped_goes_on(rig: Rig) -> None:
    def stop(number: int) -> None:
        import os
        import signal
        import time

        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(1000)

    rig.executor.run(0, rig.jobs(rig.know(python_template(stop)), call(1), timeout=0.5))
    assert [ended.outcome for ended in rig.until(1)] == [Outcome.TIMEOUT]
    assert value(rig.call(lambda: 1)) == 1
