"""The process that runs the tasks of one run of one program, one after another, for one slot of a worker.

Rule 1: this file stands alone, with `scope.py` and `script.py`. `start.py` loads them by their path: with ``-P``,
which keeps this folder off the import path; in an environment with ``-I``, so that nothing of the worker's is on that
path. They import only those of our modules that tasks load, and everything they need before the user's folder is on
the import path.
Rule 2: frames travel on private copies of descriptors 0 and 1. Descriptor 0 itself is empty; 1 and 2 are pipes that the
worker drains. So the output of C code, subprocesses and dying processes arrives, no program can cut what was printed
before, and nothing printed can be mistaken for a frame. After a task both pipes get a mark, before its end is reported:
what is before the k-th mark is the output of the k-th task that has one. A task that has printed nothing needs none:
see `Output.is_silent`.
Rule 3: the child reports the end of a task before it starts the next one, in one write unless the result is large. So
a crash costs only that task.
Rule 4: the child never outlives the worker. When its input ends, or its lifeline while a task runs, it dies with its
process group. On Linux the kernel ensures this even while C code holds the interpreter. Windows has no lifeline: there,
a thread keeps reading the input while a task runs, and processes that the task started may survive.

A frame is a 4-byte big-endian length and a msgpack array. The child receives ``["template", digest, template]``,
perhaps ``["forget", digest, nil]`` later, and ``["run", digest, [[task, number, payload, checkpoint], ...]]``, but only
when it runs its last task or is idle. A ``checkpoint`` is what a checkpointable task goes on from (empty: from its
start); it is nil for other tasks.
The child sends ``["ready", pid, mark]``, ``["ended", task, number, outcome, seconds, waited, payload]`` (the payload of
a command that failed is text: how it ended; the worker adds the end of its stderr), or ``["silent", ...]`` with the
same values for a task without a mark,
``["saved", task, number, progress, seconds, cost, checkpoint]`` (a number instead of a checkpoint is that of the file
which contains it), and ``["spent"]`` before it exits: it cannot be what the next attempt has to find, which begins in
another process. See `scope.py`.

A rank of a gang has a process of its own, which reads its input in a thread: answers come while the task runs. Before
the task it receives ``["gang", "", {...}]`` (see `Child._join_gang`); while it runs, ``["met", "", [serial, reason,
values]]`` answers ``["meet", task, number, serial, gathers, overdue, value]``.
"""

import atexit
import codecs
import contextvars
import errno
import faulthandler
import gc
import importlib
import importlib.util
import io
import mmap
import os
import pickle
import queue
import select
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
import traceback
import types
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import TracebackType
from typing import Any

import msgpack

from . import scope, script, shared

# Copied from deskgrid.wire, which is not imported here; a test checks that they are equal.
DONE = 0
ERROR = 1
PIECE = 6
UNREADABLE = 7
NO_ROOM = 8
LARGE_BYTES = 2**20

# Bytes per read of a pipe: more than a pipe holds by default on any system.
CHUNK = 256 * 1024
# No pipe holds more bytes, unless root made it larger.
PIPE_MOST = 2**20
# Maximum bytes of a frame. We never make a larger one, so a larger length means that a task wrote into the pipe.
# FRAME_LIMIT: frames to the child, with a template or a batch of tasks. REPORT_LIMIT: frames from the child, with a
# result that does not travel behind its frame.
FRAME_LIMIT = 2**27
REPORT_LIMIT = 2**21
# Maximum bytes of a payload behind a frame, as in deskgrid.wire.
RAW_LIMIT = 2**26
# Maximum number of values in a report.
REPORT_VALUES = 8
# Maximum characters of an exception's type in an error payload.
KIND_LIMIT = 255
_RAW = 1
# What a payload begins with that needs stored files, and a result that leaves some, as in deskgrid.wire; the bytes
# before the digests of its trees, and of each digest; and the name of a value that is a file.
MARK = b"\xc1"
HEAD_BYTES = 4
DIGEST_BYTES = 32
VALUE = "value"
# Maximum bytes of a result that is stored as a file, as in deskgrid.wire.
VALUE_LIMIT = 2 * 2**30
# Errors that say that a disk is full, or that a user may have no more of it. And the bytes below which a disk counts as
# full if a command fails, which does not say why.
FULL = (errno.ENOSPC, errno.EDQUOT)
ROOM_BYTES = 2**20
# The name by which `deskgrid.files`, which a task may load, finds the files of the task that runs.
TASK = "_deskgrid_task"
# Bytes of the mark that ends the output of a task: so many random ones that nobody prints them by chance.
MARK_BYTES = 16
# Maximum characters of an error's message, and of its traceback. Nobody reads more, even if a huge object was printed.
TEXT_LIMIT = 64 * 1024
# When memory runs out, Linux kills the largest process first. This score makes it prefer a task over the programs of
# the PC's owner.
OOM_SCORE = "1000"
# The file that tells a checkpointable task when to save has three numbers: when a checkpoint is due, when the window
# closes, and whether the piece ends with this checkpoint. Times are of `time.monotonic`, which all processes share.
TIMES_BYTES = 24
# The folder, beside that file, in which checkpointable commands run, each in a folder of its own. Checkpoints that are
# too large for the pipe are files in it.
TASKS = "tasks"
# Maximum bytes of a checkpoint.
CHECKPOINT_LIMIT = 2**30
# A checkpoint begins with this, its key and its checksum, each followed by a new line.
CHECKPOINT = b"deskgrid checkpoint 1"
# How often a command is looked at that may have to save soon. Seconds.
COMMAND_S = 0.1
# Maximum bytes of a value for `deskgrid.gang.gather`, pickled, as in deskgrid.wire; and how long a rank whose patience
# is over waits to be told which ranks have not come. Seconds.
GATHER_LIMIT = 2**20
OVERDUE_S = 10.0
# What is said of an error that a task may have raised because it has changed an array of a shared object.
READ_ONLY = "deskgrid: arrays of shared objects are read-only: change a copy, such as array.copy() or frame.copy()"
# An object pickled by reference is the same object only on the same minor version of Python.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HIGHEST = pickle.HIGHEST_PROTOCOL
# Arguments of `main`, before the variables; its descriptors before those that tasks inherit.
ARGUMENTS = 9
LIFELINE = 4
DESCRIPTORS = LIFELINE + (4 if sys.platform == "linux" else 1)
# What the worker keeps in memory that the child can read: how often it has begun to read a pipe of output, and how
# often it has looked at what it read; and how many marks have come, if nothing has come on either pipe since the last.
COUNTS = 3
COUNTS_BYTES = 8 * COUNTS


class TaskFailure(Exception):
    """A task failed for a reason that is not an exception of its own; ``kind`` names it.

    If it has a cause, the program's ``except`` clauses for that catch it, too.
    """

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace


class CommandFailed(Exception):
    """A command ended with another exit code than 0, or a signal; its message says which."""


class PieceEnded(BaseException):
    """Ends a piece of a checkpointable task, which has saved its checkpoint."""


class Unreadable(BaseException):
    """The checkpoint that a task is to go on from cannot be read here."""


class Raw:
    """A large payload in pieces, which is sent behind a frame without a copy."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


# From when on it matters whether an attempt has used its processor. Seconds.
LONG_S = 0.5
# How Python's streams write: with line buffering, so that little output is lost when the process dies, and in UTF-8
# regardless of the PC's locale.
_TEXT: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": "\n", "line_buffering": True}
# As it is before `scope.watch` has it noticed.
_dup2 = os.dup2
# Each report needs one, and to make one takes longer than to pack a report.
_PACKER = msgpack.Packer()


def frame(message: list[Any], behind: list[memoryview] | None = None) -> bytes:
    """Encode ``message`` for a pipe; append its large payloads, which follow the frame, to ``behind``."""
    if behind is None:
        plain: bytes = _PACKER.pack(message)
        return len(plain).to_bytes(4, "big") + plain

    def outside(raw: Raw) -> msgpack.ExtType:
        behind.extend(raw.pieces)
        return msgpack.ExtType(_RAW, len(raw).to_bytes(8, "big"))

    return _framed(msgpack.packb(message, default=outside))


def frame_of_names(message: list[Any]) -> bytes:
    """Encode a message with texts of the system, such as variables and names of files, which need not be UTF-8."""
    return _framed(msgpack.packb(message, unicode_errors="surrogateescape"))


def _framed(packed: bytes) -> bytes:
    return len(packed).to_bytes(4, "big") + packed


class Frames:
    """Reads frames from a pipe and decodes them, each with the large payloads that follow it."""

    limit = FRAME_LIMIT
    payload_limit = CHECKPOINT_LIMIT

    def __init__(self, descriptor: int) -> None:
        self._file = io.FileIO(descriptor, "r", closefd=False)
        self._buffer = bytearray()
        # A message whose payloads are incomplete, those payloads, and how many bytes of the first have arrived.
        self._waiting: list[Any] | None = None
        self._raws: list[bytearray] = []
        self._filled = 0

    def read(self) -> tuple[int, list[Any]]:
        """Wait for data; return how many bytes came (0 at the end) and the complete messages.

        Raises ValueError if the data are not frames.
        """
        if self._raws:
            with memoryview(self._raws[0]) as view:
                count = self._file.readinto(view[self._filled :]) or 0
            self._filled += count
        else:
            chunk = os.read(self._file.fileno(), CHUNK)
            count = len(chunk)
            self._buffer += chunk
        return count, self._messages() if count else []

    def _messages(self) -> list[Any]:
        """Remove the complete messages from the buffer and return them."""
        found: list[Any] = []
        while self._filled_up():
            if self._waiting is not None:
                found.append(self._waiting)
                self._waiting = None
            found += self._taken()
            if self._waiting is None:
                break
        return found

    def _taken(self) -> list[Any]:
        """Remove the complete frames from the front of the buffer, up to and including one that payloads follow."""
        messages, start, end = [], 0, len(self._buffer)
        with memoryview(self._buffer) as view:
            while self._waiting is None and end - start >= 4:
                stop = start + 4 + int.from_bytes(view[start : start + 4], "big")
                if stop - start > self.limit:
                    raise ValueError("no frame is that long")
                if stop > end:
                    break
                message = self._unpacked(view[start + 4 : stop])
                if self._raws:
                    self._waiting = message
                else:
                    messages.append(message)
                start = stop
        del self._buffer[:start]
        return messages

    def _unpacked(self, data: memoryview) -> list[Any]:
        message: list[Any] = msgpack.unpackb(data, ext_hook=self._expect)
        return message

    def _filled_up(self) -> bool:
        """Move received bytes into the waiting payloads; return whether all of them are complete."""
        while self._raws:
            raw = self._raws[0]
            some = self._buffer[: len(raw) - self._filled]
            raw[self._filled : self._filled + len(some)] = some
            del self._buffer[: len(some)]
            self._filled += len(some)
            if self._filled < len(raw):
                return False
            self._raws.pop(0)
            self._filled = 0
        return True

    def _expect(self, code: int, data: bytes) -> bytearray:
        size = int.from_bytes(data, "big")
        if code != _RAW or size > self.payload_limit:
            raise ValueError("no payload is that long")
        self._raws.append(bytearray(size))
        return self._raws[-1]


class Reports(Frames):
    """Reads the reports of a child: short arrays of plain values.

    A task may have written into the pipe, so the decoder's limits keep a malicious report from using much memory.
    """

    limit = REPORT_LIMIT
    payload_limit = RAW_LIMIT

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        limits = {"max_array_len": 0, "max_map_len": 0, "max_ext_len": 8, "max_buffer_size": REPORT_LIMIT}
        self._unpacker = msgpack.Unpacker(ext_hook=self._expect, **limits)
        self._end = 0

    def _unpacked(self, data: memoryview) -> list[Any]:
        self._unpacker.feed(data)
        self._end += len(data)
        count = self._unpacker.read_array_header()
        if count > REPORT_VALUES:
            raise ValueError("malformed report: too many values")
        message = [self._unpacker.unpack() for _ in range(count)]
        if self._unpacker.tell() != self._end or len(self._raws) > 1:
            raise ValueError("malformed report")
        return message


class Splitter:
    """Splits a stream at its marks, however its parts are cut."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        # The end of what came, if it may be the beginning of a mark.
        self.held = b""

    def split(self, data: bytes) -> list[bytes]:
        """Return what came before each mark, and at last what came after all of them, which may go on."""
        *ended, last = (self.held + data).split(self._mark)
        start = last.find(self._mark[:1], max(0, len(last) - len(self._mark) + 1))
        while start >= 0 and not self._mark.startswith(last[start:]):
            start = last.find(self._mark[:1], start + 1)
        last, self.held = (last, b"") if start < 0 else (last[:start], last[start:])
        return [*ended, last]


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``, in one call unless a signal or the system makes the write short."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def error_payload(kind: str, message: str, trace: str = "", pickled: bytes = b"") -> bytes:
    """Make the payload of every outcome except success: the exception's type, message, traceback and pickle."""
    # "replace": a text may hold lone surrogates (from a file name, say), which msgpack refuses. `str.encode`: an
    # exception may return an instance of its own subclass of str.
    short = [kind[:KIND_LIMIT], _shortened(message), _shortened(trace)]
    texts = [str.encode(text, "utf-8", "replace").decode() for text in short]
    packed: bytes = msgpack.packb([*texts, pickled])
    return packed


def exit_text(code: int) -> str:
    """Describe for people how a process ended; ``code`` is `subprocess`'s return code."""
    if code < 0:
        with suppress(ValueError):
            return f"exit code {code} ({signal.Signals(-code).name})"
    # People know Windows' own codes by their hexadecimal form.
    return f"exit code {code} (0x{code:X})" if code > 0xFFFF else f"exit code {code}"


def _shortened(text: str) -> str:
    half = TEXT_LIMIT // 2
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


def lacks_room(error: BaseException) -> bool:
    """Whether an error says that a disk is full."""
    return isinstance(error, OSError) and error.errno in FULL


def describe(error: BaseException) -> bytes:
    """Make the error payload for an exception that a task raised, leaving this file's stack frames out."""
    if isinstance(error, TaskFailure):
        return error_payload(error.kind, str(error), error.trace, _likeness(error.__cause__))
    script.explain(error)
    try:
        message = str(error)
    except Exception as second:
        message = f"(its message cannot be made: {type(second).__name__})"
    return error_payload(type(error).__qualname__, message, _trace(error), _portable(error))


def _trace(error: BaseException) -> str:
    inner: TracebackType | None = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    try:
        return "".join(traceback.TracebackException(type(error), error, inner).format())
    except Exception as second:
        return f"(the traceback cannot be made: {type(second).__name__})"


def _likeness(cause: BaseException | None) -> bytes:
    """Return what has the client raise an error that is also of the type of ``cause``; b"" if there is none."""
    return b"" if cause is None else importlib.import_module("deskgrid.raised").likeness(cause)


def _portable(error: BaseException) -> bytes:
    """Take ``error`` apart for the client; return b"" if nothing can be told but its text.

    SystemExit and other exceptions that are not an `Exception` are left out: raised again in the client, they would end
    the client's program.
    """
    if not isinstance(error, Exception):
        return b""
    with suppress(Exception):  # code of the task runs
        pickled: bytes = importlib.import_module("deskgrid.raised").taken_apart(error, script.dumps, TEXT_LIMIT)
        return pickled
    return b""


class TaskFiles:
    """The files of the task that runs. ``area``: where the worker puts what tasks need, and finds what they leave."""

    def __init__(self, area: str) -> None:
        self.area = area
        self.attempt: tuple[int, ...] = (0, 0)
        # The shared objects that were loaded since this was emptied, by tree.
        self.shared: dict[str, object] = {}
        # The files that the result refers to: where each is, by its name.
        self._left: dict[str, str] = {}
        self._made = False

    def begin(self, *attempt: int) -> None:
        """Another attempt runs now: task, number, and the rank if it is one of a gang."""
        self.attempt = attempt

    @property
    def _name(self) -> str:
        """The attempt, as the worker names its folders. Few tasks need it, so it is not made for each."""
        return ".".join(map(str, self.attempt))

    @property
    def used(self) -> bool:
        """Whether the attempt has made or left files."""
        return self._made or bool(self._left)

    def end(self) -> None:
        """The attempt has ended; remove what it made in its own folder, unless the worker collects something there."""
        if self._made:
            if scope.unmount_below(self.folder()):
                shutil.rmtree(self.folder(), ignore_errors=True)
            with suppress(OSError):
                os.rmdir(os.path.dirname(self.folder()))
        self._made = False
        self._left.clear()

    def needed(self, tree: str, name: str) -> str:
        """Return the path of a file that the task was given."""
        return os.path.join(self.area, "in", self._name, "needs", tree, *name.split("/"))

    def folder(self) -> str:
        """Return the task's own folder, which is made at its first use."""
        path = os.path.join(self.area, "left", self._name, "work")
        if not self._made:
            os.makedirs(path, exist_ok=True)
            self._made = True
        return path

    def work(self) -> str:
        """Return the folder in which a command runs."""
        return os.path.join(self.area, "in", self._name, "work")

    def leave(self, path: str) -> str:
        """Keep a file or a folder, which is part of the result; return the name that it has there.

        A link to a file in the task's folder, or in its temporary one, counts as that file. The worker refuses others.
        """
        if not self._left:
            flush_files()
        path = os.path.abspath(path)
        try:
            inside = os.path.relpath(path, self.folder())
        except ValueError:  # it is on another drive
            inside = os.pardir
        name = os.path.basename(path) if inside.startswith("..") or os.path.isabs(inside) else inside
        name = name.replace(os.sep, "/")
        if self._left.setdefault(name, path) != path:
            raise TaskFailure("ValueError", f"two of the files in the result are named {name!r}")
        target = self._room("out", *name.split("/"))
        is_folder = os.path.isdir(path)
        around = [os.path.realpath(each) for each in (self.folder(), path if is_folder else os.path.dirname(path))]
        if is_folder:
            _link_all(path, target, around)
        elif os.path.exists(path):
            _link(path, target, around)
        else:
            how = f"write through the File, as in File({name!r}).open('w')"
            raise TaskFailure(
                "FileNotFoundError", f"the task did not write the file {name!r}, which its result names: {how}"
            )
        return name

    def marked(self, result: "bytes | Raw", limit: int) -> "bytes | Raw":
        """Return the result as it is reported: it says if there are files with it, or if it is a file itself."""
        size = len(result)
        if size > limit:
            if size > VALUE_LIMIT:
                raise too_large(size, VALUE_LIMIT)
            with open(self._room("whole", VALUE), "wb") as file:
                for piece in [result] if isinstance(result, bytes) else result.pieces:
                    file.write(piece)
            return MARK + b"\1\0\0"
        if not self._left:
            return result
        head = MARK + b"\0\0\0"
        return head + result if isinstance(result, bytes) else Raw([memoryview(head), *result.pieces])

    def _room(self, *names: str) -> str:
        path = os.path.join(self.area, "left", self._name, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path


def flush_files() -> None:
    """Have the files that Python has open get what was written to them.

    Only files: to write to a pipe may take for ever, and a descriptor that was closed may be something else's now.
    """
    base = io.IOBase.mro()[1]  # the classes written in C have this one in common
    for each in gc.get_objects():
        # Neither `isinstance` nor `issubclass`, which run code of metaclasses: the objects are anybody's.
        if type.__subclasscheck__(base, type(each)):
            with suppress(Exception):
                if stat.S_ISREG(os.fstat(each.fileno()).st_mode):
                    each.flush()


def _link_all(source: str, target: str, around: Sequence[str]) -> None:
    """Make a folder, with everything that is in another one, by `_link`."""
    os.makedirs(target, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            link = _link_all if entry.is_dir(follow_symlinks=False) else _link
            link(entry.path, os.path.join(target, entry.name), around)


def _link(source: str, target: str, around: Sequence[str]) -> None:
    """Give a file a second name, or copy it where there can be none.

    ``around``: folders; a link to a file in one of them counts as that file.
    """
    if os.path.lexists(target):
        return  # it was left before
    if os.path.islink(source):
        real = os.path.realpath(source)
        if os.path.isfile(real) and any(real.startswith(os.path.join(folder, "")) for folder in around):
            source = real
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


class Function:
    """A Python function. The first task loads it, so anything that loading prints or raises belongs to that task.

    ``loaded``: called then, before it runs. ``temporary``: the folder for temporary files.
    """

    def __init__(
        self,
        template: dict[str, Any],
        host: str,
        files: TaskFiles,
        environment: str,
        *,
        temporary: str,
        loaded: Callable[[], None],
    ) -> None:
        self._files = files
        self._environment = environment
        self._python: str = template["python"]
        self._pickled: bytes = template["function"]
        self._loaded = loaded
        self._host = host
        self._folder: str = template["folder"]
        self._function: Callable[..., object] | None = None
        self._script = script.Script(temporary)
        self._classes: bytes = template.get("classes", b"")
        script.know_sources(template.get("lines", {}))
        # The shared objects that it holds, by tree.
        self._shared: dict[str, object] = {}

    def result(self, payload: bytes, piece: "Piece | None" = None) -> bytes | Raw:
        """Run one task and return its pickled value. Raises what the task raises, or TaskFailure."""
        self._check_python()
        self._script.begin()
        try:
            if (function := self._function) is None or (self._shared and self._has_changed()):
                function = self._function = self._load()
            args, kwargs = self._call(payload)
            # What it sets of context variables is its own.
            value = contextvars.copy_context().run(function, *args, **kwargs)
        except ModuleNotFoundError as error:
            if error.name is not None:
                error.msg = self._missing(error.name)
                error.args = (error.msg,)
            raise
        except StopIteration as error:  # raised again in the program, it would end a loop there in silence: see PEP 479
            raise RuntimeError("the task raised StopIteration") from error
        return _pickled(value)

    def _load(self) -> Callable[..., object]:
        if self._folder and self._folder not in sys.path:
            sys.path.insert(0, self._folder)
        self._files.shared.clear()
        script.load_all(self._classes)
        function: Callable[..., object] = pickle.loads(self._pickled)
        self._shared = dict(self._files.shared)
        if not self._shared:
            self._pickled = self._classes = b""  # not needed any more, and may be large
        self._loaded()
        return function

    def _has_changed(self) -> bool:
        """Whether a task has changed a shared object that the function holds: then all of it is loaded anew."""
        load = sys.modules["deskgrid.files"]._load_shared
        return any(load(tree) is not value for tree, value in self._shared.items())

    def _call(self, payload: bytes) -> Any:
        """Unpickle the arguments of a task, which may need stored files, or be one."""
        if payload[:1] != MARK:
            return pickle.loads(payload)
        size = HEAD_BYTES + DIGEST_BYTES * int.from_bytes(payload[2:HEAD_BYTES], "big")
        if payload[1]:
            with open(self._files.needed(payload[size - DIGEST_BYTES : size].hex(), VALUE), "rb") as file:
                return pickle.load(file)
        return pickle.loads(memoryview(payload)[size:])

    def _missing(self, module: str) -> str:
        """Return what to do about a module that cannot be imported."""
        first = module.partition(".")[0]
        top = os.path.join(self._folder, first)
        if self._folder and (os.path.isdir(top) or os.path.isfile(f"{top}.py")):
            return f"module '{module}' did not travel with the bag: name it in the bag's modules=[...]"
        advice = "a library can travel in the bag's env=[...], a module of yours in its modules=[...]"
        if script.is_compiled(self._folder, first):
            return f"module '{module}' is compiled, and not for {self._here()}: PCs of another system need its source"
        if version := script.version_of(first, module):
            here = f"{first} {version} of {self._here()} has no module '{module}'"
            return f"{here}: the program may use another version of {first}, which can travel in the bag's env=[...]"
        if self._environment:
            return f"module '{module}' is not in the bag's environment: {advice}"
        return f"module '{module}' is not installed on {self._here()}: {advice}"

    def _check_python(self) -> None:
        if self._python != PYTHON:
            message = f"the bag was made by Python {self._python}, which cannot be loaded on {self._here()}"
            raise TaskFailure("PythonVersionMismatch", message)

    def _here(self) -> str:
        return f"{self._host} (Python {PYTHON} at {sys.executable})"


def _pickled(value: object) -> "bytes | Raw":
    with suppress(Exception):
        if type(value) is bytes and len(value) >= LARGE_BYTES:
            return _around(value)
    try:  # an object that cannot be imported elsewhere, such as a class of the user's script, travels with its code
        return script.dumps(value)
    except TaskFailure:  # of a file in the result
        raise
    except Exception as error:
        if lacks_room(error):
            raise
        what = f"the result, of type {type(value).__qualname__}, cannot be pickled"
        message = f"{what}: {error}: {script.instead_of(value)}"
        raise TaskFailure("ResultNotPicklable", message) from error


def _around(value: bytes) -> Raw:
    """Pickle a large bytes object without copying it."""
    pieces: list[bytes] = []
    pickle.dump(value, types.SimpleNamespace(write=pieces.append), HIGHEST)
    return Raw([memoryview(piece) for piece in pieces])


class Command:
    """A program and its arguments. The task's text replaces "{}", or is appended if there is no "{}".

    ``onward``: the descriptor to which its stdout goes on. ``most``: bytes of a result. ``inherited``: descriptors that
    it gets beside the usual three.
    """

    def __init__(
        self,
        template: dict[str, Any],
        host: str,
        files: TaskFiles,
        onward: int,
        most: int,
        *,
        inherited: Sequence[int] = (),
    ) -> None:
        self._inherited = inherited
        # Words and items that are not UTF-8 have lone surrogates, as file names have.
        self._argv = [word if isinstance(word, str) else _text(word) for word in template["argv"]]
        self._saves: dict[str, Any] | None = template.get("saves")
        self._in_folder: bool = template["in_folder"]
        self._files = files
        self._host = host
        self._onward = onward
        self._most = most

    def result(self, payload: bytes, piece: "Piece | None" = None) -> bytes:
        """Run one task and return its pickled stdout.

        Raises CommandFailed or TaskFailure, and PieceEnded for a ``piece``.
        """
        argv = self._filled(_text(payload))
        cwd = self._files.work() if self._in_folder else None
        try:
            with CommandOutput(self._onward, self._most) as output:
                if piece is None or self._saves is None:
                    code = output.run(argv, cwd, self._inherited)
                else:
                    code = self._go_on(argv, piece, self._saves, cwd, output)
        except OSError as error:
            if lacks_room(error):
                raise
            message = f"cannot run {argv[0]!r} on {self._host}: {error.strerror}"
            raise TaskFailure("CommandFailed", message) from error
        if code and self._is_full():
            raise OSError(errno.ENOSPC, f"{exit_text(code)}, and the disk is full")
        if code:
            raise CommandFailed(exit_text(code))
        return _pickled_text(output.whole())

    def _is_full(self) -> bool:
        """Whether there is hardly any room where commands write."""
        return shutil.disk_usage(self._files.area).free < ROOM_BYTES

    def _go_on(
        self, argv: list[str], piece: "Piece", saves: dict[str, Any], cwd: str | None, output: "CommandOutput"
    ) -> int:
        """Run a checkpointable command in its folder, with the files that it has saved.

        ``cwd``: the folder, if it has one for other reasons.
        """
        with _fresh_folder(saves["folder"]) if cwd is None else nullcontext(Path(cwd)) as folder:
            inputs = _stamps(folder.rglob("*"))
            unpack_files(piece.load(b""), folder)
            number = getattr(signal, f"SIG{saves['signal']}", None)

            def look(process: "subprocess.Popen[bytes]") -> None:
                """Send it the signal when a checkpoint is due, once for each."""
                if number is not None and piece.take_due():
                    process.send_signal(number)

            code = output.run(argv, folder, look=look)
            if code == saves["exit"] and (files := pack_files(folder, saves["patterns"], inputs)):
                piece.keep(files)
                raise PieceEnded
        return code

    def _filled(self, item: str) -> list[str]:
        if any("{}" in part for part in self._argv):
            return [part.replace("{}", item) for part in self._argv]
        return [*self._argv, item] if item else self._argv


@contextmanager
def _fresh_folder(name: str) -> Iterator[Path]:
    folder = Path(name)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        if scope.unmount_below(name):
            shutil.rmtree(folder, ignore_errors=True)


class CommandOutput:
    """The stdout of a command: its result, which goes on to the worker as it comes.

    It ends with the command: a process that the command leaves behind may keep the pipe open. ``onward``: the
    descriptor to which it goes on. ``most``: bytes of a result.
    """

    def __init__(self, onward: int, most: int) -> None:
        self._onward = onward
        self._most = most
        self._size = 0
        self._parts: list[bytes] = []
        self._end, self._stdout = os.pipe()

    def __enter__(self) -> "CommandOutput":
        return self

    def __exit__(self, *error: object) -> None:
        """The command has ended, or has not begun."""
        os.close(self._stdout)
        os.close(self._end)

    def run(
        self,
        argv: list[str],
        cwd: str | Path | None,
        inherited: Sequence[int] = (),
        look: "Callable[[subprocess.Popen[bytes]], None] | None" = None,
    ) -> int:
        """Run a command, and return its code. ``look``: called every `COMMAND_S` while it runs. Raises OSError."""
        # Its input is empty, and its errors go where ours go: so it is with what it inherits, except on Windows.
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": 2} if sys.platform == "win32" else {}
        with subprocess.Popen(_words(argv), cwd=cwd, pass_fds=inherited, stdout=self._stdout, **how) as process:
            try:
                self._follow(process, look)
            except BaseException:
                process.kill()
                raise
            return process.wait()

    def _follow(
        self, process: "subprocess.Popen[bytes]", look: "Callable[[subprocess.Popen[bytes]], None] | None"
    ) -> None:
        """Take what comes until the command has ended."""
        if (ended := _end_of(process.pid)) is None:
            self._follow_in_thread(process, look)
        else:
            try:
                self._follow_here(process, look, ended)
            finally:
                os.close(ended)

    def _follow_here(
        self,
        process: "subprocess.Popen[bytes]",
        look: "Callable[[subprocess.Popen[bytes]], None] | None",
        ended: int,
    ) -> None:
        if sys.platform != "win32":
            poller = select.poll()
            # In this order: when the kernel finds that it has ended, it finds all that it has left in the pipe, too.
            for each in (ended, self._end):
                poller.register(each, select.POLLIN)
            ready: dict[int, int] = {}
            while ended not in ready:
                ready = dict(poller.poll(None if look is None else COMMAND_S * 1000))
                if self._end in ready:  # of an ended one, take all that is there, and no more
                    self._take(os.read(self._end, PIPE_MOST if ended in ready else CHUNK))
                if look is not None and ended not in ready:
                    look(process)

    def _follow_in_thread(
        self, process: "subprocess.Popen[bytes]", look: "Callable[[subprocess.Popen[bytes]], None] | None"
    ) -> None:
        """Do the same where nobody can wait for a pipe and a process at once: a mark ends what is printed."""
        mark = os.urandom(MARK_BYTES)
        reader = threading.Thread(target=self._take_until, args=(mark,), daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(None if look is None else COMMAND_S)
                if look is not None:
                    look(process)
        finally:
            write_all(self._stdout, mark)
            reader.join()

    def _take_until(self, mark: bytes) -> None:
        splitter, ended = Splitter(mark), False
        while not ended:
            data, *after = splitter.split(os.read(self._end, CHUNK))
            ended = bool(after)
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._most:
            self._parts.append(data)
        else:
            self._parts.clear()
        if data:
            write_all(self._onward, data)

    def whole(self) -> bytes:
        """Return all of it. Raises TaskFailure if there is too much."""
        if self._size > self._most:
            raise too_large(self._size, self._most)
        return b"".join(self._parts)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _words(argv: list[str]) -> list[str] | list[bytes]:
    """Return the words of a command as it gets them: their very bytes, whatever the locale of this PC is."""
    return argv if sys.platform == "win32" else [word.encode("utf-8", "surrogateescape") for word in argv]


class _Undecoded:
    """Bytes that are unpickled as text: those that are not UTF-8 become lone surrogates, as with `os.fsdecode`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return codecs.decode, (self._data, "utf-8", "surrogateescape")


def _pickled_text(data: bytes) -> bytes:
    """Pickle the output of a command as text, from which its bytes can be had back."""
    try:
        return pickle.dumps(data.decode(), HIGHEST)
    except UnicodeDecodeError:
        return pickle.dumps(_Undecoded(data), HIGHEST)


def _end_of(pid: int) -> int | None:
    """Return a descriptor that can be read once a process has ended; None where there is none."""
    if sys.platform == "linux":
        with suppress(OSError):  # before Linux 5.3
            return os.pidfd_open(pid)
    return None


def _stamps(paths: Iterable[Path]) -> dict[Path, int]:
    """When each of these files was changed; links and folders are left out."""
    return {path: path.stat().st_mtime_ns for path in paths if path.is_file() and not path.is_symlink()}


def pack_files(folder: Path, patterns: Sequence[str], inputs: Mapping[Path, int]) -> bytes:
    """Pack the files and empty folders below ``folder`` that match, as a tar archive; empty if no file does.

    ``inputs``: files that the next attempt has anyway, unless they were changed since then. Raises TaskFailure if they
    are too large, before any is read.
    """
    named = {path for pattern in patterns for path in folder.glob(pattern)}
    named |= {path for place in filter(_is_folder, named) for path in place.rglob("*")}
    found = {path for path, changed in _stamps(named).items() if inputs.get(path) != changed}
    if not found:
        return b""
    if (size := sum(path.stat().st_size for path in found)) > CHECKPOINT_LIMIT:
        raise checkpoint_too_large(size, CHECKPOINT_LIMIT)
    packed = io.BytesIO()
    # Each file with its content, also where two of them are links to the same.
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for path in sorted(found | set(filter(_is_empty, named))):
            archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return packed.getvalue()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_empty(path: Path) -> bool:
    with suppress(OSError):  # a folder that its task has locked
        return _is_folder(path) and not os.listdir(path)
    return False


def checkpoint_too_large(size: int, limit: int) -> TaskFailure:
    """Return the failure of a task whose checkpoint is too large to keep."""
    return TaskFailure("CheckpointTooLarge", f"the checkpoint has {size:,} bytes; the limit is {limit:,}")


def unpack_files(packed: object, folder: Path) -> None:
    """Unpack what `pack_files` packed. Raises Unreadable, also for a file that would be outside ``folder``."""
    if not isinstance(packed, bytes) or not packed:
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                _replace(archive, member, folder)
    except (tarfile.TarError, OSError) as error:
        if lacks_room(error):
            raise
        raise Unreadable(str(error)) from error


def _replace(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file of an archive, or make a folder. An input is replaced, not written to: other tasks have it, too.

    What `tarfile` would do itself has no filter before Python 3.11.4: any name would be written.
    """
    target = folder / member.name
    content = archive.extractfile(member) if member.isreg() else None
    places = (target.parent, target) if member.isdir() else (target.parent,)
    is_inside = all(place.resolve().is_relative_to(folder.resolve()) for place in places)
    if not is_inside or (content is None and not member.isdir()):
        raise tarfile.ExtractError(f"{member.name!r} is no file in the task's folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        target.mkdir(exist_ok=True)
        return
    target.unlink(missing_ok=True)
    with content, target.open("xb") as file:
        shutil.copyfileobj(content, file)
    target.chmod(member.mode & 0o755 | 0o600)
    os.utime(target, (member.mtime, member.mtime))


class Piece:
    """One attempt of a checkpointable task: what `deskgrid.checkpoint` asks and tells.

    ``key``: of the code, the Python and the environment that the checkpoints belong to. ``data``: the checkpoint to go
    on from; empty: from the start. ``times``: see `TIMES_BYTES`. ``send(progress, seconds, cost, checkpoint)`` sends a
    checkpoint, which is in two pieces.
    """

    def __init__(
        self,
        key: bytes,
        data: bytes | bytearray,
        times: Sequence[float],
        send: "Callable[[float | None, float, float, tuple[bytes, bytes]], None]",
        limit: int = CHECKPOINT_LIMIT,
    ) -> None:
        self._key = key
        self._data = data
        self._times = times
        self._send = send
        self._limit = limit
        self._began = time.monotonic()
        self._last_due = float("-inf")

    def load(self, default: object) -> object:
        """Return the saved state, or ``default``. Raises Unreadable."""
        if not self._data:
            return default
        try:
            return pickle.loads(self._body())
        except Exception as error:
            raise Unreadable(str(error)) from error

    def _body(self) -> memoryview:
        magic, key, checksum, _ = bytes(self._data[: len(CHECKPOINT) + 256]).split(b"\n", 3)
        body = memoryview(self._data)[len(magic) + len(key) + len(checksum) + 3 :]
        if (magic, key, checksum) != (CHECKPOINT, self._key, b"%08x" % zlib.crc32(body)):
            raise ValueError("it is damaged, or another code or another Python made it")
        return body

    def is_due(self) -> bool:
        """Whether a checkpoint is due that was not saved yet."""
        due = self._times[0]
        return due != self._last_due and time.monotonic() >= due

    def take_due(self) -> bool:
        """`is_due`, and note that this one is being saved."""
        found = self.is_due()
        self._last_due = self._times[0] if found else self._last_due
        return found

    def save(self, state: object, progress: float | None) -> bool:
        """Save ``state`` if a checkpoint is due. Raises PieceEnded if the window is about to close."""
        if progress is not None and not 0.0 <= progress <= 1.0:
            raise ValueError(f"the progress of a task is a number from 0 to 1, not {progress!r}")
        last = self._times[2] > 0.0
        if not self.take_due():
            return False
        self.keep(state, None if progress is None else float(progress))
        if last:
            raise PieceEnded
        return True

    def keep(self, state: object, progress: float | None = None) -> None:
        """Send a checkpoint. Raises TaskFailure if it is too large."""
        began = time.monotonic()
        body = _pickled_state(state)
        head = b"\n".join([CHECKPOINT, self._key, b"%08x" % zlib.crc32(body), b""])
        if (size := len(head) + len(body)) > self._limit:
            raise checkpoint_too_large(size, self._limit)
        now = time.monotonic()
        self._send(progress, now - self._began, now - began, (head, body))


def _pickled_state(state: object) -> bytes:
    """Pickle what the same task, or one of its gang, loads: it names classes and sentinels of the user's script."""
    with suppress(Exception):
        plain = pickle.dumps(state, HIGHEST)
        return script.naming_sentinels(state) if script.may_name_script(plain) else plain
    pickled: bytes = script.rebuilt().dumps(state)  # an object of the user's script travels with its code
    return pickled


# The modules of deskgrid that tasks load: for what they do, and for what travels.
_LENT = frozenset(
    f"deskgrid.{name}"
    for name in ("checkpoint", "classes", "files", "gang", "raised", "rebuilt", "rebuilt_ctypes", "rebuilt_types")
)


class TaskModules:
    """Makes the modules of deskgrid that tasks load work where it is not installed for the Python of the task.

    That is so in environments. ``from deskgrid import File`` works there, too.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find deskgrid, with little in it, and these modules; nothing else."""
        if name == "deskgrid":
            loader: Any = TaskModules()
            return ModuleSpec(name, loader, is_package=True)
        if name in _LENT:
            top = Path(__file__).resolve().parents[2]  # of an installation, or of a checkout
            file = f"{name.partition('.')[2]}.py"
            places = (top / file, top / "deskgrid" / file)
            return importlib.util.spec_from_file_location(name, next(place for place in places if place.is_file()))
        return None

    @staticmethod
    def create_module(spec: ModuleSpec) -> types.ModuleType | None:
        """Let the usual kind of module be made."""

    @staticmethod
    def exec_module(module: Any) -> None:
        """Let deskgrid have what tasks use of it."""

        def found(name: str) -> Any:
            if name in ("File", "Shared"):
                return getattr(importlib.import_module("deskgrid.files"), name)
            raise AttributeError(f"module 'deskgrid' has no attribute {name!r} in the process of a task")

        module.__getattr__ = found


def checkpoint_module() -> Any:
    """Return the module with which tasks save."""
    return importlib.import_module("deskgrid.checkpoint")


def gang_module() -> Any:
    """Return the module with which the ranks of a gang meet."""
    return importlib.import_module("deskgrid.gang")


class Meeting:
    """What `deskgrid.gang` asks of the other ranks, through the worker and the broker.

    ``send(serial, gathers, overdue, value)`` reports; ``answers`` brings [serial, reason, values]: what all ranks said,
    as a packed array, or the reason why they do not meet.
    """

    def __init__(
        self,
        send: Callable[[int, bool, bool, bytes], None],
        answers: "queue.SimpleQueue[list[Any]]",
        overdue_s: float = OVERDUE_S,
    ) -> None:
        self._send = send
        self._answers = answers
        self._overdue_s = overdue_s
        self._serial = 0
        self._mine = threading.Lock()

    def barrier(self, timeout: float | None) -> None:
        """See `deskgrid.gang.barrier`."""
        self._meet(None, timeout)

    def gather(self, value: object, timeout: float | None) -> list[Any]:
        """See `deskgrid.gang.gather`."""
        data = _pickled_state(value)
        if len(data) > GATHER_LIMIT:
            most = f"gang.gather takes values of up to {GATHER_LIMIT:,} bytes"
            raise ValueError(f"{most}; this one has {len(data):,}, pickled")
        return [pickle.loads(each) for each in msgpack.unpackb(self._meet(data, timeout))]

    def _meet(self, data: bytes | None, timeout: float | None) -> bytes:
        """Come to the next meeting, to gather if there are ``data``, and return what all ranks said."""
        what, gathers = ("barrier", False) if data is None else ("gather", True)
        with self._mine:
            self._serial += 1
            self._send(self._serial, gathers, False, data or b"")
            answer = self._wait(timeout)
            if answer is None:
                self._send(self._serial, gathers, True, b"")
                answer = self._wait(self._overdue_s) or ("some ranks have not come", b"")
            reason, values = answer
            if reason:
                # Without a timeout, somebody else has lost patience, or the ranks call different functions.
                raise (RuntimeError if timeout is None else TimeoutError)(f"gang.{what}: {reason}")
            return values

    def _wait(self, timeout: float | None) -> tuple[str, bytes] | None:
        """Return the answer to the newest meeting: the reason, and the values; None if it does not come in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                left = None if until is None else max(0.0, until - time.monotonic())
                serial, reason, values = self._answers.get(timeout=left)
            except queue.Empty:
                return None
            if serial == self._serial:
                return reason, values


def finalize_mpi() -> None:
    """Take leave of the other ranks of an MPI program, if the task has not: else they take it for lost."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


class Output:
    """Descriptors 0, which is empty, 1 and 2, which are pipes to the worker, and Python's streams on the latter two.

    ``stdout``: the descriptor of the pipe for descriptor 1; descriptor 2 is such a pipe already. ``unread``: on Linux,
    descriptors of the other ends of both, and of the memory with `COUNTS`.
    """

    def __init__(self, stdout: int, unread: Sequence[int] = ()) -> None:
        self.mark = b""
        os.set_inheritable(stdout, False)
        # Private copies of an empty input and of the pipes, on which the marks travel.
        self.stdout = stdout
        self._own = os.open(os.devnull, os.O_RDWR), stdout, os.dup(2)
        for target, descriptor in enumerate(self._own[:2]):
            os.dup2(descriptor, target)
        # How many marks were written, and what tells whether one is needed.
        self._marks = 0
        self._counts: Sequence[int] | None = None
        self._looks: Callable[[], object] = bool
        self._ends: Sequence[int] = ()
        if sys.platform == "linux" and unread:
            *ends, counts = unread
            self._counts = memoryview(mmap.mmap(counts, COUNTS_BYTES, access=mmap.ACCESS_READ)).cast("Q")
            os.close(counts)
            poller = select.poll()
            # Nothing can be read from 1 and 2 unless they are not the pipes any more; 0 has an error if it is closed.
            poller.register(0, 0)
            for each in (1, 2, *ends):
                poller.register(each, select.POLLIN)
            self._looks = partial(poller.poll, 0)
            self._ends = ends

    def open(self) -> None:
        """Open Python's streams, and draw the mark."""
        self.mark = os.urandom(MARK_BYTES)
        self._streams = [_text_stream(1), _text_stream(2)]
        sys.stdout, sys.stderr = self._streams

    def flush(self) -> None:
        """Flush what was printed, and restore the streams if a task closed or replaced them."""
        stdout, stderr = self._streams
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            if sys.stdout is stdout and sys.stderr is stderr:
                return
        except Exception:
            pass  # it is closed, or what a task put there has no `flush`
        for stream in self._streams:
            with suppress(Exception):
                stream.flush()
        self._streams = [_text_stream(1), _text_stream(2)]
        sys.stdout, sys.stderr = self._streams

    def is_silent(self) -> bool:
        """Whether nothing was printed since the last mark. All is flushed.

        Nothing is in the pipes; and of what the worker has read, nothing came after the mark. It counts each time
        before it reads, so nothing can be on its way between the two. Also False if a descriptor is not what it was.
        """
        if self._counts is None or self._looks():
            return False
        begun, done, marks = self._counts
        return begun == done and marks == self._marks

    def end(self, touched: bool) -> bool:
        """A task has ended: flush, and mark the end unless it has printed nothing; return whether it has a mark.

        ``touched``: it may have closed or replaced descriptors, which are restored.
        """
        if touched:
            self._restore()
        self.flush()
        if self.is_silent():
            return False
        if not touched:
            self._restore()
        for pipe in self._own[1:]:
            os.write(pipe, self.mark)
        self._marks += 1
        return True

    def _restore(self) -> None:
        for target, descriptor in enumerate(self._own):
            _dup2(descriptor, target)
        for pipe in self._own[1:]:
            make_blocking(pipe)
        for stream in self._streams:
            with suppress(ValueError):  # it is closed, and will be replaced
                stream.reconfigure(**_TEXT, write_through=False)

    def close(self) -> None:
        """Close the private copies, and the other ends."""
        for descriptor in (*self._own, *self._ends):
            with suppress(OSError):
                os.close(descriptor)


def make_blocking(descriptor: int) -> None:
    """Let writes wait for room again: a program that made them fail instead did it for all who share the pipe."""
    if sys.platform != "win32":
        os.set_blocking(descriptor, True)


def tasks_folder_of(times_file: str) -> str:
    """Return the folder in which the checkpointable commands of a process run."""
    path = Path(times_file)
    return str(path.parent / TASKS / path.stem)


def checkpoint_file_of(times_file: str, number: int) -> str:
    """Return the name of the file with a checkpoint that is too large for the pipe."""
    return f"{tasks_folder_of(times_file)}.checkpoint-{number}"


def notes_file_of(times_file: str) -> str:
    """Return the name of the file that says what a process has made in shared memory."""
    return str(Path(times_file).with_suffix(".made"))


def too_large(size: int, limit: int) -> TaskFailure:
    """Return the failure of a task whose result is too large to send."""
    return TaskFailure("ResultTooLarge", f"the result has {size:,} bytes; the limit is {limit:,}")


class Child:
    """This process: its pipes, and the templates that it has received.

    ``times_file``: has the times of checkpoints, once there is one. ``stdout``, ``unread``: as `Output` takes them.
    """

    def __init__(
        self,
        times_file: str,
        stdout: int,
        host: str,
        area: str,
        *,
        environment: str,
        rank: str,
        result_limit: int,
        memory: int,
        temporary: str,
        unread: Sequence[int],
        inherited: Sequence[int],
    ) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        self._output = Output(stdout, unread)
        self._host = host
        self._environment = environment
        self._limit = result_limit
        self._memory = memory
        self._over = f"the limit is {memory:,} bytes for a task on {host} (deskgrid worker --task-memory)"
        self._is_rank = bool(rank)
        self._rank: tuple[int, ...] = ()
        self._inherited = tuple(inherited)
        # Whether tasks run, and whether one has run.
        self._busy = False
        self._served = False
        self._used_s = 0.0  # of processors, until an attempt of `LONG_S` has ended
        self._temporary = scope.Temporary(temporary)
        # The file that says what is in shared memory, and whether something may have come since it was read last.
        self._notes = notes_file_of(times_file)
        self._made = False
        shared.watch(self._notes, self._has_made)
        self._surroundings = scope.Surroundings()
        self._answers: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._templates: dict[str, Function | Command] = {}
        self._times_file = times_file
        self._written = 0  # checkpoints in files
        self._times: Sequence[float] | None = None
        self._files = TaskFiles(area)
        module: Any = types.ModuleType(TASK)
        module.files = self._files
        sys.modules[TASK] = module
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._forked, after_in_parent=self._has_made)

    def serve(self) -> None:
        """Run the tasks that come, until the input ends."""
        self._output.open()
        write_all(self._out, frame(["ready", os.getpid(), self._output.mark]))
        if self._is_rank:
            gang_module()
        ahead = self._is_rank or sys.platform == "win32"
        for kind, digest, body in self._read_ahead() if ahead else self._read():
            if kind == "template":
                self._templates[digest] = self._template(body)
            elif kind == "forget":
                del self._templates[digest]
            elif kind == "gang":
                self._join_gang(body)
            elif kind == "become":
                self._become(body)
            elif kind == "memory":
                self._confine(*body)
            elif not self._run(digest, body):
                break

    def end(self) -> None:
        """End this process as a program ends, but faster: its modules are not taken apart.

        Exit handlers run, what only the program's functions refer to is freed, and files are flushed.
        """
        atexit._run_exitfuncs()
        self._templates.clear()
        gc.collect()
        flush_files()
        os._exit(0)

    def _start_thread(self, target: Callable[[], None]) -> None:
        threading.Thread(target=target, daemon=True).start()
        self._surroundings.start_thread()

    def _become(self, account: dict[str, Any]) -> None:
        """Belong to an account of this PC from now on."""
        os.umask(account["umask"])
        scope.become(account["uid"], account["gid"], account["groups"], self._temporary.path)
        os.environ.clear()
        os.environ.update({name: os.fsdecode(value) for name, value in account["variables"].items()})
        os.chdir(account["cwd"])
        self._surroundings.note()

    def _confine(self, size: int, reason: str) -> None:
        """Use no more than so many bytes of memory from now on. ``reason``: what is said of a task that needs more."""
        if not self._memory or size < self._memory:
            self._memory, self._over = size, reason
            limit_memory(size)
            self._surroundings.note()

    def _join_gang(self, gang: dict[str, Any]) -> None:
        """Become a rank. ``variables``: of the environment."""
        os.environ.update(gang["variables"])
        if self._inherited:
            os.environ["PMI_FD"] = str(self._inherited[0])
        task, number = gang["attempt"]
        self._rank = (gang["rank"],)

        def send(serial: int, gathers: bool, overdue: bool, value: bytes) -> None:
            self._tell(["meet", task, number, serial, gathers, overdue, value])

        meeting = Meeting(send, self._answers)
        vars(gang_module()).update(
            rank=gang["rank"], size=len(gang["hosts"]), hosts=tuple(gang["hosts"]), _meeting=meeting
        )

    def _run(self, digest: str, tasks: list[Any]) -> bool:
        """Run tasks; return whether another one may follow in this process."""
        template = self._templates[digest]
        self._busy = True
        if not self._temporary.is_there():
            write_all(self._out, frame(["spent"]))
            return False
        for task, number, payload, checkpoint in tasks:
            if checkpoint is None:
                goes_on = self._attempt(template, task, number, payload)
            else:
                piece = self._piece(digest, task, number, checkpoint)
                goes_on = self._attempt_piece(template, task, number, payload, piece)
            if not goes_on:
                write_all(self._out, frame(["spent"]))
                return False
        self._busy = False
        return True

    def _piece(self, digest: str, task: int, number: int, checkpoint: bytes) -> Piece:
        def send(progress: float | None, seconds: float, cost: float, data: tuple[bytes, bytes]) -> None:
            self._output.flush()
            large = sum(map(len, data)) > self._limit
            sent = self._write_large(data) if large else _in_a_report(b"".join(data))
            self._tell(["saved", task, number, progress, seconds, cost, sent])

        if self._times is None:
            with open(self._times_file, "rb") as file:
                self._times = memoryview(mmap.mmap(file.fileno(), TIMES_BYTES, access=mmap.ACCESS_READ)).cast("d")
        key = f"{digest} {PYTHON} {self._environment}".rstrip().encode()
        return Piece(key, checkpoint, self._times, send)

    def _write_large(self, data: Sequence[bytes]) -> int:
        """Write a checkpoint to a file, and return its number; 0 if there is no room."""
        self._written += 1
        path = checkpoint_file_of(self._times_file, self._written)
        try:
            with open(path, "xb", buffering=0) as file:
                for piece in data:
                    write_all(file.fileno(), piece)
        except OSError:  # such as a full disk: the task goes on, and its next attempt from the checkpoint before
            with suppress(OSError):
                os.unlink(path)
            return 0
        return self._written

    def _attempt_piece(
        self, template: "Function | Command", task: int, number: int, payload: bytes, piece: Piece
    ) -> bool:
        module = checkpoint_module()
        module._piece, module._times = piece, self._times
        try:
            return self._attempt(template, task, number, payload, piece)
        finally:
            module._piece, module._times = None, (float("inf"), float("inf"))

    def _read(self) -> Iterator[list[Any]]:
        """Yield the messages that come, until the input ends."""
        frames, count = Frames(self._in), 1
        while count:
            count, messages = frames.read()
            yield from messages

    def _read_ahead(self) -> Iterator[list[Any]]:
        """Yield the same messages, but read them in a thread, which notices the end even while a task runs."""
        inbox: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()

        def read() -> None:
            try:
                for message in self._read():
                    if message[0] == "met":
                        self._answers.put(message[2])
                    else:
                        inbox.put(message)
            finally:
                inbox.put(None)
                if self._busy:
                    end_everything()

        self._start_thread(read)
        while (message := inbox.get()) is not None:
            yield message

    def _template(self, template: dict[str, Any]) -> Function | Command:
        if template["kind"] == "command":
            if "saves" in template:
                template["saves"]["folder"] = tasks_folder_of(self._times_file)
            return Command(
                template, self._host, self._files, self._output.stdout, self._limit, inherited=self._inherited
            )
        return Function(
            template,
            self._host,
            self._files,
            self._environment,
            temporary=self._temporary.path,
            loaded=self._surroundings.note,
        )

    def _attempt(
        self, template: Function | Command, task: int, number: int, payload: bytes, piece: Piece | None = None
    ) -> bool:
        """Make an attempt, and report how it ended; return whether another one may follow in this process."""
        self._files.begin(task, number, *self._rank)
        start = time.perf_counter()
        outcome, goes_on = DONE, True
        result: bytes | Raw | str
        try:
            result = template.result(payload, piece)
            if self._is_rank:
                finalize_mpi()
            if len(result) > self._limit or self._files.used:
                result = self._files.marked(result, self._limit)
        except MemoryError as error:
            # A module or a cache may still hold the memory, so the next task gets a new process; and this one, too, if
            # earlier tasks may be to blame: it has not been reported.
            if self._served:
                return False
            outcome, goes_on = ERROR, False
            result = describe(self._explained(error))
        except PieceEnded:
            outcome, result = PIECE, b""
        except Unreadable:
            outcome, result = UNREADABLE, b""
        except CommandFailed as error:
            outcome, result = ERROR, str(error)
        # Every exception: SystemExit ends the task, not this process.
        except BaseException as error:
            # The ranks of a gang end together, with an error.
            outcome = NO_ROOM if lacks_room(error) and not self._is_rank else ERROR
            if self._files.shared:
                _explain(error)
            result = describe(error)
        elapsed = time.perf_counter() - start
        self._served = True
        if self._files.used:
            self._files.end()
        touched = scope.may_have_changed(elapsed)
        goes_on = self._tidy(template, touched, elapsed) and goes_on
        if isinstance(result, bytes):
            result = _in_a_report(result)
        has_mark = self._output.end(touched)
        kind, waited = "ended" if has_mark else "silent", elapsed >= LONG_S and self._has_waited(template, elapsed)
        self._tell([kind, task, number, outcome, elapsed, waited, result])
        return goes_on

    def _has_waited(self, template: "Function | Command", elapsed: float) -> bool:
        """Whether an attempt used a processor for less than half of its time: then this says nothing about the PC.

        What shorter attempts before it used counts, too: to look after each of them would cost more than some take.
        """
        if sys.platform == "win32" and isinstance(template, Command):
            return False  # there, a process is not told what its children used
        before, self._used_s = self._used_s, sum(os.times()[:4])
        return self._used_s - before < elapsed / 2

    def _tidy(self, template: "Function | Command", touched: bool, elapsed: float) -> bool:
        """End what the attempt left, and have the next one find what this one found; return whether it can."""
        left = False
        if self._made and sys.platform != "win32":
            self._made = False
            shared.remove(shared.noted(self._notes), [os.geteuid()])
            with suppress(OSError):  # if it could not be read for want of descriptors, it is not emptied either
                os.close(os.open(self._notes, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK))
        if touched or not self._temporary.is_untouched:
            left = scope.have_children() and scope.end_children()
            if not self._temporary.clean():
                return False
        # A command has changed nothing here.
        return isinstance(template, Command) or (self._surroundings.restore(touched, elapsed) and not left)

    def _tell(self, report: list[Any]) -> None:
        if isinstance(report[-1], Raw):
            behind: list[memoryview] = []
            write_all(self._out, frame(report, behind))
            for data in behind:
                write_all(self._out, data)
        else:
            write_all(self._out, frame(report))

    def _explained(self, error: MemoryError) -> MemoryError:
        """Add the memory limit, if there is one, to ``error``."""
        if self._memory:
            error.add_note(self._over) if error.args else setattr(error, "args", (self._over,))
        return error

    def _has_made(self) -> None:
        """There may be something of this process in shared memory, or of a copy."""
        self._made = True

    def _forked(self) -> None:
        """Close the pipes in the copy after a task forked: it must not keep them open or write frames."""
        for descriptor in (self._in, self._out):
            with suppress(OSError):
                os.close(descriptor)
        self._output.close()
        self._in = self._out = -1
        if (module := sys.modules.get("deskgrid.checkpoint")) is not None:
            vars(module).update(_piece=None, _times=(float("inf"), float("inf")))
        if (module := sys.modules.get("deskgrid.gang")) is not None:
            vars(module).update(_meeting=None, rank=0, size=1, hosts=vars(module)["hosts"][:1])


def _explain(error: BaseException) -> None:
    """Say what to do about an array that cannot be changed."""
    with suppress(Exception):  # its text may be code of the task
        if "read-only" in str(error):
            error.add_note(READ_ONLY)


def _in_a_report(data: bytes) -> bytes | Raw:
    """Return ``data`` as it travels in a report: a large payload travels behind it."""
    return data if len(data) < LARGE_BYTES else Raw([memoryview(data)])


class _Patient(io.FileIO):
    """A descriptor whose writes wait for room, even if another program that shares the pipe made them fail instead."""

    def write(self, data: Any) -> int:
        """Write some of ``data``; return how much."""
        while (count := super().write(data)) is None:
            make_blocking(self.fileno())
        return count


def _text_stream(descriptor: int) -> io.TextIOWrapper:
    raw = _Patient(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), **_TEXT)


def end_everything() -> None:
    """End this process and, on systems with process groups, its group."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def die_with(lifeline: int) -> None:
    """End everything as soon as the other end of this pipe closes.

    A thread waits for that. On Linux the kernel sends SIGKILL, too.
    """
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_die_at_the_end_of, args=(lifeline,), daemon=True).start()
    if sys.platform == "linux" and os.getpgrp() == os.getpid():
        scope.kill_at_the_end_of(lifeline, -os.getpgrp())


def _die_at_the_end_of(lifeline: int) -> None:
    os.read(lifeline, 1)
    end_everything()


def limit_memory(size: int) -> None:
    """Limit this process, and each process that it starts, to ``size`` bytes of memory; 0 for no limit.

    Linux counts private writable memory, other systems count the whole address space. On Windows, the worker limits
    it: see `job_object.py`.
    """
    if sys.platform != "win32" and size:
        what = scope.resource.RLIMIT_DATA if sys.platform == "linux" else scope.resource.RLIMIT_AS
        scope.resource.setrlimit(what, (size, size))


def die_first() -> None:
    """Make Linux kill this process, and its children, first when the PC runs out of memory."""
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(OOM_SCORE)


def prepare() -> None:
    """Import what every task needs: what the parent of a process has imported, it need not."""
    sys.meta_path.append(TaskModules)
    script.rebuilt().pickler()
    if sys.platform == "linux":
        for name in ("_multiprocessing", "_posixshmem"):
            importlib.import_module(name)
    scope.watch()


def _descriptor(handle: str) -> int:
    """Return the descriptor of a pipe that the worker opened."""
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.open_osfhandle(int(handle), os.O_WRONLY | os.O_BINARY)
    else:
        return int(handle)


def main(arguments: Sequence[str], descriptors: Sequence[int] = ()) -> None:
    """Be a process for tasks until there are no more.

    ``arguments``: STDOUT TIMES WORKER RESULT_LIMIT TASK_MEMORY AREA ENVIRONMENT RANK TEMPORARY, and variables as
    NAME=VALUE. TIMES: the file with the times of checkpoints. Limits: bytes. ENVIRONMENT: what tells it from others;
    empty for that of the worker. RANK: "rank" for a process of a rank of a gang, or empty. TEMPORARY: the folder for
    temporary files.

    ``descriptors``: of standard input, of reports, of stderr and of stdout, the lifeline, what `Output` takes as
    ``unread``, and what tasks inherit. None on Windows: reports then go to standard output, and STDOUT is the handle of
    the pipe for stdout.
    """
    stdout, times_file, host, most, memory, area, environment, rank, temporary = arguments[:ARGUMENTS]
    sys.argv[1:] = []
    if variables := arguments[ARGUMENTS:]:
        os.environ.clear()
        for variable in variables:
            name, _, value = variable.partition("=")
            os.environ[name] = value
    for target, descriptor in enumerate(descriptors[:3]):
        if target != descriptor:
            os.dup2(descriptor, target)
            os.close(descriptor)
    die_first()
    limit_memory(int(memory))
    printed = _descriptor(stdout) if stdout else descriptors[3]
    if len(descriptors) > LIFELINE:
        die_with(descriptors[LIFELINE])
    unread, inherited = descriptors[LIFELINE + 1 : DESCRIPTORS], descriptors[DESCRIPTORS:]
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)
    faulthandler.enable(2)  # after a crash, the captured stderr ends with the stack
    child = Child(
        times_file,
        printed,
        host,
        area,
        environment=environment,
        rank=rank,
        result_limit=int(most),
        memory=int(memory),
        temporary=temporary,
        unread=unread,
        inherited=inherited,
    )
    child.serve()
    child.end()
