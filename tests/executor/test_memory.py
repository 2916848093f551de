"""A task that fills memory loses only its own attempt; the PC goes on."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deskgrid.wire import Outcome
from tests.executor.rig import Rig, call, command_template, error, python_template, value

MIB = 1024**2
LIMIT = 256 * MIB

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts so")


def filling() -> Callable[[int], int]:
    """A task that needs so many MiB, and keeps them."""
    kept: list[bytearray] = []

    def task(size: int) -> int:
        kept.append(bytearray(size * 1024**2))
        return os.getpid()

    return task


@pytest.fixture
def limited(rigs: Callable[..., Rig]) -> Rig:
    return rigs(task_memory=LIMIT)


@linux
def test_a_task_over_its_memory_is_an_error_that_names_the_limit_and_the_worker(limited: Rig) -> None:
    digest = limited.know(python_template(filling()))
    before, over, after = limited.run(digest, call(1), call(500), call(1))
    assert over.outcome is Outcome.ERROR
    kind, message, _, _ = error(over)
    assert kind == "MemoryError"
    assert message == "the limit is 268,435,456 bytes for a task on lab3-07 (deskgrid worker --task-memory)"
    assert value(before) != value(after), "what it kept is gone with its process"


@linux
def test_an_error_with_words_of_its_own_keeps_them(limited: Rig) -> None:
    def task() -> None:
        raise MemoryError("no room for a matrix")

    kind, message, trace, _ = error(limited.call(task))
    assert (kind, message) == ("MemoryError", "no room for a matrix")
    assert "deskgrid worker --task-memory" in trace


@linux
def test_the_limit_holds_for_what_a_task_starts_too(limited: Rig) -> None:
    program = f"x = bytearray({2 * LIMIT}); print(len(x))"
    (ended,) = limited.run(limited.know(command_template(sys.executable, "-c", program)), b"")
    assert ended.outcome is Outcome.ERROR
    assert b"MemoryError" in ended.stderr


@linux
def test_a_crash_says_that_memory_was_limited(limited: Rig) -> None:
    def task() -> None:
        os.abort()

    kind, message, _, _ = error(limited.call(task))
    assert kind == "Crash"
    assert message.endswith("; a task here may use at most 268,435,456 bytes of memory")


def test_without_a_limit_memory_is_not_limited(rig: Rig) -> None:
    assert value(rig.call(filling(), 400))


def test_a_memory_error_gives_the_next_task_a_new_process_in_any_case(rig: Rig) -> None:
    def task(last: bool) -> int:
        if last:
            raise MemoryError
        return os.getpid()

    before, over, after = rig.run(rig.know(python_template(task)), call(False), call(True), call(False))
    assert error(over)[:2] == ("MemoryError", "")
    assert value(before) != value(after)


@linux
def test_the_kernel_chooses_a_task_before_its_worker(rig: Rig) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    theirs = rig.call(lambda: __import__("pathlib").Path("/proc/self/oom_score_adj").read_text())
    assert int(value(theirs)) == 1000 >= own


# --- what is printed -------------------------------------------------------------------------------------------------


@posix
def test_a_command_that_prints_too_much_fails_with_the_size_of_all(rigs: Callable[..., Rig]) -> None:
    rig = rigs(result_limit=MIB)
    program = f"for _ in range(8): print('x' * {MIB - 1})"
    (ended,) = rig.run(rig.know(command_template(sys.executable, "-c", program)), b"")
    kind, message, _, _ = error(ended)
    assert kind == "ResultTooLarge"
    assert message == "the result has 8,388,608 bytes; the limit is 1,048,576"
