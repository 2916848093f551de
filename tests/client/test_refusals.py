"""What cannot be sent is refused in one sentence: where it is, what it is, and what to do."""

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import logging
import mmap
import multiprocessing
import multiprocessing.shared_memory
import os
import queue
import selectors
import shelve
import sqlite3
import sys
import tempfile
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deskgrid import task
from deskgrid.client.bag_files import KnownFiles
from deskgrid.client.payload import pack_call
from deskgrid.client.task import as_task
from deskgrid.client.template import pickle_function
from deskgrid.errors import BagRejected, PicklingFailed


class Holder:
    def __init__(self) -> None:
        self.data = {"k": [1, threading.Lock()]}


def refused(item: object) -> str:
    with pytest.raises(PicklingFailed) as caught:
        pack_call((item,), {}, "item 3")
    return str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (threading.Lock, "item 3 cannot be pickled: it is a lock"),
        (threading.RLock, "it is a lock"),
        (threading.Event, "it is a lock"),
        (Holder, r"item.data['k'][1] is a lock"),
        (lambda: [1, {"a": threading.Condition()}], "item[1]['a'] is a lock"),
        (multiprocessing.Lock, "it is a lock"),
        (lambda: multiprocessing.Value("i"), "it is memory that processes share: pass the values in it"),
        (threading.local, "it is data of a thread"),
        (lambda: contextvars.ContextVar("v"), "it is a ContextVar: it has its value only in this program"),
        (contextvars.copy_context, "it is a context of variables"),
        (lambda: (x for x in [1]), "it is a generator: pass a list"),
        (Future, "it is a Future: pass its value"),
        (lambda: ThreadPoolExecutor(1), "it is a pool of workers"),
        (lambda: weakref.ref(Holder), "it is a weak reference"),
        (queue.Queue, "it is a queue"),
        (sys._getframe, "it is part of a running program"),
    ],
)
def test_an_item_that_cannot_be_pickled_is_named(make: Callable[[], object], words: str) -> None:
    assert words in refused(make())


@pytest.mark.parametrize("mode", ["w", "r", "rb", "r+"])
def test_an_open_file_is_to_be_a_file(tmp_path: Path, mode: str) -> None:
    (tmp_path / "log").touch()
    with open(tmp_path / "log", mode) as file:
        assert "it is an open file: pass deskgrid.File(path)" in refused(file)


def test_something_else_is_called_by_its_type() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise TypeError("never")

    assert "Stubborn: make it in the task, or pass what it is made of (never)" in refused([Stubborn()])


class Linked(ctypes.Structure):
    _fields_ = (("after", ctypes.c_void_p),)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ctypes.pointer(ctypes.c_int(1)),
        lambda: ctypes.c_char_p(b"text"),
        lambda: ctypes.c_void_p(1),
        lambda: ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1),
    ],
)
def test_a_pointer_is_refused_with_what_to_pass_instead(make: Callable[[], object]) -> None:
    said = "it is a pointer of ctypes: it is an address in this process: pass the bytes or the array that it points to"
    assert said in refused(make())


def test_a_structure_with_a_pointer_is_refused_with_what_to_do() -> None:
    assert "Linked: make it in the task, or pass what it is made of" in refused(Linked())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (asyncio.new_event_loop, "it is an event loop: call asyncio.run(...) in the task"),
        (lambda: sqlite3.connect(":memory:"), "it is an open connection"),
    ],
)
def test_what_is_to_be_closed_is_named(make: Callable[[], Any], words: str) -> None:
    with contextlib.closing(make()) as item:
        assert words in refused(item)


def shared_memory() -> Any:
    made = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
    made.unlink()
    return made


def listed() -> Any:
    made = multiprocessing.shared_memory.ShareableList([1])
    made.shm.unlink()
    return made


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (tempfile.TemporaryDirectory, "it is a temporary folder: it is on this machine"),
        (lambda: weakref.finalize(Holder, print), "it is a weak reference"),
        (lambda: multiprocessing.Pipe()[0], "it is an open connection"),
        (shared_memory, "it is memory that processes share"),
        (listed, "it is memory that processes share"),
        (lambda: sys.version_info, "it is of type sys.version_info: make it in the task, or pass what it is made of"),
        (lambda: sys.float_info, "it is of type sys.float_info: make it in the task, or pass what it is made of"),
        (lambda: shelve.Shelf({}), "it is an open file"),
        (lambda: mmap.mmap(-1, 8), "it is a mapped file"),
        (lambda: min(os.scandir(Path(__file__).parent), key=os.fspath), "it is an entry of a folder: pass entry.path"),
        (logging.StreamHandler, "it is a handler of logs"),
        (lambda: ctypes.CDLL(None) if sys.platform != "win32" else ctypes.CDLL("msvcrt"), "it is a library"),
        (contextlib.contextmanager(lambda: (x for x in [1])), "it is a context manager"),
        (selectors.DefaultSelector, "it is an open connection"),
    ],
)
def test_what_is_only_here_or_would_be_closed_or_removed_there_is_refused_and_named(
    make: Callable[[], Any], words: str
) -> None:
    made = make()
    assert words in refused(made)
    assert f"item[1]{words.removeprefix('it')}" in refused((0, made))
    for end in ("cleanup", "close", "detach"):
        getattr(made, end, lambda: None)()


def test_what_is_nested_too_deeply_says_so() -> None:
    deep: list[object] = []
    for _ in range(20_000):
        deep = [deep]
    assert refused(deep) == "item 3 cannot be pickled: it is nested too deeply: pass a flat list, or an array"


def test_arguments_of_a_call_are_named() -> None:
    with pytest.raises(PicklingFailed, match=r"an argument of f cannot be pickled: argument 1 is a lock"):
        pack_call((1, threading.Lock()), {}, "an argument of f")
    with pytest.raises(PicklingFailed, match=r"an argument of f cannot be pickled: key is a lock"):
        pack_call((1,), {"key": threading.Lock()}, "an argument of f")


def test_a_variable_of_a_function_is_named() -> None:
    guard = threading.Lock()

    def inner() -> object:
        return guard

    def outer() -> object:
        return inner()

    with pytest.raises(PicklingFailed, match=r"the function .*outer cannot be pickled: the variable guard is a lock"):
        pickle_function(outer)


async def coroutine(_: int) -> None:
    pass


async def async_generator(_: int) -> AsyncIterator[int]:
    yield 1


def generator(_: int) -> Iterator[int]:
    yield 1


class Called:
    async def __call__(self, _: int) -> None:
        pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (coroutine, r"coroutine is an async function, .*asyncio.run\(coroutine"),
        (Called(), "Called is an async function"),
        (async_generator, "async_generator is an async generator"),
        (generator, r"generator is a generator function, .* as in list\(generator"),
        (functools.partial(generator), "generator is a generator function"),
    ],
)
@pytest.mark.parametrize("make", [as_task, task])
def test_a_function_whose_call_would_not_run_it_is_refused(make: Any, function: Any, words: str) -> None:
    with pytest.raises(BagRejected, match=words):
        make(function)


def test_a_function_that_brings_much_names_its_largest_variable_once(caplog: pytest.LogCaptureFixture) -> None:
    table, small = bytes(11 * 2**20), 1

    def heavy() -> object:
        return table, small

    pickle_function(heavy)
    pickle_function(heavy)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "its variable table has 11," in said
    assert "grid.share(table)" in said


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes among files")
def test_a_named_pipe_is_refused_at_once_although_nobody_writes_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    for path in (folder / "pipe", folder):
        with pytest.raises(BagRejected, match=r"pipe is neither a file nor a folder"):
            KnownFiles().at(str(path))
