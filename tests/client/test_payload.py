"""Arguments out, results and exceptions back."""

import os
import pickle
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle
import msgpack
import pytest

from deskgrid import File, wire
from deskgrid.client.payload import Raised, pack_call, pack_text, share, value_of
from deskgrid.client.template import command_template
from deskgrid.errors import (
    BagRejected,
    PicklingFailed,
    RemoteError,
    RemoteTraceback,
    ResultUnreadable,
    TaskCancelled,
    TaskCrashed,
    TaskTimeout,
)
from deskgrid.wire import CHUNK_BYTES, LARGE_BYTES, VALUE_BYTES, Chunks, Outcome, Payload, read_template
from tests.client.carrying import reached_by


def ended(outcome: Outcome, payload: Payload = b"") -> Any:
    return value_of(wire.BagResult(7, outcome, 1.5, "lab3-04", payload), "b1")


def failed(outcome: Outcome, *parts: object) -> Exception:
    value = ended(outcome, msgpack.packb(list(parts)))
    assert isinstance(value, Raised)
    return value.error


# --- out -------------------------------------------------------------------------------------------------------------


def test_arguments_are_plain_pickles_of_args_and_kwargs() -> None:
    assert pickle.loads(bytes(pack_call((1, "two"), {"three": 3}, "it"))) == ((1, "two"), {"three": 3})


@pytest.fixture
def of_the_program() -> Iterator[type]:
    """A class of `__main__`, as a script defines it; another process has no such class."""
    kind = type("Parameters", (), {"__module__": "__main__", "speed": 3})
    main = sys.modules["__main__"]
    vars(main)["Parameters"] = kind
    yield kind
    del vars(main)["Parameters"]


def test_an_object_of_the_program_travels_with_its_class(of_the_program: type) -> None:
    packed = bytes(pack_call((of_the_program(),), {}, "it"))
    assert b"speed" in packed
    assert b"speed" not in pickle.dumps(of_the_program())


def test_a_large_argument_is_not_copied() -> None:
    data = os.urandom(LARGE_BYTES)
    packed = pack_call((data, 1), {}, "it")
    assert isinstance(packed, Chunks)
    assert any(frame.obj is data for frame in packed.frames())
    assert pickle.loads(bytes(packed)) == ((data, 1), {})


def test_one_that_could_be_changed_meanwhile_is_as_it_was() -> None:
    data = bytearray(LARGE_BYTES)
    packed = pack_call((data,), {}, "it")
    data[:] = bytes([1]) * LARGE_BYTES
    assert pickle.loads(bytes(packed)) == ((bytes(LARGE_BYTES),), {})


def test_an_argument_that_is_only_large_here_is_a_small_payload() -> None:
    many = [None] * (LARGE_BYTES // 8)
    packed = pack_call((many,), {}, "it")
    assert isinstance(packed, bytes)
    assert pickle.loads(packed) == ((many,), {})


def test_an_object_of_the_program_travels_with_its_class_beside_a_large_argument(of_the_program: type) -> None:
    for beside in (of_the_program(), lambda: None):
        packed = pack_call((bytes(LARGE_BYTES), beside), {}, "it")
        assert b"cloudpickle" in bytes(packed) or b"deskgrid.rebuilt" in bytes(packed)
    with pytest.raises(BagRejected, match="the limit is"):
        pack_call((bytes(VALUE_BYTES),), {}, "it")


def test_a_lambda_can_be_an_argument() -> None:
    ((function,), _) = pickle.loads(bytes(pack_call((lambda x: x + 1,), {}, "it")))
    assert function(1) == 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (threading.Lock(), r"the object to share, lock, cannot be pickled: .*lock"),
        ([File("data.csv")], r"the object to share, list, .*: it contains a File, data.csv: pass files beside"),
        ((share(1),), r"the object to share, tuple, .*: it contains a shared object: pass one beside the other"),
    ],
)
def test_what_cannot_be_shared_is_named_with_the_reason(value: object, reason: str) -> None:
    with pytest.raises(PicklingFailed, match=reason):
        share(value)


@pytest.mark.parametrize("before", [0, 2**20 - 20, 2**20, 3 * 2**20])
def test_a_shared_object_names_the_modules_of_all_its_parts(before: int) -> None:
    assert "tests.client.carrying" in share([bytes(before), reached_by]).modules


def test_what_cannot_be_pickled_is_named_with_the_reason() -> None:
    with pytest.raises(PicklingFailed, match=r"item 3 cannot be pickled: .*lock"):
        pack_call((threading.Lock(),), {}, "item 3")


def test_an_argument_above_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(BagRejected, match=rf"item 3 has 2,147,\d\d\d,\d\d\d bytes; the limit is {VALUE_BYTES:,}"):
        pack_call((bytes(VALUE_BYTES),), {}, "item 3")


def test_a_commands_item_is_text() -> None:
    assert pack_text("größe", "item 0") == "größe".encode()
    with pytest.raises(BagRejected, match="item 0 is not text but int"):
        pack_text(3, "item 0")


@pytest.mark.skipif(sys.platform == "win32", reason="there words of commands are text")
def test_a_commands_item_may_have_bytes_that_are_not_utf_8() -> None:
    assert pack_text(os.fsdecode(b"caf\xe9"), "item 0") == b"caf\xe9"
    with pytest.raises(BagRejected, match=r"not text but bytes: a command's items are texts: use os\.fsdecode"):
        pack_text(b"caf\xe9", "item 0")


def test_a_commands_item_with_a_nul_is_refused_by_name() -> None:
    with pytest.raises(BagRejected, match="item 3 has a NUL character, which no command line can hold"):
        pack_text("a\0b", "item 3")


def test_half_a_character_is_refused_by_name() -> None:
    with pytest.raises(PicklingFailed, match="item 0 has a character that stands for no byte"):
        pack_text("\ud800", "item 0")


# --- back ------------------------------------------------------------------------------------------------------------


def test_a_result_is_unpickled() -> None:
    assert ended(Outcome.DONE, pickle.dumps({"a": 1})) == {"a": 1}


@pytest.mark.parametrize("step", [CHUNK_BYTES, 77_777])
def test_a_large_result_is_unpickled_from_the_frames_that_it_came_in(step: int) -> None:
    value = [os.urandom(LARGE_BYTES), list(range(100_000)), os.urandom(5), "text" * 100_000]
    data = memoryview(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    frames = [data[start : start + step] for start in range(0, len(data), step)]
    assert ended(Outcome.DONE, Chunks(frames)) == value
    cut_off = ended(Outcome.DONE, Chunks(frames[:-1]))
    assert isinstance(cut_off, Raised)
    assert isinstance(cut_off.error, ResultUnreadable)


def test_a_returned_exception_is_a_value() -> None:
    assert isinstance(ended(Outcome.DONE, pickle.dumps(ValueError("x"))), ValueError)


def test_a_result_that_cannot_be_unpickled_says_which_and_why() -> None:
    value = ended(Outcome.DONE, b"cno_such_module\nThing\n.")
    assert isinstance(value, Raised)
    assert isinstance(value.error, ResultUnreadable)
    assert "task 7 of bag b1 on lab3-04" in str(value.error)
    assert "no_such_module" in str(value.error)


def test_a_tasks_exception_is_itself_with_the_traceback_it_had() -> None:
    error = failed(Outcome.ERROR, "KeyError", "'k'", "Traceback: over there", pickle.dumps(KeyError("k")))
    assert isinstance(error, KeyError)
    assert error.args == ("k",)
    assert isinstance(error.__cause__, RemoteTraceback)
    shown = "".join(traceback.format_exception(error))
    assert "Traceback: over there" in shown
    assert "raised by task 7 of bag b1 on lab3-04 after 1.5 s" in shown


class Unreadable(Exception):
    """Comes back from a pickle by an error."""

    def __reduce__(self) -> Any:
        return _raise, ()


def _raise() -> NoReturn:
    raise OSError("not here")


@pytest.mark.parametrize("pickled", [b"", b"garbage", pickle.dumps(Unreadable()), pickle.dumps("no exception")])
def test_an_exception_that_cannot_be_rebuilt_is_told(pickled: bytes) -> None:
    error = failed(Outcome.ERROR, "AstroError", "no stars", "Traceback: over there", pickled)
    assert isinstance(error, RemoteError)
    assert str(error) == "AstroError: no stars"
    assert "over there" in str(error.__cause__)


def test_a_tasks_exit_does_not_end_this_program() -> None:
    error = failed(Outcome.ERROR, "SystemExit", "3", "", cloudpickle.dumps(SystemExit(3)))
    assert isinstance(error, RemoteError)


@pytest.mark.parametrize(
    ("outcome", "kind", "text"),
    [
        (Outcome.CRASH, TaskCrashed, "task 7 of bag b1 on lab3-04 after 1.5 s ended its process: SIGSEGV"),
        (Outcome.TIMEOUT, TaskTimeout, "task 7 of bag b1 on lab3-04 after 1.5 s ran longer than its timeout: SIGSEGV"),
    ],
)
def test_what_befell_a_task_has_a_type_and_a_place(outcome: Outcome, kind: type, text: str) -> None:
    error = failed(outcome, "Died", "SIGSEGV", "", b"")
    assert type(error) is kind
    assert str(error) == text


def test_how_long_a_task_ran_is_told_in_minutes_and_hours() -> None:
    payload = wire.Failure("Died", "SIGSEGV", "", b"").packed()
    value = value_of(wire.BagResult(7, Outcome.CRASH, 3660.0, "lab3-04", payload), "b1")
    assert isinstance(value, Raised)
    assert str(value.error) == "task 7 of bag b1 on lab3-04 after 1 h 01 min ended its process: SIGSEGV"


def test_a_cancelled_task_says_so() -> None:
    value = value_of(wire.BagResult(7, Outcome.CANCELLED, 0.0, "", b""), "b1")
    assert isinstance(value, Raised)
    assert isinstance(value.error, TaskCancelled)
    assert str(value.error) == "task 7 of bag b1 was cancelled"


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgpack.packb(3), msgpack.packb([1, 2])])
def test_an_error_that_is_not_one_is_an_error_all_the_same(payload: bytes) -> None:
    value = ended(Outcome.ERROR, payload)
    assert isinstance(value, Raised)
    assert isinstance(value.error, RemoteError)


def test_a_path_that_is_only_on_this_machine_is_said_to_be(tmp_path: Path) -> None:
    here = tmp_path / "data.csv"
    here.write_text("1")
    for path, where in ((here, "on your machine"), (tmp_path / "none", "of their PC")):
        error = failed(Outcome.ERROR, "FileNotFoundError", "", "", pickle.dumps(FileNotFoundError(2, "no", str(path))))
        assert [where in note for note in error.__notes__ if f"File({str(path)!r})" in note] == [True]


def test_a_result_of_another_version_of_a_library_says_so() -> None:
    value = ended(Outcome.DONE, b"cmsgpack.nowhere\nx\n.")
    assert isinstance(value, Raised)
    assert "another version of msgpack" in str(value.error)


def test_a_result_with_a_path_of_another_system_says_so() -> None:
    other = "WindowsPath" if os.name == "posix" else "PosixPath"
    value = ended(Outcome.DONE, f"cpathlib\n{other}\n(Vx\ntR.".encode())
    assert isinstance(value, Raised)
    assert "a path of another system" in str(value.error)


# --- commands --------------------------------------------------------------------------------------------------------


def test_a_word_of_a_command_that_is_not_utf_8_travels_as_its_bytes() -> None:
    template = command_template(["echo", "é", "caf\udce9"])
    assert read_template(template.data)["argv"] == ["echo", "é", b"caf\xe9"]
    with pytest.raises(BagRejected, match="word 1 of the command has a character that stands for no byte"):
        command_template(["echo", "\ud800"])


def test_a_word_of_a_command_with_a_nul_is_refused_by_its_number() -> None:
    with pytest.raises(BagRejected, match="word 1 of the command has a NUL character"):
        command_template(["echo", "a\0b"])
