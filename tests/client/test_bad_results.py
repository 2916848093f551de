"""One bad result fails one task's future, and nothing else: not the loop, not the thread that settles, not the link."""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgpack
import pytest

from deskgrid import Grid, wire
from deskgrid.client.payload import Raised, add_note, said_of, value_of
from deskgrid.errors import RemoteError, RequestFailed, ResultUnreadable, TaskError
from deskgrid.wire import BagResult, Outcome
from tests.client.fakebroker import FakeGrid
from tests.waiting import eventually

# What an account may be that no honest process makes: nested deeper than Python likes, a map, a class of its own.
NESTED = b"\x94\xa1k" + b"\x91" * 1000 + b"\x90\xa1t\xc4\x00"
ACCOUNTS = [NESTED, b"\x91" * 100_000, b"", b"\xc1", msgpack.packb({"kind": "k"}), msgpack.packb([1, 2, 3, 4])]


class Raises(Exception):
    """An exception that raises wherever it can: when it is shown, compared, noted, changed."""

    def __str__(self) -> str:
        raise SystemExit("str")

    def __repr__(self) -> str:
        raise GeneratorExit

    def __bool__(self) -> bool:
        raise ValueError("bool")

    def __setattr__(self, name: str, value: object) -> None:
        raise ValueError("setattr")

    def add_note(self, note: str) -> None:
        raise SystemExit("add_note")


class Deep(Exception):
    """An exception that cannot be shown, for it contains itself."""

    def __str__(self) -> str:
        return str(self)


class Linked(Exception):
    """An exception whose cause and context are code of its own."""

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise SystemExit("cause")

    __context__ = __cause__


class Path:
    """A path that raises when it is used."""

    def __fspath__(self) -> str:
        raise SystemExit("path")


class Text(str):
    """A text that raises when it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise SystemExit("text")


class Missing(ModuleNotFoundError):
    """An error about a module that has no name."""

    @property
    def name(self) -> str:  # type: ignore[override]
        raise SystemExit("name")


class NoFile(FileNotFoundError):
    """An error about a file whose name is code."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        super().__init__(kind)

    @property
    def filename(self) -> object:
        return self.kind("/e") if self.kind is Text else self.kind()


class Odd(Exception):
    """An exception with notes that are none."""


ODD = Odd("odd")
vars(ODD)["__notes__"] = 7


class Loud:
    """Raises ``error`` when it is unpickled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return _raise, (self.error,)


def _raise(error: BaseException) -> None:
    raise error


def _recurse() -> None:
    _recurse()


class Endless:
    """Recurses without end when it is unpickled."""

    def __reduce__(self) -> Any:
        return _recurse, ()


LOUD = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError("deep"), MemoryError(), Raises(), Missing()]
PICKLES = [
    b"",
    b"no pickle",
    b"\x80\x05" + b"(" * 100_000,
    *map(pickle.dumps, map(Loud, LOUD)),
    pickle.dumps(Endless()),
]
ERRORS = [Raises("a", "b"), Deep("c"), ODD, Linked("d"), NoFile(Path), NoFile(Text)]


def in_thread(action: Callable[[], Any]) -> Any:
    """What ``action`` returns on a thread other than the main one; fails if it raises."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(AssertionError(f"it raised {type(error).__name__}"))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return future.result(0)


def done(payload: bytes) -> BagResult:
    return BagResult(0, Outcome.DONE, 0.5, "pc1", payload)


def failed(payload: bytes, outcome: Outcome = Outcome.ERROR) -> BagResult:
    return BagResult(0, outcome, 0.5, "pc1", payload)


@pytest.mark.parametrize("payload", PICKLES, ids=lambda payload: repr(payload[-30:]))
def test_a_value_that_cannot_be_read_is_that_tasks_failure(payload: bytes) -> None:
    value = in_thread(lambda: value_of(done(payload), "bag"))
    assert isinstance(value, Raised)
    assert type(value.error) is ResultUnreadable
    assert str(value.error).isprintable()


@pytest.mark.parametrize("payload", ACCOUNTS, ids=lambda payload: repr(payload[:12]))
@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT])
def test_an_account_that_cannot_be_read_is_that_tasks_failure(payload: bytes, outcome: Outcome) -> None:
    value = value_of(failed(payload, outcome), "bag")
    assert isinstance(value, Raised)
    assert isinstance(value.error, TaskError)
    assert "what the worker said of it cannot be read" in str(value.error)


@pytest.mark.parametrize("pickled", PICKLES, ids=lambda payload: repr(payload[-30:]))
def test_an_exception_that_cannot_be_rebuilt_is_told_in_words(pickled: bytes) -> None:
    account = wire.Failure("Odd", "what it said", "its traceback", pickled).packed()
    value = in_thread(lambda: value_of(failed(account), "bag"))
    assert isinstance(value, Raised)
    assert type(value.error) is RemoteError
    assert str(value.error) == "Odd: what it said"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_that_resists_is_given_as_it_is(error: Exception) -> None:
    account = wire.Failure("Odd", "what it said", "its traceback", pickle.dumps(error)).packed()
    value = in_thread(lambda: value_of(failed(account), "bag"))
    assert isinstance(value, Raised)
    assert type(value.error) is type(error)
    in_thread(lambda: add_note(value.error, "another note"))
    assert isinstance(in_thread(lambda: said_of(value.error)), str)


def test_ctrl_c_in_the_main_thread_is_not_taken_for_a_result() -> None:
    with pytest.raises(KeyboardInterrupt):
        value_of(done(pickle.dumps(Loud(KeyboardInterrupt()))), "bag")


# --- a whole grid ----------------------------------------------------------------------------------------------------


def bad_payload(item: int) -> tuple[Outcome, bytes]:
    """What becomes of task ``item``: every third one succeeds, the others are as bad as can be."""
    if item % 3 == 0:
        return Outcome.DONE, pickle.dumps(item)
    if item % 3 == 1:
        account = wire.Failure("Raises", "no", "", pickle.dumps(Raises())).packed() if item % 2 else NESTED
        return Outcome.ERROR, account
    # What is taken for Ctrl-C in the main thread has a test of its own.
    bad = [payload for payload in PICKLES if b"KeyboardInterrupt" not in payload]
    return Outcome.DONE, bad[item % len(bad)]


TASKS = 30
GOOD = [item for item in range(TASKS) if item % 3 == 0]


def end_all(fake: FakeGrid, bag: str) -> None:
    """Have the tasks of a bag end."""
    for item in range(TASKS):
        fake.broker.end(bag, item, *bad_payload(item))


def test_a_loop_over_results_gets_every_one(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(abs, range(TASKS))
    end_all(fake, bag.id)
    found = dict(bag.as_completed(errors="return"))
    assert len(found) == TASKS
    assert [found[item] for item in GOOD] == GOOD
    assert all(isinstance(found[item], Exception) for item in range(TASKS) if item not in GOOD)


def test_the_first_failure_is_raised_after_the_others_have_come(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    bag = grid.bag(abs, range(TASKS))
    end_all(fake, bag.id)
    results = bag.as_completed()
    assert [next(results)[0] for _ in GOOD] == GOOD
    with pytest.raises(Raises):
        next(results)


def test_every_future_is_settled_whatever_its_callbacks_do(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    futures = [grid.submit(abs, item) for item in range(TASKS)]
    for future in futures[::2]:
        future.add_done_callback(_exit)
    eventually(lambda: sum(len(bag.payloads) for bag in fake.memory.bags.values()) == TASKS)
    (bag,) = fake.memory.bags
    end_all(fake, bag)
    errors = [in_thread(lambda future=future: future.exception(30.0)) for future in futures]  # type: ignore[misc]
    assert [errors[item] for item in GOOD] == [None] * len(GOOD)
    assert sum(isinstance(error, Exception) for error in errors) == TASKS - len(GOOD)
    fake.memory.hold = False
    assert grid.submit(abs, -1).result(30.0) == 1


def _exit(_future: "Future[Any]") -> None:
    raise SystemExit("a callback that would end the thread")


def test_an_answer_that_cannot_be_used_fails_its_request_alone(fake: FakeGrid, grid: Grid) -> None:
    heard: list[object] = []

    def handler(reply: object) -> None:
        heard.append(reply)
        if len(heard) == 1:
            raise ZeroDivisionError

    grid._link.send(wire.Ask(grid._link.number(), "ping"), handler)
    fake.broker.answers["ping"] = {}
    eventually(lambda: len(heard) == 2)
    assert isinstance(heard[1], RequestFailed)
    fake.broker.answers["bags"] = {"bags": []}
    assert grid.bags() == []
