"""The output of a task is captured, wherever it comes from, and never more than the limit."""

import io
import os
import subprocess
import sys
from collections.abc import Callable

from deskgrid.wire import Outcome
from tests.executor.rig import Rig, call, python_template, value


def test_prints_of_each_task_come_with_that_task(rig: Rig) -> None:
    def task(x: int) -> None:
        print("out", x)
        print("err", x, file=sys.stderr)

    ended = rig.run(rig.know(python_template(task)), call(1), call(2), call(3))
    assert [(one.stdout, one.stderr) for one in ended] == [(b"out %d\n" % x, b"err %d\n" % x) for x in (1, 2, 3)]


def test_a_silent_task_has_no_output(rig: Rig) -> None:
    ended = rig.call(lambda: None)
    assert (ended.stdout, ended.stderr) == (b"", b"")


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
