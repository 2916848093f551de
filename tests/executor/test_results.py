"""The result of a task: its value, or an error that names the cause."""

import sys
import threading
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

import pytest

from deskgrid.errors import RemoteError
from deskgrid.raised import put_together
from deskgrid.wire import Outcome
from deskgrid.worker.run import child
from deskgrid.worker.run.process import PIPE_BYTES
from tests.executor.rig import HERE, NAME, Rig, call, error, python_template, value


def test_the_numbers_of_outcomes_are_those_of_the_protocol() -> None:
    assert (child.DONE, child.ERROR) == (Outcome.DONE, Outcome.ERROR)


def test_a_batch_comes_back_in_order_with_its_values(rig: Rig) -> None:
    ended = rig.run(rig.know(python_template(lambda x: x * x)), *[call(x) for x in range(50)])
    assert [value(one) for one in ended] == [x * x for x in range(50)]
    assert [(one.slot, one.task, one.number) for one in ended] == [(0, x, 1) for x in range(50)]
    assert all(0 <= one.elapsed < 5 for one in ended)


def test_positional_and_keyword_arguments_arrive(rig: Rig) -> None:
    assert value(rig.call(lambda *args, **kwargs: (args, kwargs), 1, "two", three=3)) == ((1, "two"), {"three": 3})


def test_an_exception_comes_back_with_the_users_frames_only(rig: Rig) -> None:
    def inner(x: int) -> None:
        raise KeyError(f"no {x}")

    def outer(x: int) -> None:
        inner(x)

    ended = rig.call(outer, 7)
    kind, message, trace, pickled = error(ended)
    assert (ended.outcome, kind, message) == (Outcome.ERROR, "KeyError", "'no 7'")
    assert ", in outer" in trace
    assert ", in inner" in trace
    assert trace.endswith("KeyError: 'no 7'\n")
    assert "child.py" not in trace
    assert repr(put_together(pickled, RemoteError, "")) == "KeyError('no 7')"


def test_an_exception_class_of_the_users_script_comes_back_as_itself(rig: Rig) -> None:
    class MineError(Exception):
        pass

    def task(kind: type[Exception]) -> None:
        raise kind("mine")

    kind, message, _, pickled = error(rig.call(task, MineError))
    assert (kind.rpartition(".")[2], message) == ("MineError", "mine")
    assert isinstance(put_together(pickled, RemoteError, ""), MineError)


def test_an_exception_with_a_constructor_of_its_own_comes_back_with_its_text(rig: Rig) -> None:
    def task() -> None:
        class FussyError(Exception):
            def __init__(self, one: int, two: int) -> None:
                super().__init__(f"{one} and {two}")

        raise FussyError(1, 2)

    _, message, trace, pickled = error(rig.call(task))
    assert (message, str(put_together(pickled, RemoteError, ""))) == ("1 and 2", "1 and 2")
    assert "1 and 2" in trace


def test_a_task_that_raises_stop_iteration_does_not_end_a_loop_of_the_program(rig: Rig) -> None:
    kind, message, _, pickled = error(rig.call(lambda: next(iter(()))))
    assert (kind, message) == ("RuntimeError", "the task raised StopIteration")
    assert isinstance(put_together(pickled, RemoteError, ""), RuntimeError)


def test_an_exception_without_a_printable_message_is_an_error_all_the_same(rig: Rig) -> None:
    def silent() -> None:
        class SilentError(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        raise SilentError

    def half() -> None:
        raise ValueError("half a character: \ud800")

    def long() -> None:
        raise ValueError("x" * 10_000_000)

    assert "cannot be made: RuntimeError" in error(rig.call(silent))[1]
    assert error(rig.call(half))[1] == "half a character: ?"
    _, message, trace, _ = error(rig.call(long))
    assert "characters cut" in message
    again = put_together(error(rig.call(long))[3], RemoteError, "")
    assert isinstance(again, ValueError)
    assert "characters cut" in str(again)
    assert len(message) + len(trace) < 200_000


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exit_raised_by_a_task_is_its_error_and_the_process_goes_on(rig: Rig, kind: type[BaseException]) -> None:
    def task() -> None:
        raise kind("enough")

    before = rig.pid()
    ended = rig.call(task)
    assert ended.outcome is Outcome.ERROR
    assert error(ended)[:2] == (kind.__name__, "enough")
    assert error(ended)[3] == b"", "raised again at the client, it would end the client"
    assert rig.pid() == before


class Stubborn:
    def __reduce__(self) -> Any:
        raise PicklingError("cannot pickle it")


@pytest.mark.parametrize(("kind", "raised"), [(threading.Lock, TypeError), (Stubborn, PicklingError)])
def test_an_unpicklable_result_is_an_error_that_names_it(
    rig: Rig, kind: Callable[[], object], raised: type[Exception]
) -> None:
    before = rig.pid()
    ended = rig.call(kind)
    failure, message, _, pickled = error(ended)
    assert (ended.outcome, failure) == (Outcome.ERROR, "ResultNotPicklable")
    assert f"type {type(kind()).__name__}" in message
    assert "cannot pickle" in message
    assert rig.pid() == before
    again = put_together(pickled, RemoteError, message)
    assert isinstance(again, RemoteError)
    assert isinstance(again, raised), "it is caught as that of a process pool is"


def test_a_result_of_the_users_own_class_comes_back_as_that_class(rig: Rig) -> None:
    class Mine:
        def __init__(self, x: int) -> None:
            self.x = x

    mine = value(rig.call(lambda kind: kind(5), Mine))
    assert isinstance(mine, Mine)
    assert mine.x == 5


def test_a_result_over_the_limit_is_an_error_with_both_sizes(rigs: Callable[..., Rig]) -> None:
    rig = rigs(result_limit=100_000)
    before = rig.pid()
    ended = rig.call(lambda: bytes(2**31))
    kind, message, _, _ = error(ended)
    assert (ended.outcome, kind) == (Outcome.ERROR, "ResultTooLarge")
    assert "2,147,483,6" in message
    assert f"{child.VALUE_LIMIT:,}" in message
    assert len(value(rig.call(lambda: b"x" * 99_000))) == 99_000
    assert rig.pid() == before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a pipe is as large as it is")
def test_pipes_hold_more_than_they_do_by_themselves(rig: Rig) -> None:
    import fcntl

    rig.pid()
    process = rig.executor._slots[0].process
    assert process is not None
    for pipe in (process._started.stdin, process._started.stdout):
        assert fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) == PIPE_BYTES


def test_a_large_argument_and_a_large_result_pass(rig: Rig) -> None:
    megabytes = b"x" * 8_000_000
    digest = rig.know(python_template(lambda data: data + b"y"))
    assert [len(value(one)) for one in rig.run(digest, call(megabytes), call(b""), call(megabytes))] == [
        8_000_001,
        1,
        8_000_001,
    ]


def test_a_module_that_is_missing_here_is_named_with_the_worker(rig: Rig) -> None:
    # Pickles by hand: "function" of a module that nobody has, and a call with such an argument.
    in_function, again = rig.run(rig.know(python_template(b"cnowhere\nfunction\n.")), call(), call())
    in_argument = rig.run(rig.know(python_template(lambda x: x)), b"((cnowhere\nargument\nt}\x86.")[0]
    for ended in (in_function, again, in_argument):
        kind, message, _, _ = error(ended)
        assert (ended.outcome, kind) == (Outcome.ERROR, "ModuleNotFoundError")
        assert message.startswith(f"module 'nowhere' is not installed on {NAME} (Python {HERE} at ")


def test_a_module_that_a_task_imports_in_vain_is_named_with_what_to_do(rig: Rig) -> None:
    def imports(name: str) -> None:
        __import__(name)

    digest = rig.know(python_template(imports, {"lab/__init__.py": b""}))
    (_, own, _, _), (_, other, _, _) = map(error, rig.run(digest, call("lab.plugins"), call("nowhere")))
    assert own == "module 'lab.plugins' did not travel with the bag: name it in the bag's modules=[...]"
    assert other.startswith(f"module 'nowhere' is not installed on {NAME} ")


def test_a_bag_of_another_python_is_refused_with_both_versions(rig: Rig) -> None:
    (ended,) = rig.run(rig.know(python_template(lambda: 1, python="2.7")), call())
    kind, message, _, _ = error(ended)
    assert (ended.outcome, kind) == (Outcome.ERROR, "PythonVersionMismatch")
    assert "Python 2.7" in message
    assert f"{NAME} (Python {HERE} at " in message


def test_arguments_that_make_no_sense_are_an_error_of_that_task_only(rig: Rig) -> None:
    bad, good = rig.run(rig.know(python_template(lambda: 1)), b"garbage", call())
    assert bad.outcome is Outcome.ERROR
    assert value(good) == 1
