"""What a process prints: its two pipes are drained, and of each task the head and the tail are kept.

Rule 1: the pipes are drained as long as the process lives, so no task waits for room for long, and none sees that
nobody reads. What a process printed before it died is still in its pipes, and is read then.
Rule 2: the process writes a mark on both pipes when a task has ended that has printed something, before it reports
that. So whoever has read the report finds the marks in the pipes, unless a task has meddled with them. To know that a
task has printed nothing, the process looks at what we have read: see `Counts`.
Rule 3: what a process can make us keep and read is bounded: a piece for each of its tasks, and at once no more than a
pipe holds.
"""

import math
import mmap
import os
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from deskgrid.wire import CHECKPOINT_LIMIT, Chunks, Payload, slice_of
from deskgrid.worker.run.child import COUNTS, COUNTS_BYTES, PIPE_MOST, Splitter
from deskgrid.worker.run.jobs import PrintedOutput

# What a checkpoint ends with if what its task has printed is behind it; and, of each stream, the bytes of all that was
# printed, of its head, and of its tail.
PRINTED = b"deskgrid printed"
_SIZES = struct.Struct("!QII")
# Bytes of the end of stderr that go into an error's text: a screenful.
TAIL = 4096
# Bytes per read of a pipe: what it holds by default on Linux.
CHUNK = 64 * 1024
# After a read of less than this, the pipes are left alone for a while, or until there is a report: a task that prints
# line by line does not wake us for each. The while doubles up to this, and begins anew after a larger read, because a
# full pipe would block the task. Bytes, milliseconds.
PLENTY = CHUNK // 4
LULL_MS = 16
# What stands for the number of marks while something has come after them.
NOT_CLEAN = 2**64 - 1
# How long to wait on Windows, where threads drain the pipes, until they have read what is there. Seconds.
THREADS_S = 5.0


def last_lines(stderr: bytes) -> str:
    """Return the end of stderr as the text of an error has it."""
    return stderr[-TAIL:].decode("utf-8", "backslashreplace")


def with_printed(checkpoint: Payload, printed: bytes) -> Payload:
    """Return a checkpoint with what its task has printed behind it, if that is something and there is room for it."""
    behind = behind_checkpoint(printed, len(checkpoint))
    if not behind or isinstance(checkpoint, bytes):
        return checkpoint + behind if isinstance(checkpoint, bytes) else checkpoint
    return Chunks([*checkpoint.frames(), memoryview(behind)])


def behind_checkpoint(printed: bytes, size: int) -> bytes:
    """Return what goes behind a checkpoint of so many bytes; empty if that is nothing, or there is no room for it."""
    behind = printed + len(printed).to_bytes(4, "big") + PRINTED if printed else b""
    return behind if size + len(behind) <= CHECKPOINT_LIMIT else b""


def without_printed(checkpoint: Payload) -> tuple[Payload, bytes]:
    """Return a checkpoint, and what its task had printed; empty if that is not known."""
    size, foot = len(checkpoint), 4 + len(PRINTED)
    end = bytes(slice_of(checkpoint, max(0, size - foot), foot))
    count = int.from_bytes(end[:4], "big")
    if len(end) < foot or end[4:] != PRINTED or count > size - foot:
        return checkpoint, b""
    own = size - foot - count
    return slice_of(checkpoint, 0, own), bytes(slice_of(checkpoint, own, count))


class HeadAndTail:
    """The output of one task: all of it, or its head and its tail if there are more than ``limit`` bytes."""

    __slots__ = ("_half", "_head", "_limit", "_tail", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    def packed(self) -> bytes:
        """Return what `go_on` takes."""
        tail = self._tail[max(0, len(self._tail) - self._half) :] if self.size > self._limit else self._tail
        return _SIZES.pack(self.size, len(self._head), len(tail)) + self._head + tail

    def go_on(self, packed: bytes) -> bytes:
        """Go on from what an earlier piece of the task had printed; return what is behind it. Raises ValueError."""
        if len(packed) < _SIZES.size:
            raise ValueError("no output is so short")
        self.size, head, tail = _SIZES.unpack_from(packed)
        rest = packed[_SIZES.size :]
        if head + tail > min(self.size, self._limit + 1, len(rest)):
            raise ValueError("no output is like that")
        self._head, self._tail = bytearray(rest[:head]), bytearray(rest[head : head + tail])
        return rest[head + tail :]

    def add(self, data: bytes) -> None:
        """More was printed."""
        self.size += len(data)
        room = self._limit - self._half - len(self._head)
        self._head += data[:room]
        if len(data) > room:
            self._tail += data[room:]
            if len(self._tail) > self._limit:
                del self._tail[: -self._half or None]

    def since(self, place: int, most: int) -> bytes:
        """Return what came after the first ``place`` bytes, or the last ``most`` bytes, no more than half the limit."""
        count = min(self.size - place, most)
        if self.size <= self._limit:
            return bytes((self._head + self._tail)[self.size - count :])
        return bytes(self._tail[len(self._tail) - count :])

    def whole(self, more: bytes = b"") -> bytes:
        """Return it, and ``more``, with a note where something was cut."""
        tail, size = self._tail + more, self.size + len(more)
        if size <= self._limit:
            return bytes(self._head + tail)
        cut = b"\n[... %d bytes cut ...]\n" % (size - 2 * self._half)
        return bytes(self._head[: self._half] + cut + tail[len(tail) - self._half :])


class PipeOutput:
    """One of the pipes: what the tasks have printed that have ended, in order, and what the running one has."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._splitter: Splitter | None = None
        self._current = HeadAndTail(limit)
        self.marks = 0
        self.ended: deque[HeadAndTail | None] = deque()  # None: it has printed nothing
        self.ours, self.theirs = os.pipe()
        self.is_open = True

    def begin(self, mark: bytes) -> None:
        """From now on a mark ends what a task printed."""
        self._splitter = Splitter(mark)

    def add(self, data: bytes) -> None:
        """Take what came; nothing, if nobody can write any more."""
        self.is_open = bool(data)
        *ended, last = [data] if self._splitter is None else self._splitter.split(data)
        for piece in ended:
            if piece:
                self._current.add(piece)
            self.marks += 1
            if self._current.size:
                self.ended.append(self._current)
                self._current = HeadAndTail(self._limit)
            else:
                self.ended.append(None)
        if last:
            self._current.add(last)

    @property
    def is_clean(self) -> bool:
        """Whether nothing has come since the last mark."""
        return not self._current.size and not (self._splitter and self._splitter.held)

    def go_on(self, packed: bytes) -> bytes:
        """The next task goes on from what an earlier piece of it had printed; see `HeadAndTail.go_on`."""
        ends = HeadAndTail(self._limit)
        rest = ends.go_on(packed)
        ends.add(self._current.whole())
        self._current = ends
        return rest

    def packed(self) -> bytes:
        """Return what the first task has printed whose end was not reported, for `go_on`."""
        return ((self.ended[0] if self.ended else self._current) or HeadAndTail(self._limit)).packed()

    def take(self) -> bytes:
        """Return what the first task printed that has ended."""
        ends = self.ended.popleft()
        return b"" if ends is None else ends.whole()

    def shown(self, place: int, most: int) -> tuple[int, bytes]:
        """Return how much the running task has printed, and the end of that, as `HeadAndTail.since`."""
        size = self._current.size
        return (size, self._current.since(place, most)) if size > place and not self.ended else (place, b"")

    def unreported(self) -> bytes:
        """Return what the first task printed whose end was not reported."""
        if self.ended:
            return b"" if self.ended[0] is None else self.ended[0].whole()
        return self._current.whole(b"" if self._splitter is None else self._splitter.held)


class Counts:
    """How far both pipes were read, where the process can see it: see `deskgrid.worker.run.child.COUNTS`.

    ``shared``: descriptors of the memory, for the process; on Linux.
    """

    def __init__(self) -> None:
        self.shared: list[int] = []
        self._counts: memoryview | list[int] = [0] * COUNTS
        if sys.platform == "linux":
            self.shared.append(os.memfd_create("deskgrid-counts"))
            os.ftruncate(self.shared[0], COUNTS_BYTES)
            self._counts = memoryview(mmap.mmap(self.shared[0], COUNTS_BYTES)).cast("Q")

    def begin(self) -> None:
        """A pipe is about to be read."""
        self._counts[0] += 1

    def done(self, stdout: PipeOutput, stderr: PipeOutput) -> None:
        """It was read, or what is known of the streams has changed."""
        is_clean = stdout.marks == stderr.marks and stdout.is_clean and stderr.is_clean
        self._counts[2] = stdout.marks if is_clean else NOT_CLEAN
        self._counts[1] = self._counts[0]

    def close(self) -> None:
        """Free the memory: the process has ended. It has a descriptor here."""
        self._counts = [0] * COUNTS


def _opened_again(stream: PipeOutput) -> int:
    """Return another descriptor of our end of a pipe. If a task has reads wait there, ours do not."""
    try:
        return os.open(f"/proc/self/fd/{stream.ours}", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:  # there is no /proc
        return os.dup(stream.ours)


class Outputs:
    """Both pipes of a process. ``limit``: bytes kept of each for a task.

    ``expected``: says how many tasks may have ended that were not taken yet.
    """

    def __init__(self, limit: int, expected: Callable[[], int]) -> None:
        self._expected = expected
        self.stdout, self.stderr = self._streams = (PipeOutput(limit), PipeOutput(limit))
        self._counts = Counts()
        # What the process gets to see what was read of what it has written.
        self.unread = self._counts.shared and [*map(_opened_again, self._streams), *self._counts.shared]
        self._came = threading.Condition()
        self._readers: list[threading.Thread] = []
        # How much came since `is_calm` was asked last.
        self._fresh = 0

    def begin(self, mark: bytes) -> None:
        """The process is ready, and will mark the end of each task so."""
        for stream in self._streams:
            stream.begin(mark)

    def spawned(self) -> None:
        """The process has its ends, or there is none: close them here, and begin to read."""
        for descriptor in self.unread:
            os.close(descriptor)
        for stream in self._streams:
            os.close(stream.theirs)
            if sys.platform == "win32":
                self._readers.append(threading.Thread(target=self._read_on, args=(stream,), daemon=True))
                self._readers[-1].start()
            else:
                os.set_blocking(stream.ours, False)

    def reports(self, descriptor: int) -> Iterator[None]:
        """Yield whenever there is a report to read; drain the pipes meanwhile. Raises ValueError for too many marks."""
        if sys.platform == "win32":
            while True:
                yield
        else:
            import select

            every, only = select.poll(), select.poll()
            for each in (descriptor, *(stream.ours for stream in self._streams)):
                every.register(each, select.POLLIN)
            only.register(descriptor, select.POLLIN)
            lull = 1
            while True:
                ready = {each for each, _ in every.poll()}
                came = 0
                for stream in self._streams:
                    if stream.ours in ready:
                        came += self._read(stream)
                        if not stream.is_open:
                            every.unregister(stream.ours)
                if max(len(stream.ended) for stream in self._streams) > self._expected():
                    raise ValueError("it marked the end of more tasks than it has")
                lull = 1 if came >= PLENTY else min(2 * lull, LULL_MS)
                if descriptor in ready or (0 < came < PLENTY and only.poll(lull)):
                    yield

    @property
    def is_calm(self) -> bool:
        """Whether little came since this was asked last: whoever prints can wait."""
        fresh, self._fresh = self._fresh, 0
        return fresh < PLENTY

    def take(self) -> tuple[bytes, bytes]:
        """Return what the next task printed whose end was reported. Raises ValueError if its end is not marked."""
        stdout, stderr = self._streams
        if not stdout.ended or not stderr.ended:
            self._catch_up()
        if not stdout.ended or not stderr.ended:
            raise ValueError("the end of its output is not marked")
        return stdout.take(), stderr.take()

    def go_on(self, printed: bytes) -> None:
        """The next task goes on from a checkpoint: its output goes on, too. The process is idle."""
        with self._came, suppress(ValueError):  # which is not worth the task
            self.stderr.go_on(self.stdout.go_on(printed))
            self._counts.done(*self._streams)

    def printed(self) -> bytes:
        """Return what the task has printed that saves, for `go_on`; empty if that is nothing. For the listener."""
        for stream in self._streams:
            self._drain(stream)
        with self._came:
            both = self.stdout.packed() + self.stderr.packed()
        return both if len(both) > 2 * _SIZES.size else b""

    def shown(self, stdout: int, stderr: int, most: int) -> PrintedOutput:
        """Return what the running task has printed since it had printed so much."""
        with self._came:
            return PrintedOutput(*self.stdout.shown(stdout, most), *self.stderr.shown(stderr, most))

    def unreported(self) -> tuple[bytes, bytes]:
        """Return what the first task printed whose end was not reported, of a process that was killed."""
        for reader in self._readers:
            reader.join(THREADS_S)
        for stream in self._streams:
            self._drain(stream)
        with self._came:
            return self.stdout.unreported(), self.stderr.unreported()

    def close(self) -> None:
        """Free the pipes of a process that has ended."""
        for reader in self._readers:
            reader.join(THREADS_S)
        with self._came:
            for stream in self._streams:
                if stream.ours >= 0 and not any(reader.is_alive() for reader in self._readers):
                    os.close(stream.ours)
                    stream.ours = -1
            self._counts.close()

    def _catch_up(self) -> None:
        """Read until a task has ended on both pipes, or all that is there."""
        if self._readers:
            with self._came:
                self._came.wait_for(lambda: all(stream.ended for stream in self._streams), THREADS_S)
        for stream in self._streams:
            self._drain(stream, 1)

    def _drain(self, stream: PipeOutput, tasks: float = math.inf) -> None:
        """Read what is there until so many tasks have ended, but no more than a pipe holds."""
        total, count = 0, -1
        while not self._readers and count and total < PIPE_MOST and len(stream.ended) < tasks:
            total += (count := self._read(stream))

    def _read(self, stream: PipeOutput) -> int:
        """Read once what is there; return how much that was."""
        with self._came, suppress(BlockingIOError):
            if stream.ours >= 0 and stream.is_open:
                self._counts.begin()
                try:
                    data = os.read(stream.ours, CHUNK)
                    stream.add(data)
                finally:
                    self._counts.done(*self._streams)
                self._fresh += len(data)
                return len(data)
        return 0

    def _read_on(self, stream: PipeOutput) -> None:
        """Read all that comes: the thread of a pipe on Windows."""
        while stream.is_open:
            try:
                data = os.read(stream.ours, CHUNK)
            except OSError:  # nobody can write any more
                data = b""
            with self._came:
                self._fresh += len(data)
                stream.add(data)
                if max(len(each.ended) for each in self._streams) > self._expected():
                    stream.ended.clear()  # so the next report finds nothing
                self._came.notify_all()
