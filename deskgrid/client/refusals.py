"""Says in one sentence why something cannot be sent: which item or variable it is in, what it is, and what to do."""

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from deskgrid.client.by_value import pickle_by_value
from deskgrid.client.generators import importable, within
from deskgrid.errors import BagRejected, PicklingFailed

log = logging.getLogger("deskgrid.client")

# A function that brings more than this is worth a warning. Bytes.
HEAVY_BYTES = 10 * 2**20
# Of one object, so many parts are looked at; and so many levels deep.
_PARTS = 10_000
_DEPTH = 30
_warned: set[str] = set()

_MAKE_IT = "it belongs to this process: make one in the task, or leave it out"
# Types by their names, so that nothing is imported for them; what people call them, and what to do.
_KINDS = (
    (
        "_thread.LockType _thread.RLock threading.Condition threading.Event threading.Semaphore threading.Barrier "
        "multiprocessing.synchronize.SemLock multiprocessing.synchronize.Condition multiprocessing.synchronize.Event",
        "a lock",
        "it does not reach tasks on other PCs: leave it out, or make one in the task",
    ),
    ("_thread._local", "data of a thread (threading.local)", _MAKE_IT),
    ("_contextvars.ContextVar", "a ContextVar", "it has its value only in this program: pass that, as in var.get()"),
    ("_contextvars.Context _contextvars.Token", "a context of variables", "pass the values that the task needs"),
    ("types.GeneratorType types.AsyncGeneratorType", "a generator", "pass a list, as in list(...)"),
    ("types.CoroutineType asyncio.Task", "a coroutine", "pass what it returns"),
    ("deskgrid.client.grid.Grid", "a Grid", "tasks cannot submit work: return what they find, and submit it here"),
    ("deskgrid.client.bag.Bag", "a Bag", "pass bag.results(), or what the task needs of it"),
    (
        "concurrent.futures._base.Future asyncio.Future",
        "a Future",
        "pass its value, which .result() waits for",
    ),
    ("concurrent.futures._base.Executor multiprocessing.pool.Pool", "a pool of workers", "make one in the task"),
    (
        "tempfile.TemporaryDirectory",
        "a temporary folder",
        "it is on this machine, and goes with this program: pass deskgrid.File(folder.name), or make one in the task",
    ),
    ("shelve.Shelf dbm.dumb._Database", "an open file", "pass deskgrid.File(path), and open it in the task"),
    ("mmap.mmap", "a mapped file", "pass bytes, or a deskgrid.File that the task maps"),
    ("os.DirEntry", "an entry of a folder", "pass entry.path"),
    ("logging.Handler", "a handler of logs", "add one to a logger in the task"),
    ("ctypes.CDLL", "a library that is loaded", "load it in the task, as in ctypes.CDLL(name)"),
    ("contextlib._GeneratorContextManagerBase", "a context manager", "enter it in the task"),
    ("io.IOBase", "an open file", "pass deskgrid.File(path), and open it in the task"),
    (
        "socket.socket sqlite3.Connection sqlite3.Cursor multiprocessing.connection._ConnectionBase "
        "selectors.BaseSelector select.epoll",
        "an open connection",
        "open one in the task",
    ),
    ("asyncio.AbstractEventLoop", "an event loop", "call asyncio.run(...) in the task"),
    (
        "multiprocessing.sharedctypes.SynchronizedBase multiprocessing.shared_memory.SharedMemory "
        "multiprocessing.shared_memory.ShareableList",
        "memory that processes share",
        "pass the values in it",
    ),
    (
        "threading.Thread multiprocessing.process.BaseProcess subprocess.Popen",
        "a thread or a process",
        _MAKE_IT,
    ),
    (
        "queue.Queue _queue.SimpleQueue multiprocessing.queues.Queue",
        "a queue",
        "tasks cannot reach this program: pass a list, and return results",
    ),
    (
        "_ctypes._Pointer _ctypes.CFuncPtr ctypes.c_void_p ctypes.c_char_p ctypes.c_wchar_p",
        "a pointer of ctypes",
        "it is an address in this process: pass the bytes or the array that it points to",
    ),
    ("weakref.ReferenceType weakref.finalize", "a weak reference", "pass the object"),
    ("types.FrameType types.TracebackType", "part of a running program", "pass the text that you need"),
)
_NOT_RUN = {
    inspect.CO_COROUTINE: ("an async function", "submit a function that calls asyncio.run({}(...))"),
    inspect.CO_ASYNC_GENERATOR: ("an async generator", "submit a function that returns a list"),
    inspect.CO_GENERATOR: ("a generator function", "submit a function that returns a list, as in list({}(...))"),
}


class _Culprit(NamedTuple):
    name: str
    value: object
    error: Exception


def check_runs(function: Callable[..., Any]) -> None:
    """Refuse a function whose call would not run it. Raises `BagRejected`."""
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    code = _code_of(inner) or next(map(_code_of, _calls_of(type(inner))), None)
    if code is not None and code.co_flags & sum(_NOT_RUN):
        what, advice = next(each for flag, each in _NOT_RUN.items() if code.co_flags & flag)
        name = getattr(inner, "__name__", type(inner).__name__)
        raise BagRejected(f"{name} is {what}, so a call of it does not run it: {advice.format(name)}")


def _code_of(function: object) -> CodeType | None:
    return getattr(function, "__code__", None)


def _calls_of(kind: type) -> Iterator[object]:
    return (vars(each)["__call__"] for each in kind.__mro__ if "__call__" in vars(each))


def not_picklable(what: str, parts: Mapping[str, object], error: Exception) -> PicklingFailed:
    """Return the error for what cannot be pickled. ``parts``: all of it by name; ``error``: what pickle said."""
    if isinstance(error, RecursionError) or "deep recursion" in str(error):
        return PicklingFailed(f"{what} cannot be pickled: it is nested too deeply: pass a flat list, or an array")
    for name, value in parts.items():
        if (found := _culprit(value, name, set(), 0)) is not None:
            kind, advice = _described(found)
            where = "it" if found.name in (what, name) and len(parts) == 1 else found.name
            if isinstance(value, FunctionType) and found.value is not value:
                where = f"the variable {where}"
            return PicklingFailed(f"{what} cannot be pickled: {where} is {kind}: {advice}")
    return PicklingFailed(f"{what} cannot be pickled: {error}")


def warn_of_size(function: object, name: str, size: int) -> None:
    """Name the largest variable of a function that brings ``size`` bytes; once for each function."""
    if name in _warned:
        return
    _warned.add(name)
    sizes = [(len(pickle_by_value(value)), called) for value, called in within(function, name)]
    largest, variable = max(sizes, default=(size, name))
    log.warning(
        "%s brings %s bytes to each process that runs it, of which its variable %s has %s: "
        "pass grid.share(%s), which each PC gets once, or a File",
        name,
        f"{size:,}",
        variable,
        f"{largest:,}",
        variable,
    )


def _culprit(value: object, name: str, seen: set[int], depth: int) -> _Culprit | None:
    """Return the smallest part of a value that cannot be pickled."""
    if id(value) in seen or depth > _DEPTH:
        return None
    seen.add(id(value))
    try:
        pickle_by_value(value)
    except Exception as error:
        if _known(value) is None and not importable(value):
            for each, called in islice(within(value, name), _PARTS):
                if (found := _culprit(each, called, seen, depth + 1)) is not None:
                    return found
        return _Culprit(name, value, error)
    return None


def _known(value: object) -> tuple[str, str] | None:
    for names, what, advice in _KINDS:
        for name in names.split():
            module, _, attribute = name.rpartition(".")
            if isinstance(value, getattr(sys.modules.get(module), attribute, ())):
                return what, advice
    return None


def _described(found: _Culprit) -> tuple[str, str]:
    if (known := _known(found.value)) is not None:
        return known
    kind, said = type(found.value), str(found.error)
    if not kind.__module__.startswith("deskgrid."):  # ours say themselves what to do
        said = f"make it in the task, or pass what it is made of ({said})"
    return f"of type {kind.__module__}.{kind.__qualname__}", said
