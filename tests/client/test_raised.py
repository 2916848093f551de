"""Exceptions are taken apart in a task and put together in the program, whatever their constructors are."""

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from deskgrid.errors import RemoteError
from deskgrid.raised import put_together, taken_apart

LIMIT = 64 * 1024


class BuiltTextError(Exception):
    def __init__(self, step: int) -> None:
        super().__init__(f"failed at step {step}")
        self.step = step


class TwoArgumentsError(Exception):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class KeywordError(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class UnpicklableError(Exception):
    def __reduce__(self) -> Any:
        raise TypeError


class LockedError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class SilentError(Exception):
    def __init__(self, said: str = "default") -> None:
        super().__init__()
        self.said = said

    def __str__(self) -> str:
        return f"it says {self.said}"


class PathError(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "cannot read", path)


class SlotError(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__("slots")
        self.code = code


class HidingError(OSError):
    """Has properties of the names that every exception, and every OSError, has."""

    @property
    def args(self) -> Any:  # type: ignore[override]
        return ("hidden",)

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise ValueError

    __context__ = __suppress_context__ = __cause__

    @property
    def filename(self) -> str:
        return "computed"

    @property
    def filename2(self) -> Any:
        raise ValueError


def dumps(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:
        return bytes(cloudpickle.dumps(value))


def sent(error: BaseException, limit: int = LIMIT) -> Any:
    packed = taken_apart(error, dumps, limit)
    assert len(packed) <= limit
    return put_together(packed, RemoteError, f"{type(error).__name__}: {error}")


def raised(action: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it is
        action()
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        BuiltTextError(3),
        TwoArgumentsError("/x", "missing"),
        KeywordError(code=7),
        UnpicklableError("text"),
        SilentError("more"),
        PathError("/data/x"),
        SlotError(7),
        KeyError("k"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        raised(lambda: json.loads("{")),
        subprocess.CalledProcessError(3, ["sh"], b"out", b"err"),
        pytest.param(
            raised(lambda: os.stat("/there/is/none")),
            marks=pytest.mark.skipif(sys.platform == "win32", reason="pickles lack the number of Windows"),
        ),
        raised(lambda: compile("a b", "file.py", "exec")),
        raised(lambda: __import__("there_is_none")),
    ],
)
def test_an_exception_is_what_it_was(error: BaseException) -> None:
    again = sent(error)
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
    assert vars(again) == vars(error)
    for name in ("code", "errno", "filename", "lineno", "name", "object"):
        assert getattr(again, name, None) == getattr(error, name, None)


def test_an_attribute_that_cannot_be_pickled_is_text() -> None:
    again = sent(LockedError("text"))
    assert (type(again), str(again)) == (LockedError, "text")
    assert "lock object" in again.lock


def test_the_members_of_a_group_are_what_they_were() -> None:
    group = sent(ExceptionGroup("several", [ValueError("v"), BuiltTextError(3), ExceptionGroup("in", [KeyError("k")])]))
    assert [str(each) for each in group.exceptions] == ["v", "failed at step 3", "in (1 sub-exception)"]
    matching, rest = group.split(BuiltTextError)
    assert matching.exceptions[0].step == 3
    assert len(rest.exceptions) == 2


def test_causes_contexts_and_notes_come_along() -> None:
    try:
        try:
            raise BuiltTextError(3)
        except BuiltTextError as cause:
            raise ValueError("outer") from cause
    except ValueError as error:
        error.add_note("look at /x")
        again = sent(error)
    assert (type(again.__cause__), again.__cause__.step) == (BuiltTextError, 3)
    assert again.__context__ is again.__cause__
    assert again.__notes__ == ["look at /x"]
    assert again.__suppress_context__


def test_a_chain_that_returns_to_itself_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__context__, two.__context__ = two, one
    again = sent(one)
    assert again.__context__.args == ("two",)
    assert again.__context__.__context__ is again
    one.args, one.itself = (two, one), one  # type: ignore[attr-defined]
    again = sent(one)
    assert again.itself is again


def test_an_exception_of_megabytes_keeps_its_type() -> None:
    long = sent(ValueError("x" * 10**6))
    assert type(long) is ValueError
    assert "characters cut" in str(long)
    heavy = BuiltTextError(1)
    heavy.data = bytes(10**6)  # type: ignore[attr-defined]
    assert (str(sent(heavy)), sent(heavy).step) == ("failed at step 1", 1)


def without_its_type(error: Exception) -> Any:
    """What arrives where the type of an exception is not installed."""
    tree = pickle.loads(taken_apart(error, dumps, LIMIT))
    tree["names"][0] = ("not_installed", "SomeError")
    tree["kind"] = b"cnot_installed\nSomeError\n."
    return put_together(pickle.dumps(tree), RemoteError, "SomeError: text")


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, FileNotFoundError, SyntaxError, ImportError])
def test_an_exception_of_a_type_that_is_not_here_is_caught_by_its_base(kind: type[Exception]) -> None:
    error = without_its_type(type("SomeError", (kind,), {})("text"))
    assert isinstance(error, RemoteError)
    assert isinstance(error, kind)
    assert str(error) == "SomeError: text"
    assert type(pickle.loads(pickle.dumps(error))) is RemoteError


def test_a_group_of_a_type_that_is_not_here_is_text() -> None:
    class SomeGroup(ExceptionGroup[Exception]):
        pass

    assert type(without_its_type(SomeGroup("several", [ValueError()]))) is RemoteError


def test_an_exception_that_would_end_the_program_is_not_made() -> None:
    assert sent(SystemExit(3)) is None
    assert put_together(pickle.dumps(KeyboardInterrupt()), RemoteError, "") is None


def test_an_exception_as_earlier_workers_sent_it_is_taken() -> None:
    assert isinstance(put_together(pickle.dumps(KeyError("k")), RemoteError, ""), KeyError)


@pytest.mark.parametrize("limit", [LIMIT, 300])
def test_properties_that_hide_what_every_exception_has_are_no_obstacle(limit: int) -> None:
    error = HidingError(2, "text")
    vars(BaseException)["__cause__"].__set__(error, ValueError("cause"))
    again = sent(error, limit)
    assert isinstance(again, HidingError)
    if limit == LIMIT:
        assert (type(again), str(again), again.strerror, again.filename) == (
            HidingError,
            str(error),
            "text",
            "computed",
        )
        assert repr(vars(BaseException)["__cause__"].__get__(again)) == "ValueError('cause')"
