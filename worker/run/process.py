"""One process that runs tasks, the thread that listens to it, and the differences between platforms.

Rule 1: a process serves one run of one program of one person.
Rule 2: it is killed together with everything that it started, and dies when the worker ends, however it ends.
"""

import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from deskgrid.sizes import size
from deskgrid.wire import (
    PAYLOAD_LIMIT,
    SAID_AT_MEETING_BYTES,
    SECONDS_LIMIT,
    Chunks,
    Failure,
    Outcome,
    Payload,
    results_of_tasks,
)
from deskgrid.worker.run import shared
from deskgrid.worker.run.accounts import UMASK, UserAccount
from deskgrid.worker.run.beneath import names_in, remove
from deskgrid.worker.run.cgroup import ControlGroup, Groups
from deskgrid.worker.run.child import (
    ARGUMENTS,
    MARK_BYTES,
    TIMES_BYTES,
    Raw,
    Reports,
    checkpoint_file_of,
    exit_text,
    frame,
    notes_file_of,
    tasks_folder_of,
)
from deskgrid.worker.run.devices import WHATEVER_THERE_IS, HeldDevices
from deskgrid.worker.run.jobs import JobEnded, JobSaved, PrintedOutput, Program, RankMeets
from deskgrid.worker.run.nursery import PROGRAM, Birth, Direct, Nursery
from deskgrid.worker.run.output import Outputs, last_lines, with_printed
from deskgrid.worker.run.scope import SIGKILL, priority_class, unmount_below
from deskgrid.worker.run.shared import Entry
from deskgrid.worker.run.templates import Remembered

if sys.platform == "win32":
    from deskgrid.worker.run.job_object import SUSPENDED, JobObject

# Seconds to wait at closing for a killed process to end; only one that hangs in a system call takes any time.
CLOSE_LIMIT = 5.0
# How long a process that is to end, or has closed its pipe, may take for what its program does at its end. Seconds.
END_LIMIT = 1.0
# The code of a process that was killed.
KILLED = 1 if sys.platform == "win32" else -SIGKILL
# Bytes. A write of at most this size never blocks if the process has read everything except possibly the previous
# write, which was no larger: the smallest pipe is 4 KiB (Windows) or 16 KiB (macOS).
PIPE_ROOM = 2048 if sys.platform == "win32" else 8192

# How long a writer waits for room before it looks whether the process has died. Milliseconds.
ROOM_MS = 1000
# Bytes of each pipe, on systems that can set this. With larger pipes, the writer and the reader of a large payload take
# turns less often. Linux allows one user 64 MiB of pipes; this size keeps the pipes of many slots below that.
PIPE_BYTES = 256 * 1024

# Within a batch, the listener pauses this long between reads, so that it reads the results of thousands of short tasks
# a few dozen at a time. This delays nobody: a batch matters only when its last result is there. Seconds.
LULL_S = 0.004
# There is no pause if results are larger than this: a full pipe would block the tasks. Bytes.
LULL_BYTES = 1024
# The templates that a process remembers, beside its newest one, take at most this many bytes.
TOLD_BYTES = PAYLOAD_LIMIT

_OUTCOMES = tuple(Outcome)
# How the reports of an end begin, and what a task has printed that is silent.
_ENDS = ("ended", "silent")
NOTHING = b"", b""
# Why a piece is not over that ended with a checkpoint.
NOT_KEPT = "the checkpoint that the task saved cannot be kept on this PC's disk"

# The reports of a process to the executor, sent by the listening thread. "gone" is always the last.
ProcessReport = JobEnded | JobSaved | RankMeets | Literal["ready", "spent", "gone"]


class Process:
    """One process that runs tasks, and the thread that listens to it. Dies once."""

    def __init__(
        self,
        slot: int,
        stem: Path,
        arguments: Sequence[str],
        tell: "Tell",
        nursery: Nursery | Direct,
        *,
        environment: str,
        capture_limit: int,
        account: UserAccount | None = None,
        keep: "Callable[[JobSaved, Path | None], JobSaved | None]" = lambda saved, path: saved,
        inherited: Sequence[int] = (),
        groups: Groups | None = None,
        devices: HeldDevices = WHATEVER_THERE_IS,
        before: Collection[Entry] = (),
    ) -> None:
        """``stem``: of its folder for temporary files, and of the files for its checkpoints. ``arguments``: of
        `deskgrid.worker.run.child`, after TIMES.

        ``environment``: the key of the environment in which it runs; empty: that of the worker. ``account``: the user
        that it runs as from the start; None: the worker's own, or it has yet to `become` another.

        ``capture_limit``: bytes kept of what a task prints to stdout, and to stderr.

        ``keep``: called with each checkpoint by the thread that listens, and with the path of a large one. It returns
        what is reported, or None.

        ``inherited``: descriptors that the process gets. ``groups``: how the kernel bounds its memory; None: it cannot.

        ``devices``: the graphics cards that it finds. ``before``: what is in shared memory already.
        """
        self.slot = slot
        # Bytes of memory that its tasks have asked for; None: it has served none.
        self.memory: int | None = None
        self._groups = groups
        self._group: ControlGroup | None = None
        self.overran = False  # the kernel has killed it because it used more
        self.ready = False
        self.ending = False
        self.program: Program | None = None
        self.bundle: str | None = None
        self.environment = environment
        self.devices = devices
        self.told = Remembered(TOLD_BYTES)
        self.undelivered = 0  # the last jobs written to the process, if they did not arrive
        # The attempts that it may save checkpoints of: task, number. What it says of others is not kept.
        self.saving: set[tuple[int, int]] = set()
        # How many jobs were written, and how many results came. Only the listener changes `_heard`.
        self._written = 0
        self._heard = 0
        self._is_up = False
        self._unkept = False  # the newest checkpoint of the running task found no room
        self.reason = "killed"
        self._tell = tell
        self._keep = keep
        self._account = account
        self._times: int | None = None
        self._times_file = str(stem.with_suffix(".due"))
        self._notes = notes_file_of(self._times_file)
        self.before = before
        self._outputs = Outputs(capture_limit, lambda: self._written - self._heard)
        self._dying = threading.Lock()
        self._dead = False
        # Data not written yet, each with its number of jobs, and the thread that writes them.
        self._unwritten: deque[tuple[Sequence[bytes | memoryview], int]] = deque()
        self._writer: threading.Thread | None = None
        try:
            self._started = _spawn(self._outputs, [self._times_file, *arguments], account, nursery, inherited)
        except OSError:
            self._outputs.spawned()
            self._outputs.close()
            raise
        self._outputs.spawned()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its number, once it has one."""
        return self._started.birth.pid

    def become(self, account: UserAccount, variables: Mapping[str, str]) -> None:
        """Belong to a user from now on, with this environment: nobody's code has run in it."""
        self._account = account
        how = {"uid": account.uid, "gid": account.gid, "groups": account.groups, "umask": UMASK, "cwd": account.home}
        given = {name: os.fsencode(value) for name, value in variables.items()}
        self.write([frame(["become", "", how | {"variables": given}])], 0)

    def confine(self, memory: int) -> None:
        """Let it use so many bytes of memory from now on, with all that it starts; 0: as much as any other process.

        It is ready, and nobody's code has run in it.
        """
        self.memory = memory
        if memory and isinstance(self._started.birth, _WindowsBirth):
            with suppress(OSError):  # it is over
                self._started.birth.limit(memory)
        if memory and not self._enters_group(memory):
            self.write([frame(["memory", "", [memory, f"it needs more than {_asked(memory)}"]])], 0)

    def _enters_group(self, memory: int) -> bool:
        group: ControlGroup | None = None
        try:
            group = None if self._groups is None else self._groups.new(memory)
            if group is not None and self._started.birth.is_of_its_parent:
                group.add(self.pid)
                self._group = group
            elif group is not None:
                group.remove()
        except OSError:
            if group is not None:
                group.remove()
        return self._group is not None

    @property
    def served(self) -> bool:
        """Whether a task has ended in it."""
        return self._heard > 0

    def write(self, data: Sequence[bytes | memoryview], jobs: int, earlier: bytes = b"") -> None:
        """Send ``data``, the pieces of a message with ``jobs`` jobs, without blocking.

        ``earlier``: what earlier pieces of the first of them had printed. Then the process is idle.
        """
        if earlier:
            self._outputs.go_on(earlier)
        self._written += jobs
        with self._dying:
            if self._dead:
                self.undelivered += jobs
            elif self._writer is not None:
                self._unwritten.append((data, jobs))
            elif left := (self._write_at_once(data, jobs) if sum(map(len, data)) <= PIPE_ROOM else data):
                self._unwritten.append((left, jobs))
                self._writer = threading.Thread(target=self._write_on, daemon=True)
                self._writer.start()

    def _write_on(self) -> None:
        """Write the queued data until the queue is empty."""
        while True:
            with self._dying:
                if not self._unwritten:
                    self._writer = None
                    return
                data, jobs = self._unwritten.popleft()
            try:
                with self._dying:  # the process may be told to end meanwhile, and its pipe closed
                    pipe = os.dup(self._started.stdin)
                try:
                    for piece in data:
                        self._write_patiently(pipe, memoryview(piece))
                finally:
                    os.close(pipe)
            except OSError:
                self.undelivered += jobs

    def _write_at_once(self, data: Sequence[bytes | memoryview], jobs: int) -> list[bytes | memoryview]:
        """Write what there is room for, and return the rest: a task may have filled the pipe, or made it small."""
        for place, piece in enumerate(data):
            written = 0
            try:
                while written < len(piece):
                    written += os.write(self._started.stdin, memoryview(piece)[written:])
            except BlockingIOError:
                return [memoryview(piece)[written:], *data[place + 1 :]]
            except OSError:
                self.undelivered += jobs
                return []
        return []

    def _write_patiently(self, pipe: int, piece: memoryview) -> None:
        """Write all of it, as long as the process lives. Raises OSError."""
        while piece:
            try:
                piece = piece[os.write(pipe, piece) :]
            except BlockingIOError:
                if self._dead:
                    raise
                if sys.platform != "win32":  # there, writes wait by themselves
                    poller = select.poll()
                    poller.register(pipe, select.POLLOUT)
                    poller.poll(ROOM_MS)

    def tell_times(self, due: float, closes: float, last: bool) -> None:
        """Tell the running task when a checkpoint is due, and when its window closes: monotonic seconds.

        ``last``: its piece ends with this checkpoint. The first call, before the task begins, makes the file.
        Raises OSError.
        """
        if self._times is None:
            path = Path(self._times_file)
            path.write_bytes(bytes(TIMES_BYTES))
            path.chmod(0o600)
            if self._account is not None:
                self._account.let_read(path)
            self._times = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        os.lseek(self._times, 0, os.SEEK_SET)
        os.write(self._times, struct.pack("ddd", due, closes, float(last)))

    def shown(self, stdout: int, stderr: int, most: int) -> PrintedOutput:
        """Return what the running task has printed after so many bytes, at most ``most`` bytes of each."""
        return self._outputs.shown(stdout, stderr, most)

    def captured(self) -> tuple[bytes, bytes]:
        """Return what the running task of a killed process has printed: stdout, stderr."""
        stdout, stderr = self._outputs.unreported()
        return stdout, stderr or self._started.birth.trouble.encode()

    def kill(self) -> None:
        """Kill the process and everything that it started, at once."""
        with self._dying:
            if not self._dead:
                self._started.birth.kill()
                if self._group is not None:
                    self._group.kill()

    def stop(self) -> None:
        """Stop it with everything that it has started, until `go_on`: also what has started since the last call."""
        with self._dying:
            if not self._dead:
                if self._group is not None:
                    self._group.freeze(True)
                self._started.birth.stop()

    def resume(self) -> None:
        """Let it go on with everything that it has started."""
        with self._dying:
            if not self._dead:
                if self._group is not None:
                    self._group.freeze(False)
                self._started.birth.resume()

    def end(self) -> None:
        """Let the process end by itself: it is idle. Its program does what it does at its end, for a moment."""
        with self._dying:
            if not self._dead:
                self.ending = True
                self._started.birth.end(END_LIMIT)
                os.close(self._started.stdin)
                self._started = self._started._replace(stdin=-1)

    def close(self) -> None:
        """Free the pipes and files; the process must have been killed or have reported "gone"."""
        self._listener.join(CLOSE_LIMIT)
        if self._listener.is_alive():
            return
        self._started.close()
        self._outputs.close()
        Path(self._notes).unlink(missing_ok=True)
        if self._times is not None:
            os.close(self._times)
            self._times = None
            Path(self._times_file).unlink(missing_ok=True)

    def _listen(self) -> None:
        garbled = ""
        try:
            self._read()
        except Exception as error:  # of whatever kind: a task wrote into our pipe
            garbled = f"killed, because its report makes no sense ({error})"
        birth = self._started.birth
        with self._dying:
            self._dead = True
        cannot_speak = not garbled and not self.ending and not birth.ends_within(END_LIMIT)
        if garbled or cannot_speak:
            birth.kill()
        code = birth.wait()
        self.reason = garbled or _reason(code)
        if cannot_speak and code == KILLED:
            self.reason = "killed, because it closed its pipe to the worker"
        self._remove_shared_memory(birth.used)
        if self._group is not None:
            self.overran = self._group.overran()
            self._group.remove()
        if self.overran and self.memory:
            self.reason = f"killed, because it used more than {_asked(self.memory)}"
        elif self.memory and self._group is None:
            self.reason += f"; it may not use more than {_asked(self.memory)}"
        if (writer := self._writer) is not None:
            writer.join()
        self._tidy()
        self._tell(self, ["gone"])

    def _tidy(self) -> None:
        """Remove the files that tasks have left: here, because that takes long if they are many."""
        folder = Path(tasks_folder_of(self._times_file))
        temporary = folder.parent.parent / f"{folder.name}.tmp"
        # Root does not unmount where an account can write. What that mounts has ended with its processes.
        if self._account is not None or unmount_below(str(temporary)):
            remove(temporary.parent, temporary.name)
        if self._times is not None:
            left = list[str]()
            with suppress(OSError), closing(names_in(folder.parent.parent, folder.parent.name)) as names:
                left += [name for name, _ in names if name.partition(".")[0] == folder.name]
            for name in left:
                remove(folder.parent.parent, name, folder.parent.name)

    def made(self) -> list[Entry]:
        """Return what its Python code is known to have made in shared memory."""
        return list(shared.noted(self._notes))

    def _remove_shared_memory(self, used: Collection[Entry]) -> None:
        """Remove what it made, and what it had in use when it was killed if that came with it and nobody else uses it.

        It has ended.
        """
        if sys.platform != "win32":
            uids = [os.geteuid() if self._account is None else self._account.uid]
            shared.remove(self.made(), uids)
            shared.remove_unused([entry for entry in used if entry not in self.before], uids)

    def _read(self) -> None:
        frames = Reports(self._started.stdout)
        for _ in self._outputs.reports(self._started.stdout):
            count, messages = frames.read()
            if not count:
                return
            if messages:
                said = self._understood(messages)
                self._heard += sum(isinstance(one, JobEnded) for one in said)
                if self._heard > self._written:
                    raise ValueError("more results than tasks")
                more = self._heard < self._written  # before `_tell`, since the executor may then write more
                self._tell(self, said)
                if self._outputs.is_calm and more and count <= LULL_BYTES * len(messages):
                    time.sleep(LULL_S)

    def _understood(self, messages: list[list[Any]]) -> list[ProcessReport]:
        """Convert messages to reports; raises ValueError."""
        printed: deque[bytes] = deque()
        rows = []
        for message in messages:
            if message[0] == "silent":
                rows.append(_result(message, NOTHING))
            elif message[0] == "ended":
                rows.append(_result(message, self._outputs.take()))
            elif message[0] == "saved":
                printed.append(self._outputs.printed())
        results = iter(results_of_tasks(rows))
        said: list[ProcessReport] = []
        for message in messages:
            if message[0] in _ENDS:
                task, number, outcome, elapsed, payload, stdout, stderr, waited = next(results)
                if outcome == Outcome.PIECE and self._unkept:
                    outcome, payload = Outcome.NO_ROOM, Failure("NoRoom", NOT_KEPT).packed()
                self._unkept = False
                self.saving.discard((task, number))
                end = _OUTCOMES[outcome]
                said.append(JobEnded(self.slot, task, number, end, elapsed, payload, stdout, stderr, waited))
            elif message[0] == "saved":
                said += self._kept(message, printed.popleft())
            elif message[0] == "meet":
                said.append(_meets(message))
            elif message[0] == "ready" and not self._is_up:
                self._is_up = True
                self._outputs.begin(_mark(message))
                said.append("ready")
            elif message[0] == "spent":
                said.append("spent")
            else:
                raise ValueError("no report begins so")
        return said

    def _kept(self, message: list[Any], printed: bytes) -> list[ProcessReport]:
        """Keep a checkpoint, and return what is reported of it: nothing if there is no room for it.

        ``printed``: what its task has printed.
        """
        told = _saved(self.slot, [*message[:-1], b""] if type(message[-1]) is int else message)
        if (told.task, told.number) not in self.saving:
            return [told]  # it is not that task's process, as the executor will notice
        if type(number := message[-1]) is not int:
            saved = self._keep(told._replace(data=with_printed(told.data, printed)), None)
        elif number:
            path = Path(checkpoint_file_of(self._times_file, number))
            saved = self._keep(told._replace(data=printed), path)
            remove(path.parent.parent, path.name, path.parent.name)
        else:
            saved = None
        self._unkept = saved is None
        return [] if saved is None else [saved]


def _saved(slot: int, message: list[Any]) -> JobSaved:
    """Return the report of a checkpoint; raises ValueError."""
    _, task, number, progress, elapsed, cost, data = message
    for seconds in (elapsed, cost):
        if type(seconds) is not float or not 0.0 <= seconds <= SECONDS_LIMIT:
            raise ValueError("malformed report: times must be seconds")
    if type(task) is not int or type(number) is not int:
        raise ValueError("malformed report: task and attempt must be integers")
    if progress is not None and not (type(progress) is float and 0.0 <= progress <= 1.0):
        raise ValueError("malformed report: progress must be between 0 and 1")
    if type(data) not in (bytes, bytearray) or len(data) > PAYLOAD_LIMIT:
        raise ValueError(f"malformed report: a checkpoint must be bytes, {PAYLOAD_LIMIT} at most")
    return JobSaved(
        slot, task, number, progress, elapsed, cost, data if isinstance(data, bytes) else Chunks([memoryview(data)])
    )


def _meets(message: list[Any]) -> RankMeets:
    """Return the report of a rank that has come to a meeting; raises ValueError."""
    _, task, number, serial, gathers, overdue, value = message
    if type(task) is not int or type(number) is not int or type(serial) is not int or not 0 < serial < 2**32:
        raise ValueError("malformed meeting: task, attempt and serial must be integers")
    if type(gathers) is not bool or type(overdue) is not bool:
        raise ValueError("malformed meeting")
    if type(value) is not bytes or len(value) > SAID_AT_MEETING_BYTES:
        raise ValueError(f"malformed meeting: a value must be bytes, {SAID_AT_MEETING_BYTES} at most")
    return RankMeets(task, number, serial, gathers, overdue, value)


def _mark(message: list[Any]) -> bytes:
    """Return what a process that is ready says of its marks; raises ValueError."""
    _, _, mark = message
    if type(mark) is not bytes or len(mark) != MARK_BYTES:
        raise ValueError("no mark is like that")
    return mark


def _result(message: list[Any], printed: tuple[bytes, bytes]) -> list[Any]:
    """Return the values of a result from the pipe in the form that a `Result` has."""
    *values, waited, payload = message[1:]
    if isinstance(payload, bytearray):
        payload = Chunks([memoryview(payload)])
    elif isinstance(payload, str):
        payload = Failure("CommandFailed", payload, last_lines(printed[1])).packed()
    return [*values, payload, *printed, waited]


def _asked(memory: int) -> str:
    return f"the {size(memory)} of memory that it asked for (memory=)"


def as_sent(payload: Payload) -> bytes | Raw:
    """Return a payload as `frame` takes it."""
    return payload if isinstance(payload, bytes) else Raw(payload.frames())


Tell = Callable[[Process, list[ProcessReport]], None]


class _Started(NamedTuple):
    """A process that was started, and our ends of its pipes. ``lifeline``: closes when this worker ends in any way."""

    birth: "Birth | _WindowsBirth"
    stdin: int
    stdout: int
    lifeline: int

    def close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.lifeline):
            if descriptor >= 0:
                os.close(descriptor)


def _spawn(
    outputs: Outputs,
    arguments: Sequence[str],
    account: UserAccount | None,
    nursery: Nursery | Direct,
    inherited: Sequence[int],
) -> _Started:
    """Start a process, which gets its pipes and what is ``inherited``, and nothing else of ours. Raises OSError."""
    if isinstance(nursery, Direct):
        return _spawn_on_windows(nursery, outputs, arguments)
    if account is not None:
        for stream in (outputs.stdout, outputs.stderr):
            account.own(stream.theirs)  # so that it can open /dev/stdout
    pipes = [os.pipe() for _ in range(3)]
    (input_, stdin), (stdout, reports), (lifeline, ours) = pipes
    printed = [outputs.stderr.theirs, outputs.stdout.theirs]
    descriptors = [input_, reports, *printed, lifeline, *outputs.unread, *inherited]
    birth = nursery.start(["", *arguments], descriptors)
    for descriptor in (input_, reports, lifeline):
        os.close(descriptor)
    _widen(stdin, stdout)
    if sys.platform != "win32":
        os.set_blocking(stdin, False)
    return _Started(birth, stdin, stdout, ours)


def _widen(*pipes: int) -> None:
    """Make pipes larger than the default."""
    if sys.platform == "linux":
        import fcntl

        for pipe in pipes:
            with suppress(OSError):  # this user has too many large ones
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


class _WindowsBirth:
    """A process on Windows, as a `Birth` elsewhere."""

    trouble = ""
    used: Sequence[Entry] = ()
    is_of_its_parent = True

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        """``popen`` was started suspended. Raises OSError."""
        self._popen = popen
        self.pid = popen.pid
        if sys.platform == "win32":
            try:
                self._job = JobObject(popen.pid)
            except OSError:
                popen.kill()
                raise
        # What it leaves may have its pipes open, so nobody would hear that it has ended.
        self._ended = threading.Thread(target=self._end_with_it, daemon=True)
        self._ended.start()

    def _end_with_it(self) -> None:
        self._popen.wait()
        if sys.platform == "win32":
            self._job.close()

    def limit(self, memory: int) -> None:
        """Let it have so many bytes of memory, with all that it starts. Raises OSError."""
        if sys.platform == "win32":
            self._job.limit(memory)

    def kill(self) -> None:
        self._popen.kill()  # with which its job is closed

    def stop(self) -> None:
        """Stop all that is in its job."""
        if sys.platform == "win32":
            self._job.suspend()

    def resume(self) -> None:
        """Let go on what was stopped."""
        if sys.platform == "win32":
            self._job.resume()

    def end(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self.kill)
        timer.daemon = True
        timer.start()

    def ends_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)
        return self._popen.returncode is not None

    def wait(self) -> int | None:
        self._ended.join()
        return self._popen.returncode


def _spawn_on_windows(direct: Direct, outputs: Outputs, arguments: Sequence[str]) -> _Started:
    how: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    how["env"] = dict(variable.split("=", 1) for variable in arguments[ARGUMENTS - 1 :])
    argv = [*direct.python, str(PROGRAM), "", str(outputs.stdout.theirs), *arguments[: ARGUMENTS - 1]]
    if sys.platform == "win32":
        import msvcrt

        handle = msvcrt.get_osfhandle(outputs.stdout.theirs)
        os.set_handle_inheritable(handle, True)
        argv[len(direct.python) + 2] = str(handle)
        how["startupinfo"] = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})
        how["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        how["creationflags"] |= priority_class(direct.nice) | SUSPENDED
    popen: subprocess.Popen[bytes] = subprocess.Popen(argv, stderr=outputs.stderr.theirs, **how)
    assert popen.stdin is not None
    assert popen.stdout is not None
    stdin, stdout = (os.dup(pipe.fileno()) for pipe in (popen.stdin, popen.stdout))
    popen.stdin.close()
    popen.stdout.close()
    return _Started(_WindowsBirth(popen), stdin, stdout, -1)


def _reason(code: int | None) -> str:
    """Describe how a process ended that we did not kill."""
    if code is None:
        return "it was refused by the system"
    if sys.platform != "win32" and code == KILLED:
        return "killed, perhaps out of memory (SIGKILL)"
    return exit_text(code)
