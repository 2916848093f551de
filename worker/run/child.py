"""The process that runs a user's tasks, one after another, for one slot of a worker.

Rule 1: this file stands alone. It is started by its path with ``-P``, so that what lies beside it is not on the path,
and imports nothing of ours, so that it starts quickly. It has what it needs before the user's folder is on the path.
Rule 2: frames travel on private copies of descriptors 0 and 1. 0 itself is empty; 1 and 2 are files, so that
what C code, subprocesses and dying processes print is captured, and no print can be taken for a frame.
Rule 3: the end of a task is told before the next one starts, in one write unless its result is large: a crash costs
only that task.
Rule 4: it never outlives the worker. The end of its input, or of its lifeline while a task runs, ends it with its
process group. On Linux the kernel does that even while C code holds the interpreter; on Windows, where there is no
lifeline, a thread reads the input meanwhile, and what the task itself started may stay.

A frame is a 4-byte big-endian length and a msgpack array. To the child: ``["template", digest, template]``,
then ``["run", digest, [[task, number, payload], ...]]``, the latter only when it does its last task, or none. From
it: ``["ready", pid]``, ``["ended", task, number, outcome, seconds, payload, stdout, stderr]``, and ``["spent"]``
before it ends because a task had all its memory. What a task changes in its process (its folder, its
environment, its modules) the next one in the same process sees.
"""

import faulthandler
import io
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TextIO

import msgpack

# As in deskgrid.wire, which is not imported here; a test holds them equal.
DONE = 0
ERROR = 1
LARGE_BYTES = 2**20

# One read of a pipe; more than a pipe holds by default, on any system.
CHUNK = 256 * 1024
# Bytes of a frame; larger than any we make, so a larger number is not a length but something a task wrote. To a child:
# a template and a batch of tasks. From it: a result that does not travel behind its frame, and what was captured.
FRAME_LIMIT = 2**27
REPORT_LIMIT = 2**21
# Bytes of a payload behind a frame, as in deskgrid.wire.
RAW_LIMIT = 2**26
# Values of a report.
REPORT_VALUES = 8
# The type of an exception, in an error's text.
KIND_LIMIT = 255
_RAW = 1
# The end of stderr that goes into an error's text: a screenful.
TAIL = 4096
# An error's message, and its traceback: what anybody reads, however large the object printed into it.
TEXT_LIMIT = 64 * 1024
# While a task runs, what it has written is looked at so often (seconds), and cut when nobody would read the middle.
TRIM_S = 0.25
# Linux kills whatever has the most memory when there is none left, more readily by this: the task, not the PC's owner.
OOM_SCORE = "1000"
# Of sources that are pickled by reference, only the same minor version gives the same objects.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HIGHEST = pickle.HIGHEST_PROTOCOL


class TaskFailure(Exception):
    """A task failed for a reason that is not an exception of its own; ``kind`` names it."""

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace


class Raw:
    """A large payload, in pieces, to be sent behind a frame without being copied."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


def frame(message: list[Any], behind: list[memoryview] | None = None) -> bytes:
    """``message`` as it goes through a pipe; what goes behind it is appended to ``behind``."""

    def outside(raw: Raw) -> msgpack.ExtType:
        assert behind is not None
        behind.extend(raw.pieces)
        return msgpack.ExtType(_RAW, len(raw).to_bytes(8, "big"))

    packed: bytes = msgpack.packb(message, default=outside)
    return len(packed).to_bytes(4, "big") + packed


class Frames:
    """What comes through a pipe: frames, taken apart, each with what is behind it."""

    limit = FRAME_LIMIT

    def __init__(self, descriptor: int) -> None:
        self._file = io.FileIO(descriptor, "r", closefd=False)
        self._buffer = bytearray()
        # A message that waits for what belongs behind it, the payloads there, and how much of the first is filled.
        self._waiting: list[Any] | None = None
        self._raws: list[bytearray] = []
        self._filled = 0

    def read(self) -> tuple[int, list[Any]]:
        """Wait for something: the bytes that came, none at the end, and messages. ValueError: there are none."""
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
        """Take out what is complete."""
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
        """Take the complete frames off the front of the buffer, up to one that something belongs behind."""
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
        """Whether all is there that belongs behind a frame; what has come of it is put in its place."""
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
        if code != _RAW or size > RAW_LIMIT:
            raise ValueError("no payload is that long")
        self._raws.append(bytearray(size))
        return self._raws[-1]


class Reports(Frames):
    """What a child says, or a task that got at its pipe: arrays of a few plain values, of which little can be made."""

    limit = REPORT_LIMIT

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
            raise ValueError("no report has so many values")
        message = [self._unpacker.unpack() for _ in range(count)]
        if self._unpacker.tell() != self._end or len(self._raws) > 1:
            raise ValueError("no report is like that")
        return message


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write ``data``: in one call, unless a signal or the system cuts it."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def pickle_by_value() -> Callable[..., bytes]:
    """What pickles by value what cannot be imported elsewhere. Workers, which import this file, too, do without it."""
    import cloudpickle

    dumps: Callable[..., bytes] = cloudpickle.dumps
    return dumps


def error_payload(kind: str, message: str, trace: str = "", pickled: bytes = b"") -> bytes:
    """The payload of every outcome but success: the exception's type, message, traceback and pickle."""
    # "replace": a text may hold halves of characters (of a file name, say), which msgpack refuses. And an exception may
    # give a text of a class of its own.
    short = [kind[:KIND_LIMIT], _shortened(message), _shortened(trace)]
    texts = [str.encode(text, "utf-8", "replace").decode() for text in short]
    packed: bytes = msgpack.packb([*texts, pickled])
    return packed


def exit_text(code: int) -> str:
    """How a process ended, for people; ``code`` as `subprocess` gives it."""
    if code < 0:
        with suppress(ValueError):
            return f"exit code {code} ({signal.Signals(-code).name})"
    # Windows' own codes are known by their hexadecimal form.
    return f"exit code {code} (0x{code:X})" if code > 0xFFFF else f"exit code {code}"


def read_ends(descriptor: int, limit: int) -> bytes:
    """What the file holds; above ``limit`` bytes its head, a line on what was cut, and its tail."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if not size:
        return b""
    if size <= limit:
        return _read_at(descriptor, 0, size)
    half = limit // 2
    cut = b"\n[... %d bytes cut ...]\n" % (size - 2 * half)
    return _read_at(descriptor, 0, half) + cut + _read_at(descriptor, size - half, half)


def _read_at(descriptor: int, place: int, count: int) -> bytes:
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.read(descriptor, count)


def _shortened(text: str) -> str:
    half = TEXT_LIMIT // 2
    if len(text) <= TEXT_LIMIT:
        return text
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


def describe(error: BaseException) -> bytes:
    """The error payload for what a task raised, without the frames of this file."""
    if isinstance(error, TaskFailure):
        return error_payload(error.kind, str(error), error.trace)
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


def _portable(error: BaseException) -> bytes:
    """``error`` pickled, if it comes back from that; else empty.

    SystemExit and its like stay here: raised again over there, they would end the process that asks.
    """
    if not isinstance(error, Exception):
        return b""
    for dumps in (pickle.dumps, pickle_by_value()):
        with suppress(Exception):
            pickled: bytes = dumps(error, protocol=HIGHEST)
            if len(pickled) <= TEXT_LIMIT and isinstance(pickle.loads(pickled), type(error)):
                return pickled
    return b""


class Function:
    """A Python function. The first task loads it, so what that prints or raises belongs to this task."""

    def __init__(self, template: dict[str, Any], host: str) -> None:
        self._python: str = template["python"]
        self._pickled: bytes = template["function"]
        self._host = host
        self._function: Callable[..., object] | None = None
        if template["folder"] and template["folder"] not in sys.path:
            sys.path.insert(0, template["folder"])

    def result(self, payload: bytes) -> bytes | Raw:
        """Run one task: its value, pickled. Raises what the task raises, or TaskFailure."""
        function, args, kwargs = self._load(payload)
        return _pickled(function(*args, **kwargs))

    def _load(self, payload: bytes) -> tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]:
        self._check_python()
        try:
            if self._function is None:
                self._function = pickle.loads(self._pickled)
            args, kwargs = pickle.loads(payload)
        except ModuleNotFoundError as error:
            if error.name is not None:
                error.msg = f"module '{error.name}' is not installed on {self._here()}"
                error.args = (error.msg,)
            raise
        return self._function, args, kwargs

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
        return pickle.dumps(value, HIGHEST)
    try:  # what cannot be imported over there, such as a class of the user's script, travels with its code
        pickled: bytes = pickle_by_value()(value, protocol=HIGHEST)
    except Exception as error:
        message = f"the result, of type {type(value).__qualname__}, cannot be pickled: {error}"
        raise TaskFailure("ResultNotPicklable", message) from error
    return pickled


def _around(value: bytes) -> Raw:
    """The pickle of a large bytes object, which is not copied for that."""
    pieces: list[bytes] = []
    pickle.dump(value, types.SimpleNamespace(write=pieces.append), HIGHEST)
    return Raw([memoryview(piece) for piece in pieces])


class Command:
    """A program and its arguments. The task's text goes where "{}" stands, or else to the end."""

    def __init__(self, template: dict[str, Any], host: str, stdout: "Capture", stderr: "Capture") -> None:
        self._argv: list[str] = template["argv"]
        self._host = host
        self._stdout = stdout
        self._stderr = stderr

    def result(self, payload: bytes) -> bytes:
        """Run one task: what it wrote to stdout, pickled. Raises TaskFailure."""
        argv = self._filled(payload.decode())
        try:
            code = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=1, stderr=2, check=False).returncode
        except OSError as error:
            message = f"cannot run {argv[0]!r} on {self._host}: {error.strerror}"
            raise TaskFailure("CommandFailed", message) from error
        if code:
            raise TaskFailure("CommandFailed", exit_text(code), self._stderr.tail())
        return pickle.dumps(self._stdout.whole().decode("utf-8", "replace"), HIGHEST)

    def _filled(self, item: str) -> list[str]:
        if any("{}" in part for part in self._argv):
            return [part.replace("{}", item) for part in self._argv]
        return [*self._argv, item] if item else self._argv


class Capture:
    """What is written to one descriptor, in a file that is emptied after each task."""

    def __init__(self, path: str, target: int, keep: int, most: int) -> None:
        binary = getattr(os, "O_BINARY", 0)
        self._target = target
        self._keep = keep
        self._most = most
        # How long it was when its middle was last cut out, and who may change it now.
        self._trimmed = 0
        self._mine = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | binary, 0o600)
        self._writer = os.open(path, os.O_WRONLY | os.O_APPEND | binary)
        os.dup2(self._writer, target)

    def take(self) -> bytes:
        """What was written since the last time, shortened."""
        with self._mine:
            text = read_ends(self._file, self._keep)
            if text:
                self._trimmed = 0
                os.ftruncate(self._file, 0)
                if sys.platform == "win32":
                    # There, a subprocess does not append: it writes at its place.
                    os.lseek(self._target, 0, os.SEEK_SET)
            return text

    def trim(self) -> None:
        """Give the disk back the middle of what was written, if that is more than a result may be.

        The file stays as long as it is, with a hole; what is written in that moment may be missing behind it.
        """
        with self._mine:
            size = os.fstat(self._file).st_size
            if size - self._trimmed <= self._most:
                return
            half = self._keep // 2
            tail = _read_at(self._file, size - half, half)
            os.ftruncate(self._file, half)
            os.ftruncate(self._file, size - half)
            write_all(self._writer, tail)
            self._trimmed = size

    def whole(self) -> bytes:
        """All that was written, as a command's result. TaskFailure: there is too much."""
        size = os.lseek(self._file, 0, os.SEEK_END)
        if size > self._most:
            raise too_large(size, self._most)
        return _read_at(self._file, 0, size)

    def tail(self) -> str:
        """The end of what was written."""
        size = os.lseek(self._file, 0, os.SEEK_END)
        return _read_at(self._file, max(0, size - TAIL), TAIL).decode("utf-8", "replace")


def too_large(size: int, limit: int) -> TaskFailure:
    """The failure of a task whose result is too large to travel."""
    return TaskFailure("ResultTooLarge", f"the result has {size:,} bytes; the limit is {limit:,}")


class Child:
    """This process: two pipes, two captures, the templates it was told."""

    def __init__(
        self, stdout: str, stderr: str, host: str, *, result_limit: int, capture_limit: int, memory: int
    ) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        self._stdout = Capture(stdout, 1, capture_limit, result_limit)
        self._stderr = Capture(stderr, 2, capture_limit, result_limit)
        self._host = host
        self._limit = result_limit
        self._memory = memory
        self._running = threading.Event()
        self._templates: dict[str, Function | Command] = {}
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._forked)

    def serve(self) -> None:
        """Run what comes, until nothing will."""
        threading.Thread(target=self._trim, daemon=True).start()
        self._open_streams()
        write_all(self._out, frame(["ready", os.getpid()]))
        pickle_by_value()  # to have it before the user's modules can be found, but not before there is time
        try:
            for kind, digest, body in self._read_ahead() if sys.platform == "win32" else self._read():
                if kind == "template":
                    self._templates[digest] = self._template(body)
                else:
                    self._run(self._templates[digest], body)
        finally:
            end_everything()

    def _run(self, template: "Function | Command", tasks: list[Any]) -> None:
        self._running.set()
        for task, number, payload in tasks:
            self._attempt(template, task, number, payload)
        self._running.clear()

    def _trim(self) -> None:
        while self._running.wait():
            time.sleep(TRIM_S)
            for capture in (self._stdout, self._stderr):
                with suppress(OSError):  # such as a full disk
                    capture.trim()

    def _read(self) -> Iterator[list[Any]]:
        """What comes, to its end."""
        frames, count = Frames(self._in), 1
        while count:
            count, messages = frames.read()
            yield from messages

    def _read_ahead(self) -> Iterator[list[Any]]:
        """The same, read by a thread, which so sees the end while a task runs."""
        inbox: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()

        def read() -> None:
            try:
                for message in self._read():
                    inbox.put(message)
            finally:
                end_everything()

        threading.Thread(target=read, daemon=True).start()
        while True:
            yield inbox.get()

    def _template(self, template: dict[str, Any]) -> Function | Command:
        if template["kind"] == "command":
            return Command(template, self._host, self._stdout, self._stderr)
        return Function(template, self._host)

    def _attempt(self, template: Function | Command, task: int, number: int, payload: bytes) -> None:
        start = time.perf_counter()
        outcome, spent = DONE, False
        try:
            result: bytes | Raw = template.result(payload)
            if len(result) > self._limit:
                raise too_large(len(result), self._limit)
        except MemoryError as error:
            # It may hold it still, in a module or a cache: the next one gets a new process.
            outcome, spent = ERROR, True
            result = describe(self._explained(error))
        # All of them: a SystemExit is the task's end, not ours.
        except BaseException as error:
            outcome, result = ERROR, describe(error)
        elapsed = time.perf_counter() - start
        self._flush()
        if isinstance(result, bytes) and len(result) >= LARGE_BYTES:
            result = Raw([memoryview(result)])
        told = ["ended", task, number, outcome, elapsed, result, self._stdout.take(), self._stderr.take()]
        behind: list[memoryview] = []
        write_all(self._out, frame(told, behind))
        for data in behind:
            write_all(self._out, data)
        if spent:
            write_all(self._out, frame(["spent"]))
            end_everything()

    def _explained(self, error: MemoryError) -> MemoryError:
        """``error`` with the limit, if there is one."""
        if self._memory:
            text = f"the limit is {self._memory:,} bytes for a task on {self._host} (deskgrid worker --task-memory)"
            error.add_note(text) if error.args else setattr(error, "args", (text,))
        return error

    def _open_streams(self) -> None:
        self._streams = [_text_stream(1), _text_stream(2)]
        sys.stdout, sys.stderr = self._streams

    def _flush(self) -> None:
        """Bring out what was printed, and undo what a task did to the streams (closed or replaced them)."""
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            if [sys.stdout, sys.stderr] == self._streams:
                return
        for stream in self._streams:
            with suppress(Exception):
                stream.flush()
        self._open_streams()

    def _forked(self) -> None:
        """A task forked. The copy must neither keep the pipes open nor speak in our name."""
        for descriptor in (self._in, self._out):
            with suppress(OSError):
                os.close(descriptor)
        self._in = self._out = -1


def _text_stream(descriptor: int) -> TextIO:
    # By the line, so that little is lost when the process dies; UTF-8 whatever the PC is set to.
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", "\n", line_buffering=True)


def end_everything() -> None:
    """End this process and, where there are such, its group."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def die_with(lifeline: int) -> None:
    """End everything as soon as the other end of this pipe is gone; on Linux the kernel does: F_SETSIG of fcntl(2)."""
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_die_at_the_end_of, args=(lifeline,), daemon=True).start()
    if sys.platform == "linux" and os.getpgrp() == os.getpid():
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def _die_at_the_end_of(lifeline: int) -> None:
    os.read(lifeline, 1)
    end_everything()


def limit_memory(size: int) -> None:
    """At most ``size`` bytes for this process, and for each that it starts; 0 for no limit.

    On Linux what is private and can be written counts, elsewhere all addresses; Windows has no such limit.
    """
    if sys.platform != "win32" and size:
        import resource

        what = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
        resource.setrlimit(what, (size, size))


def die_first() -> None:
    """Have Linux choose this process, and what it starts, when the PC has no memory left."""
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(OOM_SCORE)


def main() -> None:
    """``child.py STDOUT STDERR WORKER_NAME RESULT_LIMIT CAPTURE_LIMIT TASK_MEMORY [LIFELINE]``; limits in bytes."""
    stdout, stderr, host, result_limit, capture_limit, memory, *lifeline = sys.argv[1:]
    sys.argv[1:] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then decides
    die_first()
    limits = {"result_limit": int(result_limit), "capture_limit": int(capture_limit), "memory": int(memory)}
    child = Child(stdout, stderr, host, **limits)
    limit_memory(int(memory))
    faulthandler.enable(2)  # where it was when it crashed, at the end of the captured stderr
    if lifeline:
        die_with(int(lifeline[0]))
    child.serve()


if __name__ == "__main__":
    main()
