"""The scope of an attempt: it finds what the first one found, and what it leaves behind is gone when it has ended.

A lambda at the top of a file is pickled with its code, as a function inside a test is.
"""

import _thread
import asyncio
import atexit
import builtins
import contextvars
import cProfile
import csv
import ctypes
import decimal
import faulthandler
import fileinput
import gc
import gzip
import importlib
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import types
import urllib.request
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any

import pytest

from deskgrid.wire import Outcome
from deskgrid.worker.run import scope
from deskgrid.worker.run.child import flush_files
from deskgrid.worker.run.jobs import Program
from deskgrid.worker.run.scope import mounts
from deskgrid.worker.run.spawning import THREADS, variables_of
from tests.executor.rig import Rig, alive, call, command_template, error, python_template, value, written
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="what is not POSIX's is restored by the same code")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
Task = Callable[[], Any]


def run(rig: Rig, *tasks: Task, program: str = "") -> list[Any]:
    """What these returned, one after another on one slot, in one run of a program."""

    def chosen(place: int) -> Any:
        return tasks[place]()

    digest = rig.know(python_template(chosen))
    jobs = rig.jobs(digest, *[call(place) for place in range(len(tasks))])
    rig.executor.run(0, [job._replace(program=Program("somebody", program)) for job in jobs])
    return [value(ended) for ended in rig.until(len(jobs))]


def remove_the_folder() -> Task:
    def task() -> None:
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        os.rmdir(folder)

    return task


def move_to_tokyo() -> Task:
    def task() -> None:
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()

    return task


def change_variables_of_c() -> Task:
    def task() -> None:
        os.putenv("LEAKED", "secret")
        os.unsetenv("PATH")

    return task


def tell_signals() -> Task:
    def task() -> None:
        _, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)

    return task


def set_a_timer_of_c() -> Task:
    def task() -> None:
        timer, times = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, 100, 0)
        assert ctypes.CDLL(None).timer_create(0, None, ctypes.byref(timer)) == 0
        assert ctypes.CDLL(None).timer_settime(timer, 0, times, None) == 0

    return task


def profile() -> Task:
    def task() -> None:
        profiler = vars(types).setdefault("kept_profiler", cProfile.Profile())
        profiler.enable()

    return task


def can_profile() -> Task:
    def task() -> bool:
        with suppress(ValueError), cProfile.Profile():
            return True
        return False

    return task


def kept_variable() -> "contextvars.ContextVar[str]":
    """A variable that the process has for as long as it lives; it cannot be pickled."""
    kept: contextvars.ContextVar[str] = vars(types).setdefault(
        "kept_variable", contextvars.ContextVar("kept", default="as it was")
    )
    return kept


def a_moment_later(change: Task) -> Task:
    """Change something in no time, as few tasks do; but this task takes longer."""

    def task() -> None:
        change()
        time.sleep(0.001)

    return task


def draw_thick_lines() -> Task:
    def task() -> None:
        from matplotlib import pyplot

        pyplot.plot([1])
        pyplot.rcParams["lines.linewidth"] = 9

    return task


def what_is_drawn() -> Task:
    def task() -> tuple[int, float]:
        from matplotlib import pyplot

        return len(pyplot.gca().lines), pyplot.rcParams["lines.linewidth"]

    return task


# What a task may change, how it does, and how the next one sees it.
def _has_loop() -> bool:
    """Whether a loop is there for who asks, which Python makes up to 3.13, and not later."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return not asyncio.get_event_loop_policy().get_event_loop().is_closed()
        except RuntimeError:
            return False


CHANGED: dict[str, tuple[Task, Task]] = {
    "the current folder": (lambda: os.chdir("/"), os.getcwd),
    "the current folder, removed": (
        remove_the_folder(),
        lambda: (os.getcwd(), subprocess.run(["pwd"], check=True, capture_output=True).stdout),
    ),
    "variables": (
        lambda: os.environ.update(LEAKED="secret", PATH="/nowhere"),
        lambda: (
            dict(os.environ),
            os.getenv("LEAKED"),
            subprocess.run(["env"], check=True, capture_output=True).stdout,
        ),
    ),
    "variables, removed": (lambda: [*map(os.environ.pop, [*os.environ])], lambda: dict(os.environ)),
    "the object with the variables": (
        lambda: setattr(os, "environ", {"PATH": "/nowhere"}),
        lambda: (dict(os.environ), type(os.environ).__name__),
    ),
    "the time zone": (
        move_to_tokyo(),
        lambda: (time.tzname, time.localtime(0).tm_hour),
    ),
    "the mask of new files": (lambda: os.umask(0o777), lambda: [os.umask(mask := os.umask(0)), mask]),
    "a handler of a signal": (
        lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        lambda: str(signal.getsignal(signal.SIGTERM)),
    ),
    "the handler of Ctrl-C": (
        lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        lambda: (
            signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            subprocess.run(["sh", "-c", "kill -INT $$"], check=False).returncode,
        ),
    ),
    "blocked signals": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
        lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    ),
    "exit codes of children": (
        lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        lambda: subprocess.run(["sh", "-c", "exit 3"], check=False).returncode,
    ),
    "where signals are told": (
        tell_signals(),
        lambda: signal.set_wakeup_fd(-1),
    ),
    "an alarm": (lambda: signal.alarm(100), lambda: signal.getitimer(signal.ITIMER_REAL)[0]),
    "a timer": (
        lambda: signal.setitimer(signal.ITIMER_PROF, 100.0),
        lambda: signal.getitimer(signal.ITIMER_PROF)[0],
    ),
    "a limit": (
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (16, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
        lambda: (resource.getrlimit(resource.RLIMIT_NOFILE), len([os.open("/", os.O_RDONLY) for _ in range(20)])),
    ),
    "a limit, for good": (
        lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        lambda: resource.getrlimit(resource.RLIMIT_CORE),
    ),
    "where modules are found": (lambda: sys.path.insert(0, "/nowhere"), lambda: [*sys.path]),
    "what becomes of warnings": (lambda: warnings.simplefilter("error"), lambda: [*map(str, warnings.filters)]),
    "the level of logging": (lambda: logging.getLogger().setLevel(1), lambda: logging.getLogger().level),
    "whether there is logging": (lambda: logging.disable(logging.CRITICAL), lambda: logging.root.manager.disable),
    "the limit of recursion": (lambda: sys.setrecursionlimit(300), sys.getrecursionlimit),
    "how threads take turns": (lambda: sys.setswitchinterval(1.0), sys.getswitchinterval),
    "how long sockets wait": (lambda: socket.setdefaulttimeout(0.001), socket.getdefaulttimeout),
    "whether garbage is collected": (gc.disable, gc.isenabled),
    "how often garbage is collected": (lambda: gc.set_threshold(1, 1, 1), gc.get_threshold),
    "a tracer": (lambda: sys.settrace(lambda *_: None), lambda: sys.gettrace() is None),
    "a profiler": (lambda: sys.setprofile(lambda *_: None), lambda: sys.getprofile() is None),
    "a tracer of threads": (lambda: threading.settrace(lambda *_: None), lambda: threading.gettrace() is None),
    "a profiler of threads": (lambda: threading.setprofile(lambda *_: None), lambda: threading.getprofile() is None),
    "a trace of memory": (tracemalloc.start, tracemalloc.is_tracing),
    "where temporary files go": (
        lambda: setattr(tempfile, "tempdir", "/nowhere"),
        lambda: tempfile.gettempdir() == os.environ["TMPDIR"],
    ),
    "the locale": (
        lambda: locale.setlocale(locale.LC_ALL, "C"),
        lambda: (locale.setlocale(locale.LC_ALL), locale.setlocale(locale.LC_CTYPE)),
    ),
    "context variables": (lambda: kept_variable().set("changed"), lambda: kept_variable().get()),
    "decimal numbers": (
        lambda: setattr(decimal.getcontext(), "prec", 3),
        lambda: (decimal.getcontext().prec, str(decimal.Decimal(1) / 3)),
    ),
    "errors of decimal numbers": (
        lambda: decimal.getcontext().traps.update({decimal.Inexact: True}),
        lambda: str(decimal.Decimal(1) / 3),
    ),
    "what decimal numbers have met": (
        lambda: decimal.Decimal(1) / 3,
        lambda: decimal.getcontext().flags[decimal.Inexact],
    ),
    "where it is said what becomes of warnings": (
        a_moment_later(lambda: vars(warnings).update(filters=[])),
        lambda: (warnings.simplefilter("error"), [*map(str, warnings.filters)])[1],  # type: ignore[func-returns-value]
    ),
    "what becomes of other warnings": (
        a_moment_later(lambda: vars(warnings).update(defaultaction="error")),
        lambda: warnings.warn("mind", Warning, stacklevel=1),
    ),
    "a profiler that nobody stops": (a_moment_later(profile()), can_profile()),
    "how text is written": (
        a_moment_later(lambda: getattr(sys.stdout, "reconfigure")(encoding="ascii", errors="strict")),  # noqa: B009
        lambda: (sys.stdout.encoding, sys.stdout.errors, print("caf\u00e9"))[:2],
    ),
    "how much of a traceback is shown": (
        a_moment_later(lambda: vars(sys).update(tracebacklimit=0)),
        lambda: vars(sys).get("tracebacklimit"),
    ),
    "how far it gives way": (lambda: os.nice(3), lambda: os.getpriority(os.PRIO_PROCESS, 0)),
    "standard input": (lambda: os.close(0), lambda: (os.fstat(0).st_rdev, os.read(0, 1))),
    "what Python reads from standard input": (a_moment_later(lambda: (sys.stdin.close(),)), lambda: [*sys.stdin]),
    "what Python reads instead of standard input": (
        a_moment_later(lambda: vars(sys).update(stdin=None)),
        lambda: [*sys.stdin],
    ),
    "arguments": (a_moment_later(lambda: sys.argv.append("--more")), lambda: [*sys.argv]),
    "what is done about errors": (
        a_moment_later(lambda: (vars(sys).update(excepthook=None), vars(threading).update(excepthook=None))),
        lambda: (sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__),
    ),
    "how warnings are shown": (
        a_moment_later(lambda: vars(warnings).update(showwarning=None)),
        lambda: warnings.warn("mind", stacklevel=1),
    ),
    "what is said after a crash": (faulthandler.disable, faulthandler.is_enabled),
    "what is said at a signal": (
        lambda: faulthandler.register(signal.SIGUSR1),
        lambda: (
            subprocess.run(["sh", "-c", "grep SigCgt /proc/$PPID/status; true"], check=True, capture_output=True).stdout
        ),
    ),
    "what is said of garbage": (lambda: gc.set_debug(gc.DEBUG_SAVEALL), gc.get_debug),
    "how large the stack of a thread is": (lambda: threading.stack_size(2**16), threading.stack_size),
    "how long numbers may be": (
        lambda: sys.set_int_max_str_digits(700),
        lambda: (sys.get_int_max_str_digits(), len(str(10**2000))),
    ),
    "hooks of asynchronous generators": (
        lambda: sys.set_asyncgen_hooks(firstiter=print),
        lambda: sys.get_asyncgen_hooks().firstiter,
    ),
    "how C libraries are loaded": (lambda: sys.setdlopenflags(os.RTLD_LAZY), sys.getdlopenflags),
    "what imports": (lambda: setattr(builtins, "__import__", None), lambda: __import__("colorsys").__name__),
    "what finds modules": (lambda: sys.meta_path.__delitem__(slice(None)), lambda: [*map(str, sys.meta_path)]),
    "what finds modules, replaced": (
        lambda: vars(sys).update(meta_path=[], path_hooks=[]),
        lambda: ([*map(str, sys.meta_path)], importlib.import_module("colorsys").__name__),
    ),
    "what reads folders of modules": (
        lambda: sys.path_hooks.__delitem__(slice(None)),
        lambda: [*map(str, sys.path_hooks)],
    ),
    "modules": (
        lambda: [sys.modules.pop(name) for name in ("pickle", "os", "socket")],
        lambda: [id(sys.modules[name]) for name in ("pickle", "os", "socket")],
    ),
    "all modules": (
        lambda: [sys.modules.pop(name) for name in [*sys.modules]],
        lambda: [sys.modules[name].__name__ for name in ("sys", "os", "pickle")],
    ),
    "variables of C": (
        change_variables_of_c(),
        lambda: sorted(subprocess.run(["/usr/bin/env"], check=True, capture_output=True).stdout.splitlines()),
    ),
    "how processes are started": (
        a_moment_later(lambda: multiprocessing.set_start_method("spawn", force=True)),
        lambda: multiprocessing.get_start_method(allow_none=True),
    ),
    "where logs go": (
        lambda: logging.getLogger().addHandler(logging.NullHandler()),
        lambda: [*map(str, logging.getLogger().handlers)],
    ),
    "logs, configured": (
        lambda: logging.basicConfig(level=logging.DEBUG, filename="/dev/null"),
        lambda: (logging.basicConfig(level=logging.INFO), logging.getLogger().level)[1],
    ),
    "which logs there are": (
        a_moment_later(lambda: logging.getLogger().addFilter(lambda _: False)),
        lambda: logging.getLogger().filters,
    ),
    "what logs are made of": (
        a_moment_later(lambda: logging.setLogRecordFactory(logging.makeLogRecord)),
        lambda: logging.getLogRecordFactory() is logging.LogRecord,
    ),
    "how long fields of tables may be": (
        a_moment_later(lambda: csv.field_size_limit(10)),
        csv.field_size_limit,
    ),
    "how pages are opened": (
        a_moment_later(lambda: urllib.request.install_opener(urllib.request.build_opener())),
        lambda: vars(urllib.request)["_opener"] is None,
    ),
    "lines that are read one by one": (
        a_moment_later(lambda: next(fileinput.input("/etc/passwd"))),  # noqa: SIM115  # it stays open
        lambda: next(fileinput.input("/etc/passwd")) != "",  # noqa: SIM115
    ),
    "what is drawn, and how": (draw_thick_lines(), what_is_drawn()),
    "warnings in logs": (
        a_moment_later(lambda: logging.captureWarnings(True)),
        lambda: (logging.captureWarnings(True), warnings.showwarning.__module__)[1],  # type: ignore[func-returns-value]
    ),
    "where compiled modules go": (
        a_moment_later(lambda: vars(sys).update(pycache_prefix="/nowhere", dont_write_bytecode=True)),
        lambda: (sys.pycache_prefix, sys.dont_write_bytecode),
    ),
    "what breakpoints do": (
        a_moment_later(lambda: vars(sys).update(breakpointhook=None)),
        lambda: sys.breakpointhook is sys.__breakpointhook__,
    ),
    "where coroutines come from": (
        lambda: sys.set_coroutine_origin_tracking_depth(3),
        sys.get_coroutine_origin_tracking_depth,
    ),
    "what is kept from the garbage": (
        gc.freeze,
        lambda: gc.get_freeze_count() <= vars(types).setdefault("kept_count", gc.get_freeze_count()),
    ),
    "who is told of garbage": (
        a_moment_later(lambda: gc.callbacks.append(lambda *_: None)),
        lambda: len(gc.callbacks),
    ),
    "how loops are made": (
        a_moment_later(lambda: asyncio.set_event_loop_policy(type("Other", (asyncio.DefaultEventLoopPolicy,), {})())),
        lambda: type(asyncio.get_event_loop_policy()).__name__,
    ),
    "the loop": (
        a_moment_later(
            lambda: asyncio.set_event_loop(asyncio.new_event_loop() if sys.version_info >= (3, 14) else None)
        ),
        _has_loop,
    ),
    "the loop that runs": (
        a_moment_later(lambda: asyncio._set_running_loop(asyncio.new_event_loop())),
        lambda: asyncio._get_running_loop() is None,
    ),
    "standard input, replaced": (
        lambda: os.dup2(os.open(sys.executable, os.O_RDONLY), 0),
        lambda: os.read(0, 1),
    ),
}
if os.geteuid() == 0:
    CHANGED |= {
        "who it is": (lambda: os.seteuid(65534), os.geteuid),
        "its groups": (lambda: os.setgroups([65534]), os.getgroups),
        "what it sees of the disk": (lambda: os.chroot(os.environ["TMPDIR"]), lambda: os.path.exists(sys.executable)),
    }
if sys.platform == "linux":
    CHANGED |= {
        "a timer of C": (a_moment_later(set_a_timer_of_c()), lambda: Path("/proc/self/timers").read_text()),
        "how numbers are rounded": (
            a_moment_later(lambda: ctypes.CDLL("libm.so.6").fesetround(ctypes.CDLL("libm.so.6").fegetround() ^ 0x400)),
            lambda: ctypes.CDLL("libm.so.6").fegetround(),
        ),
        "how it runs programs": (
            a_moment_later(lambda: ctypes.CDLL(None).personality(0x40000)),
            lambda: ctypes.CDLL(None).personality(0xFFFFFFFF),
        ),
        "how late timers are": (
            a_moment_later(lambda: ctypes.CDLL(None).prctl(29, 10**9, 0, 0, 0)),
            lambda: ctypes.CDLL(None).prctl(30, 0, 0, 0, 0),
        ),
        "what it sees of the network, by C": (
            a_moment_later(lambda: ctypes.CDLL(None).unshare(0x40000000)),
            lambda: os.readlink("/proc/self/ns/net"),
        ),
        "the processors": (
            lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
            lambda: sorted(os.sched_getaffinity(0)),
        ),
        "its name": (
            a_moment_later(lambda: Path("/proc/self/comm").write_text("other")),
            lambda: Path("/proc/self/comm").read_text(),
        ),
        "the scheduler": (
            lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
            lambda: os.sched_getscheduler(0),
        ),
        "variables of C, set by C": (
            lambda: (ctypes.CDLL(None).setenv(b"LEAKED", b"1", 1), ctypes.CDLL(None).unsetenv(b"PATH")),
            lambda: sorted(subprocess.run(["/usr/bin/env"], check=True, capture_output=True).stdout.splitlines()),
        ),
        "variables of C, removed by C": (
            lambda: ctypes.CDLL(None).clearenv(),
            lambda: sorted(subprocess.run(["/usr/bin/env"], check=True, capture_output=True).stdout.splitlines()),
        ),
        "exit codes of children, by C": (
            lambda: ctypes.CDLL(None).signal(17, ctypes.c_void_p(1)),
            lambda: subprocess.run(["sh", "-c", "exit 3"], check=False).returncode,
        ),
        "a limit, by a program": (
            lambda: subprocess.run(["prlimit", "--nofile=16:", "--pid", str(os.getpid())], check=True),
            lambda: len([os.open("/", os.O_RDONLY) for _ in range(20)]),
        ),
        "what it adopts": (
            lambda: ctypes.CDLL(None).prctl(36, 0),
            lambda: (ctypes.CDLL(None).prctl(37, number := ctypes.pointer(ctypes.c_int())), number.contents.value)[1],
        ),
        "whose end ends it": (
            lambda: ctypes.CDLL(None).prctl(1, 0),
            lambda: (ctypes.CDLL(None).prctl(2, number := ctypes.pointer(ctypes.c_int())), number.contents.value)[1],
        ),
        "who may look at it": (lambda: ctypes.CDLL(None).prctl(4, 0), lambda: ctypes.CDLL(None).prctl(3)),
        "which rights it may get": (
            lambda: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0),
            lambda: ctypes.CDLL(None).prctl(39, 0, 0, 0, 0),
        ),
    }


@pytest.mark.parametrize("kind", CHANGED)
def test_what_a_task_changes_the_next_one_finds_as_it_was(rig: Rig, kind: str) -> None:
    change, look = CHANGED[kind]
    before, _, after = run(rig, look, lambda: (change(), None)[1], look)
    if kind == "the handler of Ctrl-C":
        assert before == (True, -signal.SIGINT), "as usual"
    if kind.startswith("the current folder, removed"):
        assert Path(after[0]).is_dir()
    assert after == before


@linux
def test_what_a_task_has_started_and_made_is_gone_though_it_has_opened_all_files_that_it_may(rig: Rig) -> None:
    def leave() -> tuple[int, str]:
        left = subprocess.Popen(["sleep", "1000"])
        memory = shared_memory.SharedMemory(create=True, size=100)
        resource_tracker.unregister(f"/{memory.name}", "shared_memory")
        memory.close()
        kept = vars(types).setdefault("kept_files", [])
        with suppress(OSError):
            while True:
                kept.append(os.open("/", os.O_RDONLY))
        return left.pid, memory.name

    left, name = value(rig.call(leave))
    try:
        assert eventually(lambda: rig.poll() is not None and not alive(left))
        assert eventually(lambda: rig.poll() is not None and not Path("/dev/shm", name).exists())
    finally:
        if alive(left):
            os.kill(left, signal.SIGKILL)


@linux
def test_what_a_program_leaves_in_shared_memory_is_gone_when_python_removes_it(rig: Rig) -> None:
    """Python's helper for that begins when the program is dead, and must not be killed with what the program left."""
    code = "import os; from multiprocessing.shared_memory import SharedMemory as S; "
    code += "print(S(create=True, size=9).name, flush=True); os._exit(0)"
    (ended,) = rig.run(rig.know(command_template(sys.executable, "-c", code)), b"")
    assert not Path("/dev/shm", value(ended).strip()).exists()


def can_mount() -> bool:
    """Whether this process may mount something: it is root, and in no container that forbids it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


by_who_can_mount = pytest.mark.skipif(not can_mount(), reason="only root can mount")


@by_who_can_mount
@pytest.mark.parametrize("how", ["returns", "crashes"])
@pytest.mark.parametrize("where", ["a place", "an\n end", "a\r return", "TMPDIR itself", "TMPDIR twice"])
def test_what_a_task_has_mounted_in_its_temporary_folder_is_not_removed_with_it(
    rig: Rig, tmp_path: Path, where: str, how: str
) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "precious").write_text("here")

    def mount(source: str, where: str, how: str) -> None:
        place = os.environ["TMPDIR"] if "TMPDIR" in where else tempfile.mkdtemp(prefix=where)
        for _ in range(2 if "twice" in where else 1):
            subprocess.run(["mount", "--bind", source, place], check=True)
        if how == "crashes":
            os._exit(1)

    ended = rig.call(mount, str(tmp_path / "owner"), where, how)
    assert (ended.outcome is Outcome.DONE) == (how == "returns")
    assert value(rig.call(lambda: os.listdir(os.environ["TMPDIR"]))) == []
    assert (tmp_path / "owner" / "precious").read_text() == "here"
    assert eventually(lambda: not [place for _, place, _ in mounts() if bytes(tmp_path) in place])


def with_mounts(place: Path, script: str) -> str:
    """What a script says that mounts something in ``place``, for itself. $python is our Python."""
    argv = ["unshare", "-m", "sh", "-ec", f'cd "$1"; python="$2"; mkdir owner folder folder/place; {script}']
    done = subprocess.run([*argv, "sh", str(place), sys.executable], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


UNMOUNTS = """
$python -c 'from deskgrid.worker.run import scope; scope.UNMOUNT_S = 0; print(scope.unmount_below("folder"))'
"""


@by_who_can_mount
def test_what_is_mounted_below_what_a_task_has_mounted_stays_where_it_is_from(tmp_path: Path) -> None:
    """As with the /dev of a PC: what is mounted there belongs to it."""
    script = "mount -t tmpfs none owner; mount --make-shared owner; mkdir owner/inner; mount -t tmpfs none owner/inner;"
    script += (
        f"touch owner/inner/precious; mount --rbind owner folder/place; {UNMOUNTS} rmdir folder/place; ls -R owner"
    )
    assert with_mounts(tmp_path, script) == "True\nowner:\ninner\n\nowner/inner:\nprecious\n"


@by_who_can_mount
def test_thousands_of_mounts_are_unmounted_at_once(tmp_path: Path) -> None:
    script = "mount -t tmpfs none folder/place; mkdir folder/place/inner;"
    script += "for i in 1 2 3 4 5 6 7 8 9 10 11; do mount --rbind folder/place folder/place/inner; done;"
    script += f"test $(wc -l < /proc/self/mounts) -gt 2000; {UNMOUNTS}"
    assert with_mounts(tmp_path, script) == "True\n"


@by_who_can_mount
def test_what_is_mounted_where_something_is_to_be_removed_stays(tmp_path: Path) -> None:
    script = (
        "touch owner/precious; mkdir folder/other; mount --bind owner folder/place; mount --bind owner folder/other;"
    )
    script += """$python -c 'import pathlib; from deskgrid.worker.run.beneath import remove
remove(pathlib.Path("folder"), "place"); remove(pathlib.Path("."), "folder")'
        ls owner"""
    assert with_mounts(tmp_path, script) == "precious\n"


def test_a_task_finds_variables_that_are_not_utf_8(rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"CAFE", b"caf\xe9")
    rig = rigs()
    look = lambda: (os.environb[b"CAFE"], subprocess.check_output(["sh", "-c", "echo $CAFE"]))  # noqa: E731
    assert run(rig, look) == [(b"caf\xe9", b"caf\xe9\n")]


def test_children_of_one_that_ended_after_the_look_are_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with subprocess.Popen(["sleep", "1000"]) as orphan:
        looks = [[ended.pid], [orphan.pid]]
        monkeypatch.setattr(scope, "children", lambda: looks.pop(0) if looks else [])
        assert scope.end_children()
        assert looks == []
        assert not alive(orphan.pid)
    ended.wait()


# The same, as a command sees it.
SEEN_BY_COMMANDS = {
    "the current folder, removed": "pwd",
    "variables": "env | sort",
    "the object with the variables": "env | sort",
    "the mask of new files": "umask",
    "a handler of a signal": "(kill -TERM $(exec sh -c 'echo $PPID'); echo alive)",
    "blocked signals": "(kill -TERM $(exec sh -c 'echo $PPID'); echo alive)",
    "a limit": "ulimit -n",
    "how far it gives way": "nice",
}


@pytest.mark.parametrize("kind", SEEN_BY_COMMANDS)
def test_what_a_task_changes_a_command_finds_as_it_was(rig: Rig, kind: str) -> None:
    change, _ = CHANGED[kind]
    look = rig.know(command_template("sh", "-c", f"{SEEN_BY_COMMANDS[kind]}; exit 0"))
    ((before,),) = (rig.run(look, b""),)
    rig.call(lambda: (change(), None)[1])
    (after,) = rig.run(look, b"")
    assert (value(after), after.stderr) == (value(before), before.stderr)


def test_a_warning_is_shown_again_to_the_next_task(rig: Rig) -> None:
    digest = rig.know(python_template(lambda: warnings.warn("mind", stacklevel=1)))
    first, second = rig.run(digest, call(), call())
    assert b"UserWarning: mind" in first.stderr
    assert second.stderr == first.stderr


def test_the_numbers_of_the_next_task_do_not_follow_from_a_seed(rig: Rig) -> None:
    seeded, first, second = run(
        rig,
        lambda: (random.seed(0), random.random())[1],
        lambda: random.random() + 0.0,
        lambda: random.random() + 0.0,
    )
    stream = random.Random(0)
    assert seeded == stream.random()
    assert {first, second}.isdisjoint(stream.random() for _ in range(3))
    assert first != second


@pytest.mark.parametrize("library", ["numpy.random", "torch"])
def test_libraries_draw_new_numbers_in_each_task(rig: Rig, library: str) -> None:
    def install() -> None:
        seeds: list[int] = []
        module: Any = types.ModuleType(library)
        module.seeds, module.seed = seeds, lambda: seeds.append(1)
        sys.modules[library] = module

    _, first, second = run(
        rig, install, lambda: len(sys.modules[library].seeds), lambda: len(sys.modules[library].seeds)
    )
    assert (first, second) == (1, 2)


def test_what_numpy_makes_of_errors_is_as_it_was(rig: Rig) -> None:
    usual = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}

    def install() -> None:
        how = dict(usual)
        module: Any = types.ModuleType("numpy")
        module.geterr, module.seterr = how.copy, how.update
        sys.modules["numpy"] = module
        module.seterr(divide="raise")

    _, after = run(rig, install, lambda: dict(sys.modules["numpy"].geterr()))
    assert after == usual


def test_a_limit_that_cannot_be_raised_again_replaces_the_process(rig: Rig) -> None:
    def forbidden() -> None:
        def refuse(*_: object) -> None:
            raise ValueError("not allowed to raise maximum limit")

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit = refuse  # as the system does for everybody but root

    first, _, third = run(rig, os.getpid, forbidden, lambda: (os.getpid(), resource.getrlimit.__name__)[0])
    assert first != third


def test_an_audit_hook_which_nobody_can_remove_replaces_the_process(rig: Rig) -> None:
    def listen() -> int:
        sys.addaudithook(lambda *_: None)
        return os.getpid()

    assert len(set(run(rig, listen, listen, os.getpid, os.getpid))) == 3


class AddsHook:
    """Adds an audit hook when it is unpickled, as a module may when it is imported."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("import sys; sys.addaudithook(lambda *_: None)",)


def test_an_audit_hook_of_a_module_counts_as_found(rig: Rig) -> None:
    hook = AddsHook()
    digest = rig.know(python_template(lambda: (hook, os.getpid())))
    assert len({value(ended)[1] for ended in rig.run(digest, call(), call(), call())}) == 1


def test_what_finds_a_module_that_a_task_has_imported_stays(rig: Rig) -> None:
    """Such as `six`, whose modules another task may import."""

    def add() -> None:
        sys.meta_path.insert(0, type("Finder", (), {"find_spec": staticmethod(lambda *_: None)}))  # type: ignore[arg-type]

    def names() -> list[str]:
        return [str(getattr(each, "__name__", each)) for each in sys.meta_path]

    def remove() -> None:
        sys.meta_path.clear()

    before, _, after, _, again = run(rig, names, add, names, remove, names)
    assert sorted(after) == sorted(["Finder", *before])
    assert again == ["Finder", *before]


def test_after_a_crash_the_stack_is_where_the_end_of_the_output_is(rig: Rig) -> None:
    def elsewhere() -> None:
        with open("/dev/null", "w") as file:
            faulthandler.enable(file)

    digest = rig.know(python_template(lambda place: [elsewhere, os.abort][place]()))
    _, crashed = rig.run(digest, call(0), call(1))
    assert b"Fatal Python error: Aborted" in crashed.stderr


def test_a_thread_that_is_left_replaces_the_process(rig: Rig) -> None:
    def leave() -> int:
        threading.Thread(target=threading.Event().wait, args=(300,), daemon=True).start()
        return os.getpid()

    def leave_one_below() -> int:
        begun = threading.Event()

        def wait() -> None:
            begun.set()
            threading.Event().wait(300)

        _thread.start_new_thread(wait, ())
        begun.wait()
        return os.getpid()

    assert len(set(run(rig, leave, leave_one_below, os.getpid, os.getpid))) == 3


# --- processes that are left -----------------------------------------------------------------------------------------


def popen() -> list[int]:
    return [subprocess.Popen(["sleep", "300"]).pid]


def in_a_session() -> list[int]:
    return [subprocess.Popen(["sleep", "300"], start_new_session=True).pid]


def daemon() -> list[int]:
    """As daemons become what they are: forked twice, in a session of their own."""
    reader, writer = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(writer, b"%d" % os.getpid())
            os.execlp("sleep", "sleep", "300")
        os._exit(0)
    os.wait()
    return [int(os.read(reader, 20))]


def pool() -> list[int]:
    made = multiprocessing.get_context("fork").Pool(2)
    builtins.kept = made  # type: ignore[attr-defined]
    return [process.pid for process in made._pool]  # type: ignore[attr-defined]


def manager() -> list[int]:
    made = multiprocessing.get_context("fork").Manager()
    builtins.kept = made  # type: ignore[attr-defined]
    return [made._process.pid]  # type: ignore[attr-defined]


def tracker() -> list[int]:
    from multiprocessing import resource_tracker

    made = shared_memory.SharedMemory(create=True, size=10)
    builtins.kept = made  # type: ignore[attr-defined]
    return [resource_tracker._resource_tracker._pid]  # type: ignore[attr-defined]


def forkserver() -> list[int]:
    from multiprocessing import forkserver

    process = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(300,), daemon=True)
    process.start()
    return [process.pid or 0, forkserver._forkserver._forkserver_pid]  # type: ignore[attr-defined]


@linux
@pytest.mark.parametrize("leave", [popen, in_a_session, daemon, pool, manager, tracker, forkserver])
def test_no_process_outlives_the_task_that_started_it(
    short: str, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, leave: Callable[[], list[int]]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", short)
    pids, again = run(rigs(), by_value(leave), lambda: "well")
    assert len(pids) > 0
    assert not any(alive(pid) for pid in pids)
    assert again == "well"


@pytest.fixture
def short() -> Iterator[str]:
    """A folder whose path is short enough for the sockets of `multiprocessing` in it."""
    with tempfile.TemporaryDirectory(prefix="dg", dir="/tmp") as folder:
        yield folder


def by_value(function: Task) -> Task:
    """The same function, which a process that cannot import the tests can unpickle."""
    return types.FunctionType(function.__code__, function.__globals__, "<lambda>")


@linux
@pytest.mark.parametrize(
    "how", ["{} &", "nohup {} >/dev/null 2>&1 &", "setsid {} &", "(setsid {} >/dev/null 2>&1 &)", "({} &) & wait"]
)
def test_no_process_outlives_the_command_that_started_it(rig: Rig, how: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    left = how.format(f"sh -c 'echo $$ > {note}; exec sleep 300'")
    line = f"{left}\nuntil test -s {note}; do :; done"
    (ended,) = rig.run(rig.know(command_template("sh", "-c", line)), b"")
    assert ended.outcome is Outcome.DONE
    assert not alive(int(written(note)))


@pytest.mark.parametrize("how", ["", pytest.param("setsid ", marks=linux)])
def test_what_is_left_does_not_print_into_the_next_result(rig: Rig, how: str) -> None:
    ghost = rig.know(command_template("sh", "-c", f"{how}sh -c 'while echo ghost; do :; done' & echo one"))
    (one,) = rig.run(ghost, b"")
    assert value(one).replace("ghost\n", "") == "one\n"
    (two,) = rig.run(rig.know(command_template("sh", "-c", "echo two; echo too >&2")), b"")
    assert (value(two), two.stderr) == ("two\n", b"too\n")

    def leave() -> None:
        subprocess.Popen([*how.split(), "sh", "-c", "while echo ghost; do :; done"])

    def print_on() -> None:
        def forever() -> None:
            while True:
                print("ghost", flush=True)

        threading.Thread(target=forever, daemon=True).start()

    for left in (leave, print_on):
        rig.call(left)
        assert rig.call(lambda: print("mine")).stdout == b"mine\n"


# --- programs --------------------------------------------------------------------------------------------------------


def test_a_program_does_not_find_what_another_one_keeps_and_its_own_tasks_do(rig: Rig) -> None:
    memo: dict[str, int] = {}

    def remember(grown: list[int] = []) -> tuple[int, int, bool, bool, bool]:  # noqa: B006
        memo[str(len(memo))] = 1
        grown.append(1)
        patched, cached = json.dumps is None, "invented" in sys.modules
        opened = builtins.open is None
        json.dumps = None  # type: ignore[assignment]
        sys.modules["invented"] = types.ModuleType("invented")
        builtins.open = None  # type: ignore[assignment]
        return len(memo), len(grown), patched, cached, opened

    first, second = run(rig, remember, remember, program="first")
    assert first == (1, 1, False, False, False)
    assert second == (2, 2, True, True, True)
    assert run(rig, remember, program="second") == [first]
    assert run(rig, remember, program="first") == [first], "nor what an earlier run of it has kept"


@pytest.mark.parametrize("end", ["replaced", "stopped", "spent"])
def test_exit_handlers_run_and_files_are_flushed_when_a_process_ends(
    rigs: Callable[..., Rig], tmp_path: Path, end: str
) -> None:
    handled, flushed = tmp_path / "handled", tmp_path / "flushed"

    def begin() -> int:
        file = open(flushed, "w")  # noqa: SIM115
        file.write("line\n")
        builtins.kept = file  # type: ignore[attr-defined]
        atexit.register(lambda: handled.write_text("ran"))
        if end == "spent":
            threading.Thread(target=threading.Event().wait, args=(300,), daemon=True).start()
        return os.getpid()

    rig = rigs()
    run(rig, begin, program="first")
    if end == "replaced":
        run(rig, lambda: 1, program="second")
    elif end == "stopped":
        rig.executor.close()
    assert written(handled) == "ran"
    assert written(flushed) == "line\n"


def test_what_is_no_file_is_not_flushed_and_no_code_of_a_class_runs(tmp_path: Path) -> None:
    """A pipe that nobody reads would hold the task for ever; a closed descriptor may belong to a socket by now."""

    class Odd(type):
        def __subclasscheck__(cls, kind: type) -> bool:
            raise OSError("it runs")

        def __getattribute__(cls, name: str) -> object:
            raise OSError("it runs")

    class Odder(metaclass=Odd):
        def __getattribute__(self, name: str) -> object:
            raise OSError("it runs")

    kept = Odder()
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    with ours, theirs, open(tmp_path / "file", "w") as file, gzip.open(tmp_path / "packed", "wt") as packed:
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(65536))
        os.set_blocking(writer, True)
        pipe = os.fdopen(writer, "wb")
        pipe.write(b"x")
        reused = open(tmp_path / "reused", "wb")  # noqa: SIM115
        reused.write(b"x")
        os.dup2(theirs.fileno(), reused.fileno())
        for text in (file, packed):
            text.write("line\n")
        flush_files()
        assert (tmp_path / "file").read_text() == "line\n"
        assert zlib.decompressobj(31).decompress((tmp_path / "packed").read_bytes()) == b"line\n"
        assert not select.select([ours], [], [], 0)[0]
    os.close(reader)
    for broken in (pipe, reused):
        with suppress(OSError):
            broken.close()
    assert type(kept) is Odder


# --- temporary files -------------------------------------------------------------------------------------------------


def litter() -> Task:
    """A task that leaves temporary files, also in folders that it has closed to itself; returns their folder."""

    def task() -> str:
        folder = tempfile.mkdtemp()
        os.mkdir(os.path.join(folder, "inner"))
        open(os.path.join(folder, "inner", "file"), "w").close()
        os.symlink("/", os.path.join(folder, "link"))
        os.chmod(os.path.join(folder, "inner"), 0)
        os.chmod(folder, 0)
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(b"x")
        return tempfile.gettempdir()

    return task


def test_each_task_finds_an_empty_folder_for_temporary_files(rig: Rig) -> None:
    left = litter()
    folder, found = run(rig, left, lambda: (os.environ["TMPDIR"], os.listdir(os.environ["TMPDIR"])))
    assert found == (folder, [])
    command = 'mktemp -d >/dev/null; ls -A "$TMPDIR" | wc -l'
    digest = rig.know(command_template("sh", "-c", command))
    assert [int(value(one)) for one in rig.run(digest, b"", b"")] == [1, 1]


def test_a_file_that_a_task_of_microseconds_leaves_is_gone(rig: Rig) -> None:
    def leave() -> None:
        os.mkdir(os.environ["TMPDIR"] + "/left")

    assert run(rig, *[leave, lambda: os.listdir(os.environ["TMPDIR"])] * 5) == [None, []] * 5


def test_a_folder_for_temporary_files_that_a_task_removes_is_there_for_the_next(rig: Rig) -> None:
    def remove() -> None:
        os.rmdir(os.environ["TMPDIR"])

    _, there = run(rig, remove, lambda: os.path.isdir(tempfile.mkdtemp()))
    assert there


@pytest.mark.parametrize("end", ["end", "crash"])
@pytest.mark.skipif(sys.platform == "win32", reason="who makes links there needs a privilege")
def test_a_folder_that_a_task_puts_in_the_place_of_that_for_temporary_files_keeps_what_is_in_it(
    rig: Rig, end: str, tmp_path: Path
) -> None:
    kept = tmp_path / "larger disk" / "folder" / "file"
    kept.parent.mkdir(parents=True)
    kept.touch()

    def replace(larger: str, end: str) -> None:
        folder = os.environ["TMPDIR"]
        os.rmdir(folder)
        os.symlink(larger, folder)
        if end == "crash":
            os._exit(1)

    digest = rig.know(python_template(replace))
    rig.run(digest, call(str(kept.parents[1]), end))
    assert run(rig, lambda: os.path.islink(os.environ["TMPDIR"])) == [False]
    assert kept.exists()


@pytest.mark.parametrize("end", ["crash", "kill"])
def test_temporary_files_of_a_process_that_dies_are_gone(rig: Rig, end: str) -> None:
    left = litter()

    def task() -> None:
        print(left(), end="", flush=True)
        if end == "crash":
            os._exit(1)
        threading.Event().wait(300)

    timeout = 0.5 if end == "kill" else None
    rig.executor.run(0, rig.jobs(rig.know(python_template(task)), call(), timeout=timeout))
    (ended,) = rig.until(1)
    folder = Path(ended.stdout.decode())
    assert folder.name
    assert eventually(lambda: (rig.poll(), not folder.exists() or not list(folder.glob("tmp*")))[1])


# --- memory, threads, variables --------------------------------------------------------------------------------------


def test_a_task_that_lacks_memory_where_others_ran_before_is_tried_once_in_a_new_process(rig: Rig) -> None:
    kept: list[int] = []

    def task(where: str) -> int:
        kept.append(1)
        if where == "anywhere" or (where == "beside others" and len(kept) > 1):
            raise MemoryError
        return os.getpid()

    digest = rig.know(python_template(task))
    first, second, third = rig.run(digest, call("nowhere"), call("beside others"), call("anywhere"))
    assert value(first) != value(second)
    assert error(third)[0] == "MemoryError"


def test_libraries_start_as_many_threads_as_the_task_has_slots_unless_somebody_said_otherwise(tmp_path: Path) -> None:
    variables = variables_of({"OMP_NUM_THREADS": "7", "HOME": str(tmp_path)}, tmp_path, 2)
    assert {name: variables[name] for name in THREADS} == dict.fromkeys(THREADS, "2") | {"OMP_NUM_THREADS": "7"}
    assert variables["MPLBACKEND"] == "Agg"
    assert variables["HOME"] == str(tmp_path)


def test_a_task_has_a_home_that_can_be_written(tmp_path: Path) -> None:
    assert variables_of({"HOME": "/proc/nobody/home"}, tmp_path, 1)["HOME"] == str(tmp_path)


def test_the_first_task_finds_its_variables(rig: Rig) -> None:
    (found,) = run(rig, lambda: dict(os.environ))
    assert found["TMPDIR"] == found["TEMP"] == found["JOBLIB_TEMP_FOLDER"]
    assert found["MPLBACKEND"] == os.environ.get("MPLBACKEND", "Agg")
    assert found["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")
