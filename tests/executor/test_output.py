"""The output of a task is captured, wherever it comes from, and never more than the limit."""

import ctypes
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deskgrid.wire import Outcome
from deskgrid.worker.run import child
from deskgrid.worker.run.executor import CAPTURE_LIMIT
from tests.executor.rig import Rig, call, command_template, error, python_template, value, written
from tests.waiting import eventually

linux = pytest.mark.skipif(sys.platform != "linux", reason="names of descriptors as on Linux")
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such calls")


def test_prints_of_each_task_come_with_that_task(rig: Rig) -> None:
    def task(x: int) -> None:
        print("out", x)
        print("err", x, file=sys.stderr)

    ended = rig.run(rig.know(python_template(task)), call(1), call(2), call(3))
    assert [(one.stdout, one.stderr) for one in ended] == [(b"out %d\n" % x, b"err %d\n" % x) for x in (1, 2, 3)]


def test_a_silent_task_has_no_output(rig: Rig) -> None:
    ended = rig.call(lambda: None)
    assert (ended.stdout, ended.stderr) == (b"", b"")


def test_each_of_many_short_tasks_has_what_it_has_printed_and_no_more(rig: Rig) -> None:
    def task(number: int, kept: dict[str, Any] = {}) -> int:  # noqa: B006 - the program keeps it
        if number % 7 == 2:
            print("printed", number)
        elif number % 7 == 3:
            os.write(1, b"written %d\n" % number)
        elif number % 7 == 4:
            file = kept.setdefault("file", open(1, "w", closefd=False))  # noqa: SIM115
            print("kept", number, file=file, flush=True)
        elif number % 7 == 5:
            print("complained", number, file=sys.stderr)
        elif number % 70 == 6:
            time.sleep(0.001)
        return number

    def printed(number: int) -> tuple[bytes, bytes]:
        said = {2: b"printed", 3: b"written", 4: b"kept"}.get(number % 7)
        return said + b" %d\n" % number if said else b"", b"complained %d\n" % number if number % 7 == 5 else b""

    digest = rig.know(python_template(task))
    for first in range(0, 3000, 500):
        ended = rig.run(digest, *[call(number) for number in range(first, first + 500)])
        for number, one in enumerate(ended, first):
            assert (value(one), one.stdout, one.stderr) == (number, *printed(number))


@linux
def test_tasks_that_print_nothing_leave_nothing_to_read(rig: Rig) -> None:
    digest = rig.know(python_template(lambda: None))
    rig.run(digest, call())
    outputs = vars(vars(rig.executor)["_slots"][0].process)["_outputs"]

    def marks() -> int:
        rig.run(digest, *[call()] * 50)
        count: int = outputs.stdout.marks
        return count

    assert eventually(lambda: marks() == marks()), "each task that prints nothing has a mark"


def test_output_past_python_is_captured_too(rig: Rig) -> None:
    def task() -> None:
        print("first, without an end of line; ", end="", flush=True)
        os.write(1, b"from C; ")
        os.write(2, b"complaint\n")
        subprocess.run([sys.executable, "-c", "print('from a subprocess')"], check=True)

    ended = rig.call(task)
    assert ended.stdout == b"first, without an end of line; from C; from a subprocess\n"
    assert ended.stderr == b"complaint\n"


def test_text_that_the_pc_could_not_print_is_captured(rig: Rig) -> None:
    assert rig.call(lambda: print("é €")).stdout == "é €\n".encode()
    assert rig.call(lambda: print("half \ud800")).stdout == b"half \\ud800\n"


def test_long_output_keeps_its_head_and_its_tail_and_says_what_was_cut(rigs: Callable[..., Rig]) -> None:
    rig = rigs(capture_limit=1000)

    def task() -> None:
        sys.stdout.write("a" * 1000 + "b" * 12345 + "c" * 1000)

    long, short = rig.run(rig.know(python_template(task)), call(), call())[0], rig.call(lambda: print("next"))
    assert long.stdout == b"a" * 500 + b"\n[... 13345 bytes cut ...]\n" + b"c" * 500
    assert short.stdout == b"next\n"


def test_output_of_exactly_the_limit_is_not_cut(rigs: Callable[..., Rig]) -> None:
    assert rigs(capture_limit=1000).call(lambda: print("x" * 999)).stdout == b"x" * 999 + b"\n"


def test_a_task_that_closes_or_replaces_its_streams_does_not_silence_the_next(rig: Rig) -> None:
    def close() -> None:
        print("before", end="")
        sys.stdout.close()

    def replace() -> None:
        sys.stdout = io.TextIOWrapper(sys.stdout.buffer)
        print("through a wrapper", end="")

    def drop() -> None:
        sys.stdout = io.StringIO()
        print("lost, as the task wanted")

    assert rig.call(close).stdout == b"before"
    assert rig.call(lambda: print("after close")).stdout == b"after close\n"
    assert rig.call(replace).stdout == b"through a wrapper"
    assert rig.call(lambda: print("after replace")).stdout == b"after replace\n"
    assert rig.call(drop).stdout == b""
    assert rig.call(lambda: print("after drop")).stdout == b"after drop\n"


def test_input_is_empty(rig: Rig) -> None:
    assert value(rig.call(lambda: sys.stdin.read(9))) == ""
    assert value(rig.call(lambda: os.read(0, 10))) == b""


def test_nothing_printed_can_be_taken_for_a_frame(rig: Rig) -> None:
    def task() -> int:
        os.write(1, b"\0\0\0\1\xc0" * 1000)
        return 1

    ended = rig.call(task)
    assert value(ended) == 1
    assert len(ended.stdout) == 5000


def test_what_was_printed_before_a_crash_is_kept(rig: Rig) -> None:
    def task() -> None:
        print("last words")
        print("last complaint", file=sys.stderr)
        os._exit(9)

    ended = rig.call(task)
    assert ended.outcome is Outcome.CRASH
    assert (ended.stdout, ended.stderr) == (b"last words\n", b"last complaint\n")


# --- every way to write to the pipe ----------------------------------------------------------------------------------

BY_NAME = {
    "> /dev/stdout": ("echo a; echo b > /dev/stdout; echo c", "a\nb\nc\n"),
    "/proc/self/fd/1": ("echo a; echo b > /proc/self/fd/1; echo c", "a\nb\nc\n"),
    "dd of=/dev/stdout": ("echo a; echo b | dd of=/dev/stdout 2> /dev/null; echo c", "a\nb\nc\n"),
    "tee /dev/stdout": ("echo a; echo b | tee /dev/stdout; echo c", "a\nb\nb\nc\n"),
    "sort -o": ("echo a; echo b | sort -o /dev/stdout; echo c", "a\nb\nc\n"),
    "awk": ('echo a; awk \'BEGIN { print "b" > "/dev/stdout" }\'; echo c', "a\nb\nc\n"),
    "truncate": (": > /dev/stdout; echo a; : > /dev/stdout; echo b", "a\nb\n"),
}


@linux
@pytest.mark.parametrize("script", BY_NAME)
def test_a_program_that_opens_its_output_by_name_cuts_nothing(rig: Rig, script: str) -> None:
    program, printed = BY_NAME[script]
    (ended,) = rig.run(rig.know(command_template("sh", "-c", program)), b"")
    assert (value(ended), ended.stdout) == (printed, printed.encode())


@linux
def test_neither_does_one_that_opens_stderr_by_name(rig: Rig) -> None:
    program = "echo a >&2; echo b | tee /dev/stderr; echo c >&2"
    (ended,) = rig.run(rig.know(command_template("sh", "-c", program)), b"")
    assert (value(ended), ended.stderr) == ("b\n", b"a\nb\nc\n")


@linux
def test_the_output_of_a_function_is_in_the_order_in_which_it_was_written_whoever_wrote_it(rig: Rig) -> None:
    def task() -> None:
        print("print")
        os.write(1, b"write\n")
        with open("/dev/stdout", "w") as file:
            file.write("open\n")
        subprocess.run(["echo", "subprocess"], check=True)
        thread = threading.Thread(target=print, args=("thread",))
        thread.start()
        thread.join()
        print("end", end="")

    assert rig.call(task).stdout == b"print\nwrite\nopen\nsubprocess\nthread\nend"


@pytest.mark.parametrize(
    "data", [b"caf\xe9\n", b"a\r\nb\0c\xef\xbb\xbf", b"no end of line", bytes(range(256)) * 999, b""]
)
def test_the_bytes_of_a_command_can_be_had_back_from_its_text(rig: Rig, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "data").write_bytes(data)
    (ended,) = rig.run(rig.know(command_template("cat", "{}")), str(tmp_path / "data").encode())
    assert value(ended).encode("utf-8", "surrogateescape") == data
    assert ended.stdout.startswith(data[:1000])


@posix
def test_the_output_of_c_code_comes_with_its_task(rig: Rig) -> None:
    def task(x: int) -> None:
        library = ctypes.CDLL(None)
        library.puts(b"from C %d" % x)

    ended = rig.run(rig.know(python_template(task)), call(1), call(2))
    assert [one.stdout for one in ended] == [b"from C 1\n", b"from C 2\n"]


@posix
def test_the_output_of_c_code_is_kept_if_its_process_crashes_and_stands_where_it_was_printed(rig: Rig) -> None:
    def task() -> None:
        library = ctypes.CDLL(None)
        print("first")
        library.printf(b"no end of line; ")
        print("last", flush=True)
        os._exit(1)

    assert rig.call(task).stdout == b"first\nno end of line; last\n"


@posix
def test_c_code_that_holds_the_interpreter_may_print_more_than_a_pipe_holds(rig: Rig) -> None:
    def task() -> int:
        data = b"head" + b"x" * (100_000_000 - 8) + b"tail"
        written: int = ctypes.PyDLL(None).write(1, data, len(data))
        while written < len(data):
            written += ctypes.PyDLL(None).write(1, data[written:], len(data) - written)
        return written

    ended = rig.call(task)
    assert value(ended) == 100_000_000
    assert ended.stdout.startswith(b"headxxx")
    assert ended.stdout.endswith(b"xxxtail")
    assert b"\n[... %d bytes cut ...]\n" % (100_000_000 - CAPTURE_LIMIT) in ended.stdout


def test_no_task_takes_its_output_for_a_terminal(rig: Rig) -> None:
    assert value(rig.call(lambda: (sys.stdout.isatty(), os.isatty(1), os.isatty(2), sys.stdout.fileno()))) == (
        False,
        False,
        False,
        1,
    )


# --- what a task leaves ----------------------------------------------------------------------------------------------


def test_descriptors_that_a_task_closed_or_replaced_are_there_again_for_the_next(rig: Rig, tmp_path: Path) -> None:
    def close() -> None:
        print("before", end="")
        os.close(1)
        os.close(2)

    def replace(path: str) -> None:
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 1)
        os.write(1, b"to the file")

    ended = rig.call(close)
    assert ended.stdout == b"before"
    assert rig.call(lambda: print("after close")).stdout == b"after close\n"
    assert rig.call(replace, str(tmp_path / "file")).stdout == b""
    assert rig.call(lambda: print("after replace")).stdout == b"after replace\n"
    assert (tmp_path / "file").read_bytes() == b"to the file"


@posix
def test_a_pipe_that_a_program_made_non_blocking_loses_nothing_of_later_output(rig: Rig) -> None:
    def task() -> None:
        os.set_blocking(1, False)
        print("x" * 1_000_000)

    def later() -> tuple[bool, bool]:
        return os.get_blocking(1), os.get_blocking(2)

    size = CAPTURE_LIMIT
    assert b"[... %d bytes cut ...]" % (1_000_001 - size) in rig.call(task).stdout
    assert value(rig.call(lambda: os.set_blocking(2, False))) is None
    assert value(rig.call(later)) == (True, True)


@posix
def test_a_command_ends_though_what_it_started_goes_on_and_that_is_not_in_the_next_result(
    rig: Rig, tmp_path: Path
) -> None:
    script = f"cd {tmp_path}; (until [ -e go ]; do sleep 0.01; done; echo ghost; touch written) & echo one"
    (one,) = rig.run(rig.know(command_template("sh", "-c", script)), b"")
    follow = f"cd {tmp_path}; touch go; for _ in 1 2 3 4 5; do [ -e written ] || sleep 0.02; done; echo two"
    (two,) = rig.run(rig.know(command_template("sh", "-c", follow)), b"")
    assert (value(one), value(two)) == ("one\n", "two\n")


@posix
@pytest.mark.parametrize("waits", ["for both", "in a thread"])
def test_the_result_of_a_command_is_what_it_printed_until_it_ended(
    waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if waits == "in a thread":
        monkeypatch.setattr(child, "_end_of", lambda pid: None)
    with (tmp_path / "onward").open("w+b") as onward:

        def run(script: str, most: int = 10**8) -> bytes:
            with child.CommandOutput(onward.fileno(), most) as output:
                assert output.run(["sh", "-c", script], tmp_path) == 3
            return output.whole()

        assert run("echo one; exit 3") == b"one\n"
        assert run("exec >&-; sleep 0.1; exit 3") == b""
        assert run("yes | head -c 3000000; echo; exit 3") == b"y\n" * 1_500_000 + b"\n"
        assert run("while :; do echo y; done & echo $! > pid; sleep 0.1; exit 3").startswith(b"y\n")
        with suppress(ProcessLookupError):  # it ends by itself as soon as it writes again
            os.kill(int((tmp_path / "pid").read_text()), 9)
        with pytest.raises(child.TaskFailure, match="5 bytes; the limit is 4"):
            run("echo four; exit 3", 4)
        onward.seek(0)
        assert onward.read(8) == b"one\ny\ny\n"


@pytest.mark.parametrize("count", [1, 3])
def test_a_process_whose_task_marks_the_end_of_its_output_itself_is_killed(rig: Rig, count: int) -> None:
    def task() -> None:
        import gc

        mark = next(one.mark for one in gc.get_objects() if type(one).__name__ == "Output")
        os.write(1, mark * count)

    digest = rig.know(python_template(task))
    rig.executor.run(0, rig.jobs(digest, call()))
    rig.until(1)
    assert eventually(lambda: (rig.poll(), rig.executor.processes == set())[1])
    assert rig.call(lambda: print("next")).stdout == b"next\n"


@linux
def test_a_process_whose_task_takes_the_marks_out_of_the_pipe_is_killed(rig: Rig) -> None:
    def task() -> None:
        ours, begun = os.open("/proc/self/fd/1", os.O_RDONLY), threading.Event()

        def take() -> None:
            begun.set()
            while True:
                os.read(ours, 9)

        threading.Thread(target=take, daemon=True).start()
        begun.wait()
        print("so its end gets a mark")

    jobs = rig.jobs(rig.know(python_template(task)), *[call()] * 50)
    rig.executor.run(0, jobs)
    ended = rig.until(50)
    assert any("the end of its output is not marked" in error(one)[1] for one in ended if one.outcome is Outcome.CRASH)


# --- ends by force ---------------------------------------------------------------------------------------------------

DEATHS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(9),
    "kill": lambda: os.kill(os.getpid(), 9),
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
}


@posix
@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("size", [20, 30_000])
def test_what_was_printed_before_a_process_died_is_kept(rig: Rig, death: str, size: int) -> None:
    die = DEATHS[death]

    def task() -> None:
        print("x" * size)
        print("y" * size, file=sys.stderr)
        die()

    ended = rig.call(task)
    assert ended.outcome is Outcome.CRASH
    assert ended.stdout == b"x" * size + b"\n"
    assert ended.stderr.startswith(b"y" * size + b"\n")


def test_what_was_printed_by_a_task_that_is_over_its_time_is_kept(rig: Rig, tmp_path: Path) -> None:
    def task(note: str) -> None:
        print("working")
        with open(note, "w") as file:
            file.write("printed")
        threading.Event().wait(300)

    note = tmp_path / "note"
    rig.executor.run(0, rig.jobs(rig.know(python_template(task)), call(str(note)), timeout=1000.0))
    rig.until_running()
    assert written(note) == "printed"
    (late,) = rig.executor.poll(time.monotonic() + 10_000.0)
    assert (late.outcome, late.stdout) == (Outcome.TIMEOUT, b"working\n")
