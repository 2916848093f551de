"""The scope of an attempt, from inside its process: it finds what the first one found, and what it leaves is ended.

Rule 1: as `child.py`, this file imports nothing of ours.
Rule 2: what an attempt finds is what was there when the code of its program had been loaded: what a module sets when it
is imported is meant for all tasks, what a task sets is not. What a program keeps in its own globals stays.
Rule 3: this runs after each task, however short it is: see `QUICK_S`. What only an imported module can change is looked
at only if that module has been imported.
"""

import _thread
import builtins
import faulthandler
import gc
import importlib
import locale
import logging
import math
import os
import re
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache, partial, wraps
from operator import attrgetter
from typing import Any

# Without an enum for each number, as `signal.getsignal` makes.
_getsignal: Callable[[int], Any] = importlib.import_module("_signal").getsignal
# As they are before `watch` has them noticed.
_set_wakeup_fd, _setlocale = signal.set_wakeup_fd, importlib.import_module("_locale").setlocale
_putenv, _unsetenv, _close = os.putenv, os.unsetenv, os.close
SIGKILL = getattr(signal, "SIGKILL", 9)
# The signals of POSIX; later ones are for programs that use them on purpose.
_SIGNALS = range(1, 32) if sys.platform != "win32" else ()
# An attempt that took no longer has started no process, loaded no module and made no file. What it can have changed is
# noticed when Python code changes it; after others, one looks. Seconds.
QUICK_S = 20e-6
# An attempt that took no longer has started no program, which might have set limits of this process. Seconds.
PROGRAM_S = 0.5e-3
# How long children that were killed may take to end. Seconds.
KILL_S = 2.0
_LOOK_S = 0.002
# How long a process may take to remove what its program has left in shared memory, and what runs in it: Python's, and
# joblib's.
TIDY_S = 1.0
_TRACKER = b"resource_tracker import main"
# How long it may take until programs have unmounted what is left in one folder. Seconds.
UNMOUNT_S = 10.0
# How Linux writes some bytes of a name in its table of mounts, and which ones.
_ESCAPED, _ESCAPES = re.compile(rb"\\([0-7]{3})"), frozenset(b" \t\n\\#")
# That a mount and those below it share nothing; that it is unmounted also when it is in use, without asking it, and if
# it is no link.
_PRIVATE, _DETACH = 1 << 14 | 1 << 18, 2 | 8
# The entry of a folder for temporary files that is clean has this age: no change of ours or of a task leaves it.
_OLD_S = 3600
# The largest of nice(2).
LOWEST = 19
# Processes that are stopped at once. What stops cannot start others, so nobody comes near.
_MOST_STOPPED = 100_000
# Linux: the processor and the disk only when nobody else wants them. See ioprio_set(2).
_IDLE_DISK = 3 << 13
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30}
_SUBREAPER, _IS_SUBREAPER, _DUMPABLE, _DEATH_SIGNAL = 36, 37, 4, 1
_SET_NAME, _GET_NAME, _NAME_BYTES = 15, 16, 16
# What prctl(2) tells at a place: the signal at the parent's end, and whether this process adopts; and at once: whether
# others may look at it, and whether it may get new rights; root's rights, and whether they stay with another user; how
# late timers may be, and whether there are huge pages.
_ASKED_WITH_A_PLACE, _ASKED = (2, _IS_SUBREAPER), (3, 39, 27, 7, 30, 42)
# Bytes of a structure of sigaction(2), and of fenv_t, or more; and what has personality(2) tell.
_ACTION_BYTES, _FENV_BYTES, _WHICH = 256, 256, 0xFFFFFFFF
# Bytes that are read of the list of timers: those of a few.
_TIMERS_BYTES = 1024
# What of the system a process sees, and what its children see.
_NAMESPACES = tuple(f"/proc/self/ns/{name}" for name in ("mnt", "net", "pid_for_children", "user"))
_SIGCHLD, _IGNORED = getattr(signal, "SIGCHLD", 17), 1
# The numbers of tools that Python tells what runs: see `sys.monitoring`.
_TOOLS = 6
# Numpy's, when it has just been imported.
_FLOATING = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
# Decimal's: digits, rounding, exponents, capitals, clamping, which signals there were, and which are errors.
_DECIMAL: Any = (
    28,
    "ROUND_HALF_EVEN",
    -999999,
    999999,
    1,
    0,
    set(),
    {"InvalidOperation", "DivisionByZero", "Overflow"},
)


def _unnoticed_resource() -> Any:
    """Return `resource`, if this system has it, without letting it count as imported."""
    if sys.platform == "win32":
        return None
    else:
        import resource

        return sys.modules.pop("resource", resource)


resource = _unnoticed_resource()
_RLIMITS = sorted({value for name, value in vars(resource or object).items() if name.startswith("RLIMIT_")})


class Surroundings:
    """What an attempt finds of the state that a process has for all of its code. Made, and used, by the main thread."""

    def __init__(self) -> None:
        self._folder = -1
        # How many modules there were, and whether none of them has state to look at.
        self._known, self._is_plain = 0, False
        self._threads = _thread._count()
        self.note()

    def note(self) -> None:
        """Each attempt from now on finds what is there now."""
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._cwd = -1, "."
        with suppress(OSError):
            self._cwd = os.getcwd()
            self._folder = os.open(".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        self._environ = os.environ
        self._variables = dict(_variables())
        _watched.begin()
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._handlers = list(map(_getsignal, _SIGNALS))
        if sys.platform != "win32":
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._looked_at, self._state = _copied(_looked_at()), _state()
        self._seldom = [read() for read, _ in _SELDOM]
        self._limits, self._kernel_state = _read_limits(), _read_kernel_state()
        _note_arithmetic()
        self._loaded = dict(sys.modules)
        self._modules = {name: read() for name, (read, _, _) in _MODULES.items() if name in sys.modules}
        reseed()

    def start_thread(self) -> None:
        """One more of the threads that are here is ours."""
        self._threads += 1

    def restore(self, touched: bool, elapsed: float = math.inf) -> bool:
        """Have the next attempt find what was noted; return whether that is possible in this process.

        ``touched``: see `may_have_changed`. ``elapsed``: seconds that the attempt took.
        """
        if not touched and self._is_as_noted():
            return _thread._count() <= self._threads
        try:
            if len(sys.modules) != self._known:
                self._restore_modules()
            for name in list(_watched.called):
                if name in _UNDONE:
                    _UNDONE[name]()
            self._restore_process("resource" in sys.modules or elapsed > PROGRAM_S)
            if elapsed > PROGRAM_S and _read_kernel_state() != self._kernel_state:
                return False
            self._restore_python()
            reseed()
        except Exception:  # such as a limit that only root can raise again, or a module that a task has taken apart
            return False
        _watched.called.clear()
        return _thread._count() <= self._threads

    def _is_as_noted(self) -> bool:
        """Whether a task has changed nothing that nobody notices, within no time."""
        return (
            len(sys.modules) == self._known
            and self._is_plain
            and os.environ is self._environ
            and _looked_at() == self._looked_at
        )

    def _restore_modules(self) -> None:
        """Have the modules that were there be there. Others have come, or some have gone."""
        vars(sys)["modules"] = modules = _LOADED
        for name, module in self._loaded.items():
            if name not in modules:
                modules[name] = module
        self._known, self._is_plain = len(modules), _CHANGEABLE.isdisjoint(modules)

    def _restore_process(self, limits_too: bool) -> None:
        if sys.platform == "win32":
            os.chdir(self._cwd)
        else:
            os.fchdir(self._folder) if self._folder >= 0 else os.chdir(self._cwd)
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                signal.setitimer(timer, 0.0)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            if limits_too and (limits := _read_limits()) != self._limits:
                for each, now, before in zip(_RLIMITS, limits, self._limits, strict=True):
                    if now != before:
                        resource.setrlimit(each, before)
        if _watched.variables or os.environ is not self._environ or _variables() != self._variables:
            self._restore_variables()
        os.umask(self._umask)
        _set_wakeup_fd(-1)
        if (handlers := list(map(_getsignal, _SIGNALS))) != self._handlers:
            for number, now, before in zip(_SIGNALS, handlers, self._handlers, strict=True):
                if now is not before and before is not None:
                    signal.signal(number, before)

    def _restore_variables(self) -> None:
        vars(os)["environ"] = self._environ
        decode = vars(os.environ).get("decodevalue", str)
        for name in [name for name in _variables() if name not in self._variables]:
            del os.environ[decode(name)]
        for name, value in self._variables.items():
            if _variables().get(name) != value:
                os.environ[decode(name)] = decode(value)
        for given in _watched.variables:  # C has them, too
            its: Any = os.fsencode(given) if os.supports_bytes_environ else given.upper()
            _unsetenv(its) if its not in self._variables else _putenv(its, self._variables[its])
        _watched.variables.clear()

    def _restore_python(self) -> None:
        if _looked_at() != self._looked_at:
            for write, before in zip(_LOOKED_AT, self._looked_at, strict=True):
                write(before)
            self._looked_at = _copied(_looked_at())  # with what finds modules that have come
        if _state() != self._state:
            for write, before in zip(_SET, self._state, strict=True):
                write(before)
        for (read, write), before in zip(_SELDOM, self._seldom, strict=True):
            if read() != before:
                write(before)
        _restore_arithmetic()
        faulthandler.cancel_dump_traceback_later()
        _forget_shown_warnings()
        for name, (read, write, fresh) in _MODULES.items():
            if name in sys.modules and read() != (before := self._modules.get(name, fresh)):
                write(before)


class _Watched:
    """Whether Python code has changed what takes so little time to change that it pays off to notice only then."""

    def __init__(self) -> None:
        # What was called, such as "os.chdir"; and the variables that were given to C, or taken from it.
        self.called = set[str]()
        self.variables = set[Any]()

    def begin(self) -> None:
        """What was called so far counts as found. One looks once all the same: something may have gone unnoticed."""
        self.called = {"something"}
        self.variables.clear()

    def watch(self, module: Any, *names: str) -> None:
        """Notice when one of these functions is called."""
        for name in names:
            if (function := getattr(module, name, None)) is not None:
                noticing = self._noticing(function, f"{module.__name__}.{name}")
                for place in (module, sys.modules.get(function.__module__)):
                    if getattr(place, name, None) is function:  # such as `posix`, which pickles name
                        setattr(place, name, noticing)

    def _noticing(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        of_variables = name in ("os.putenv", "os.unsetenv")

        @wraps(function)
        def called(*given: Any, **options: Any) -> Any:
            self.called.add(name)
            found = function(*given, **options)
            if of_variables:
                self.variables.add(given[0])
            return found

        for group in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if function in group:
                group.add(called)
        return called


_watched = _Watched()


def may_have_changed(elapsed: float) -> bool:
    """Whether an attempt that took so long, in seconds, may have changed more than what one looks at after each."""
    return elapsed > QUICK_S or bool(_watched.called)


def watch() -> None:
    """Notice from now on, in this process and its copies, what short tasks change. For processes of tasks only."""
    import socket

    _watched.watch(socket, "setdefaulttimeout")
    _watched.watch(os, "chdir", "fchdir", "umask", "putenv", "unsetenv", "close", "closerange", "dup2")
    _watched.watch(os, "nice", "setpriority", "sched_setaffinity", "sched_setscheduler", "sched_setparam")
    _watched.watch(signal, "signal", "alarm", "setitimer", "pthread_sigmask", "set_wakeup_fd")
    _watched.watch(threading, "settrace", "setprofile", "settrace_all_threads", "setprofile_all_threads")
    _watched.watch(os, "setuid", "seteuid", "setreuid", "setresuid", "setgid", "setegid", "setregid", "setresgid")
    _watched.watch(os, "setgroups", "initgroups", "chroot", "unshare", "setns")
    _watched.watch(sys, "settrace", "setprofile", "setrecursionlimit", "setswitchinterval", "addaudithook")
    _watched.watch(sys, "set_int_max_str_digits", "setdlopenflags", "set_asyncgen_hooks")
    _watched.watch(sys, "set_coroutine_origin_tracking_depth")
    _watched.watch(threading, "stack_size")
    _watched.watch(faulthandler, "dump_traceback_later", "disable", "enable", "register")
    _watched.watch(gc, "set_threshold", "enable", "disable", "set_debug", "freeze")
    _watched.watch(getattr(sys, "monitoring", None), "use_tool_id")
    _watched.watch(locale, "setlocale")
    _watched.watch(time, "tzset")


def _variables() -> dict[Any, Any]:
    """The variables as `os.environ` keeps them, which can be compared quickly."""
    found: dict[Any, Any] = vars(os.environ)["_data"]
    return found


def _read_limits() -> list[Any]:
    return [resource.getrlimit(each) for each in _RLIMITS]


def _attribute(module: str, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return how to read, and to set, a variable of a module that may not be imported yet."""
    return lambda: getattr(sys.modules[module], name), lambda value: setattr(sys.modules[module], name, value)


def _call(module: str, name: str) -> Callable[..., Any]:
    """Return what calls a function of a module that may not be imported yet."""

    def call(*values: Any) -> Any:
        return getattr(sys.modules[module], name)(*values)

    return call


_FILTERS: Any = warnings.filters
_ROOT = logging.root
_LOADED = sys.modules


def _looked_at() -> tuple[Any, ...]:
    """State of Python that a task may change within no time, and that nobody notices but by a look at it."""
    logs = _ROOT.manager._disable, _ROOT.level, _ROOT.handlers  # type: ignore[attr-defined]  # quicker than a property
    return sys.path, warnings.filters, *logs, sys.meta_path, sys.path_hooks, __import__


def _copied(state: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([list(each) if type(each) is list else each for each in state])


def _state() -> tuple[Any, ...]:
    """Other state of Python that a task may change."""
    return sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), gc.isenabled()


def _bring_back(name: str, before: list[Any]) -> None:
    """Have a list of `sys` hold what it held. What modules have added stays: they need it."""
    now = getattr(sys, name)
    if not all(each in now for each in before):
        now[:] = [*before, *(each for each in now if each not in before)]


def _set_filters(before: list[Any]) -> None:
    vars(warnings)["filters"] = _FILTERS  # a task may have put another list there
    _FILTERS[:] = before


def _set_handlers(before: list[logging.Handler]) -> None:
    for handler in _ROOT.handlers:
        if handler not in before:
            with suppress(Exception):  # it may be of the task's own making
                handler.flush()
    _ROOT.handlers[:] = before


# How each part of what is looked at is set, and of the other state.
_LOOKED_AT: tuple[Callable[[Any], Any], ...] = (
    lambda path: sys.path.__setitem__(slice(None), path),
    _set_filters,
    logging.disable,
    _ROOT.setLevel,
    _set_handlers,
    lambda finders: _bring_back("meta_path", finders),
    lambda hooks: _bring_back("path_hooks", hooks),
    lambda importing: setattr(builtins, "__import__", importing),
)
_SET: tuple[Callable[[Any], Any], ...] = (
    sys.setrecursionlimit,
    sys.setswitchinterval,
    sys.settrace,
    sys.setprofile,
    lambda on: gc.enable() if on else gc.disable(),
)


def _read_locale() -> Any:
    return _setlocale(locale.LC_ALL)


def _of(place: Any, *names: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return how to read, and to set, attributes: one, or several."""

    def write(values: Any) -> None:
        for name, value in zip(names, values if len(names) > 1 else [values], strict=True):
            setattr(place, name, value)

    return partial(attrgetter(*names), place), write


def _catch_warnings() -> None:
    with warnings.catch_warnings():
        pass


# Make void which warnings were shown once. Python has a function for that, or does it at both ends of a context.
_forget_shown_warnings: Callable[[], None] = getattr(warnings, "_filters_mutated", _catch_warnings)


def _read_input() -> Any:
    return sys.stdin, sys.stdin.closed


def _write_input(before: Any) -> None:
    sys.stdin, was_closed = before
    if sys.stdin.closed != was_closed:
        raise ValueError("it cannot be opened again")


def _set_fault_handler(on: bool) -> None:
    faulthandler.enable(2) if on else faulthandler.disable()


def _read_user() -> Any:
    """Who this process is."""
    if sys.platform == "win32":
        return None
    else:
        return os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()


def _write_user(before: Any) -> None:
    raise PermissionError("nobody can become root again")


def _forget_signals() -> None:
    """Have faulthandler print nothing at signals that are for programs."""
    for number in _SIGNALS:
        with suppress(RuntimeError):  # one of a crash, which is not for programs
            vars(faulthandler)["unregister"](number)  # which Windows does not have


def _replace_the_process() -> None:
    raise PermissionError("this could not be undone")


# What is done about calls after which there is nothing to compare.
_UNDONE: dict[str, Callable[[], Any]] = {
    "faulthandler.enable": lambda: _set_fault_handler(True),
    "faulthandler.register": _forget_signals,
    "gc.freeze": gc.unfreeze,
    "os.chroot": _replace_the_process,
    "os.unshare": _replace_the_process,
    "os.setns": _replace_the_process,
    "sys.addaudithook": _replace_the_process,
}


@cache
def _prctl() -> tuple[Any, Any]:
    """Return a function of Linux, and a place for the name of this process; nothing if Python cannot call C here."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        return ctypes.CDLL(None).prctl, ctypes.create_string_buffer(_NAME_BYTES)
    return None, None


def _read_name() -> Any:
    prctl, name = _prctl()
    return name if prctl is None or prctl(_GET_NAME, name) else name.value


def _write_name(name: bytes) -> None:
    _prctl()[0](_SET_NAME, name)


class _CState:
    """What C code can change, and Python neither notices nor shows, on Linux."""

    def __init__(self) -> None:
        """Raises ImportError, OSError, AttributeError, ValueError if Python cannot call C here."""
        import ctypes

        library = ctypes.CDLL(None)
        self._prctl, self._sigaction, self._personality = library.prctl, library.sigaction, library.personality
        self._number, self._action = ctypes.c_int(), ctypes.create_string_buffer(_ACTION_BYTES)
        self._place, self._handler = ctypes.byref(self._number), ctypes.c_void_p.from_buffer(self._action)
        self._entries = ctypes.POINTER(ctypes.c_char_p).in_dll(library, "environ")
        self._array, self._bytes_at = ctypes.c_void_p.in_dll(library, "environ"), ctypes.string_at
        self._width, self._seen = ctypes.sizeof(ctypes.c_void_p), b""
        self._variables: tuple[bytes, ...] = ()

    def state(self) -> Any:
        """Whose end ends this process, whether it adopts, and the rest of `_ASKED`.

        Then how it runs programs (setarch). Last, whether ends of children are ignored: then each command that fails
        looks as if it had not.
        """
        found: list[int] = []
        for question in _ASKED_WITH_A_PLACE:
            self._prctl(question, self._place, 0, 0, 0)
            found.append(self._number.value)
        found += [self._prctl(question, 0, 0, 0, 0) for question in _ASKED]
        self._sigaction(_SIGCHLD, None, self._action)
        return [*found, self._personality(_WHICH), self._handler.value == _IGNORED]

    def variables(self) -> Any:
        """The variables that programs get; they are read again only if one has been set or removed."""
        if (array := self._array.value) is None:
            return ()
        if not self._seen or self._bytes_at(array, len(self._seen)) != self._seen:
            found: list[bytes] = []
            while (entry := self._entries[len(found)]) is not None:
                found.append(entry)
            self._seen = self._bytes_at(array, (len(found) + 1) * self._width)
            self._variables = tuple(sorted(found))
        return self._variables


@cache
def _c_state() -> _CState | None:
    with suppress(ImportError, OSError, AttributeError, ValueError):
        return _CState()
    return None


def _read_c_state() -> Any:
    return None if (state := _c_state()) is None else state.state()


def _read_c_variables() -> Any:
    return None if (state := _c_state()) is None else state.variables()


def _write_c_variables(before: Any) -> None:
    now, then = (dict(entry.split(b"=", 1) for entry in entries) for entries in (_read_c_variables(), before))
    for name in now.keys() - then.keys():
        _unsetenv(name)
    for name, value in then.items():
        if now.get(name) != value:
            _putenv(name, value)


def _read_kernel_state() -> Any:
    """On Linux: namespaces and timers of this process, which only C code makes, and nobody can put back."""
    found: list[Any] = []
    if sys.platform == "linux":
        for name in _NAMESPACES:
            with suppress(OSError):  # a kernel without these
                found.append(os.readlink(name))
        with suppress(OSError):
            timers = os.open("/proc/self/timers", os.O_RDONLY)  # a task may have replaced `open`
            found.append(os.read(timers, _TIMERS_BYTES))
            _close(timers)
    return found


@cache
def _arithmetic() -> Any:
    """Return C's functions for how numbers are rounded, and a place for that; nothing if Python cannot call C here."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        library = ctypes.CDLL("libm.so.6")
        return library.fegetenv, library.fesetenv, ctypes.create_string_buffer(_FENV_BYTES)
    return None


def _note_arithmetic() -> None:
    if (functions := _arithmetic()) is not None:
        functions[0](functions[2])


def _restore_arithmetic() -> None:
    if (functions := _arithmetic()) is not None:
        functions[1](functions[2])


def _read_tools() -> Any:
    """The debuggers and profilers that Python 3.12 and later tell what runs: one for each number."""
    if sys.version_info >= (3, 12):
        return [sys.monitoring.get_tool(number) for number in range(_TOOLS)]
    return []


def _write_tools(before: Any) -> None:
    if sys.version_info >= (3, 12):
        events = [value for name, value in vars(sys.monitoring.events).items() if name.isupper() and value]
        for number in [number for number in range(_TOOLS) if _read_tools()[number] != before[number]]:
            sys.monitoring.set_events(number, 0)
            for event in events:
                sys.monitoring.register_callback(number, event, None)
            sys.monitoring.free_tool_id(number)


# State that few tasks change, and that is looked at only after others than quick ones: how to read it, and to set it.
_SELDOM: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (gc.get_threshold, lambda counts: gc.set_threshold(*counts)),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (_read_locale, lambda name: _setlocale(locale.LC_ALL, name)),
    _of(sys, "excepthook", "unraisablehook", "displayhook", "breakpointhook", "pycache_prefix", "dont_write_bytecode"),
    _of(threading, "excepthook"),
    _of(warnings, "showwarning", "formatwarning", "defaultaction"),
    _of(logging, "_warnings_showwarning", "raiseExceptions", "lastResort"),
    _of(_ROOT, "disabled"),
    _of(logging, "_logRecordFactory", "_loggerClass"),
    (lambda: vars(sys).get("tracebacklimit"), partial(vars(sys).__setitem__, "tracebacklimit")),
    (lambda: list(gc.callbacks), lambda callbacks: gc.callbacks.__setitem__(slice(None), callbacks)),
    (lambda: list(_ROOT.filters), lambda filters: _ROOT.filters.__setitem__(slice(None), filters)),
    (sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth),
    (_read_input, _write_input),
    (faulthandler.is_enabled, _set_fault_handler),
    (gc.get_debug, gc.set_debug),
    (threading.stack_size, threading.stack_size),
    (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    (sys.get_asyncgen_hooks, lambda hooks: sys.set_asyncgen_hooks(*hooks)),
    (lambda: tuple(sys.argv), lambda values: sys.argv.__setitem__(slice(None), values)),
    (_read_tools, _write_tools),
]
# What the system and C know of this process. Who has given way to others cannot take that back.
if sys.platform != "win32":
    _SELDOM += [
        (lambda: (time.tzname, time.timezone), lambda _: time.tzset()),
        (lambda: os.getpriority(os.PRIO_PROCESS, 0), lambda nice: os.setpriority(os.PRIO_PROCESS, 0, nice)),
        (sys.getdlopenflags, sys.setdlopenflags),
        (_read_user, _write_user),
    ]
if sys.platform == "linux":
    _SELDOM += [
        (_read_name, _write_name),
        (_read_c_state, lambda _: _replace_the_process()),
        (_read_c_variables, _write_c_variables),
        (lambda: os.sched_getaffinity(0), lambda cpus: os.sched_setaffinity(0, cpus)),
        (lambda: os.sched_getscheduler(0), lambda how: os.sched_setscheduler(0, how, os.sched_param(0))),
    ]


def _read_decimal() -> Any:
    context = sys.modules["decimal"].getcontext()
    raised, errors = (
        {signal.__name__ for signal, is_set in flags.items() if is_set} for flags in (context.flags, context.traps)
    )
    return (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, raised, errors)


def _write_decimal(values: Any) -> None:
    decimal = sys.modules["decimal"]
    *plain, raised, errors = values
    signals = [[getattr(decimal, name) for name in names] for names in (raised, errors)]
    decimal.setcontext(decimal.Context(*plain, *signals))


def _read_loops() -> Any:
    events = sys.modules["asyncio.events"]
    policy = getattr(events, "_event_loop_policy", None)
    local = getattr(policy, "_local", None)
    return policy, getattr(local, "_loop", None), getattr(local, "_set_called", False), events._get_running_loop()


def _write_loops(before: Any) -> None:
    events: Any = sys.modules["asyncio.events"]
    policy, loop, was_set, running = before
    events._set_running_loop(running)
    if hasattr(events, "_event_loop_policy"):
        events._event_loop_policy = policy
    if (local := getattr(policy, "_local", None)) is not None:
        local._loop, local._set_called = loop, was_set


def _processes() -> Any:
    return sys.modules["multiprocessing.context"]._default_context


def _read_style() -> Any:
    """What matplotlib draws with; None: as it does when it has just been imported."""
    matplotlib = sys.modules["matplotlib"]
    now = dict(dict.items(matplotlib.rcParams))
    return None if all(now[name] == value for name, value in _usual_style().items()) else now


def _write_style(before: Any) -> None:
    dict.update(sys.modules["matplotlib"].rcParams, _usual_style() if before is None else before)


def _usual_style() -> dict[str, Any]:
    """Without what draws, which it finds out when it is needed first."""
    return {name: each for name, each in dict.items(sys.modules["matplotlib"].rcParamsOrig) if name != "backend"}


def _read_figures() -> list[Any]:
    return list(sys.modules["matplotlib._pylab_helpers"].Gcf.figs)


def _close_figures(before: list[Any]) -> None:
    for number in _read_figures():
        if number not in before:
            sys.modules["matplotlib._pylab_helpers"].Gcf.destroy(number)


# State that a module keeps: how to read it, how to set it, and what it is when the module has just been imported.
_MODULES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "socket": (_call("socket", "getdefaulttimeout"), _call("socket", "setdefaulttimeout"), None),
    "tempfile": (*_attribute("tempfile", "tempdir"), None),
    "decimal": (_read_decimal, _write_decimal, _DECIMAL),
    "asyncio.events": (_read_loops, _write_loops, (None, None, False, None)),
    "multiprocessing.context": (
        lambda: _processes()._actual_context,
        lambda before: setattr(_processes(), "_actual_context", before),
        None,
    ),
    "_tracemalloc": (_call("_tracemalloc", "is_tracing"), lambda _: sys.modules["_tracemalloc"].stop(), False),
    "_csv": (_call("_csv", "field_size_limit"), _call("_csv", "field_size_limit"), 128 * 1024),
    "urllib.request": (*_attribute("urllib.request", "_opener"), None),
    "fileinput": (*_attribute("fileinput", "_state"), None),
    "matplotlib": (_read_style, _write_style, None),
    "matplotlib._pylab_helpers": (_read_figures, _close_figures, []),
    "numpy": (_call("numpy", "geterr"), lambda how: sys.modules["numpy"].seterr(**how), _FLOATING),
}


# Modules whose state a task cannot change within no time without being noticed, or hardly ever does.
_NOTICED = {"socket", "asyncio.events", "multiprocessing.context", "urllib.request", "fileinput", "_csv"}
_NOTICED |= {"matplotlib", "matplotlib._pylab_helpers"}
# Modules whose state a task can change within no time, so it is always looked at once they are imported.
_CHANGEABLE = {*_MODULES, "random", "numpy.random", "torch", "resource"} - _NOTICED


def reseed() -> None:
    """Have what draws random numbers without a seed of its own begin anew, from the system's entropy."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "torch" in modules:
        modules["torch"].seed()


class Temporary:
    """The folder for temporary files of a process, which each attempt finds empty.

    A task may put something else in its place, such as a link to a larger disk: that is not to be emptied.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._made = os.lstat(path)
        self._clean = int(time.time() - _OLD_S) * 10**9
        self._place: int | str = path
        self.clean()
        if sys.platform != "win32":  # by its descriptor, one sees sooner whether it was touched
            self._place = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    @property
    def is_untouched(self) -> bool:
        """Whether it is there, and nothing in it."""
        found = os.stat(self._place)
        return found.st_mtime_ns == self._clean and found.st_nlink > 0

    def is_there(self) -> bool:
        """Whether nobody has removed or replaced it."""
        try:
            return os.path.samestat(os.lstat(self.path), self._made)
        except OSError:
            return False

    def clean(self) -> bool:
        """Remove what is in it; return whether it is there and can be used."""
        if not self.is_there():
            return False
        try:
            if os.stat(self._place).st_mtime_ns != self._clean:
                if not unmount_below(self.path):
                    return False
                with os.scandir(self.path) as entries:
                    for entry in entries:
                        _remove(entry)
                os.utime(self.path, ns=(self._clean, self._clean))
        except (OSError, RecursionError):  # the worker removes it, however deep it is
            return False
        return True


def _remove(entry: "os.DirEntry[str]") -> None:
    if entry.is_dir(follow_symlinks=False):
        _remove_folder(entry.path)
    else:
        with suppress(OSError):
            os.unlink(entry.path)


def _remove_folder(path: str) -> None:
    """Remove a folder with what a task left there, also where the task has closed folders to itself."""
    shutil.rmtree(path, ignore_errors=True)
    # Root has removed all of it; and what root changes by its path is not to be what somebody puts there.
    if os.path.lexists(path) and not _is_root():
        with suppress(OSError):
            os.chmod(path, 0o700)
        for folder, folders, _ in os.walk(path):
            for each in folders:
                with suppress(OSError):
                    if not os.path.islink(inner := os.path.join(folder, each)):
                        os.chmod(inner, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def unmount_below(folder: str) -> bool:
    """Unmount what a task has mounted on a folder, or in it; return whether nothing is: only then may it be removed."""
    until = time.monotonic() + UNMOUNT_S
    try:
        there = _mounted_below(folder)
        for place, kind in sorted(there, key=lambda mount: len(mount[0])):  # with it goes what is mounted below it
            # What was mounted with all below it (rbind) may be shared: that would be unmounted where it is from, too.
            failed = libc("mount", None, place, None, _PRIVATE, None) or libc("umount2", place, _DETACH)
            if failed and kind.startswith(b"fuse"):
                _unmount_as_user(place, until)
        return not (there and _mounted_below(folder))
    except OSError:  # nobody knows what is mounted
        return False


def _unmount_as_user(place: bytes, until: float) -> None:
    """Unmount a file system that runs as a program of this user."""
    import subprocess  # here, because few tasks need it

    for program in ("fusermount3", "fusermount"):
        with suppress(OSError, subprocess.SubprocessError):
            argv, left = [program, "-uz", place], max(0.0, until - time.monotonic())
            subprocess.run(argv, check=True, capture_output=True, timeout=left)
            return


def _mounted_below(folder: str) -> list[tuple[bytes, bytes]]:
    """Return where something is mounted on or in a folder, and its kind. Raises OSError."""
    start = os.fsencode(os.path.join(os.path.realpath(folder), ""))
    return [(place, kind) for _, place, kind in mounts(containing=start) if (place + b"/").startswith(start)]


def mounts(table: str = "/proc/self/mounts", containing: bytes = b"") -> list[tuple[bytes, bytes, bytes]]:
    """Return what is mounted: device, place and kind; nothing where the system does not tell. Raises OSError.

    ``containing``: a path; if it is in no line, nothing needs to be returned.
    """
    with suppress(FileNotFoundError), open(table, "rb") as file:
        data = file.read()
        if containing.rstrip(b"/") not in data and _ESCAPES.isdisjoint(containing):
            return []
        # A name may contain "\r", which would end a line for `splitlines`.
        rows = [line.split(b" ") for line in data.split(b"\n") if line]
        return [(device, _plain(place), kind) for device, place, kind, *_ in rows]
    return []


def _plain(name: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), name) if b"\\" in name else name


def _is_root() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def have_children() -> bool:
    """Whether this process has children, dead or alive; on Windows, whether anything that it has started lives."""
    if sys.platform == "win32":
        from . import job_object  # here, because `install.py` loads this file alone

        return bool(job_object.others())
    else:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


def end_children() -> bool:
    """Kill everything that descends from this process; return whether there was anything but Python's own helpers.

    On Linux, what has lost its parent has become a child of this process. If it cannot be found, because a task has
    opened all files that it may, it is there all the same.
    """
    server, end_server = _helper("multiprocessing.forkserver", "_forkserver", "_forkserver_pid")
    tracker, end_tracker = _helper("multiprocessing.resource_tracker", "_resource_tracker", "_pid")
    found = _kill_children({server, tracker})
    if server:
        with suppress(OSError):
            os.kill(server, SIGKILL)  # it would wait for its children, which become ours
        end_server()
        found = _kill_children({tracker}) or found
    if tracker and sys.platform == "linux":  # elsewhere, it may wait for processes that nobody finds
        end_tracker()
    return _kill_children(()) or found or (sys.platform == "linux" and have_children())


def _helper(module: str, name: str, pid: str) -> tuple[int, Callable[[], None]]:
    """Return a process that `multiprocessing` starts once and keeps, 0 for none, and how it is ended: it tidies up."""
    one: Any = getattr(sys.modules.get(module), name, None)
    number = getattr(one, pid, None)

    def end() -> None:
        with suppress(Exception):
            one._stop()

    return number if isinstance(number, int) else 0, end


def _kill_children(but: Collection[int]) -> bool:
    """Kill the children of this process, and theirs; return whether any was alive.

    One that removes what a program has left in shared memory ends by itself when the program is dead.
    """
    found, begun = False, time.monotonic()
    # Those that have just ended may have handed us their children since we looked.
    while (there := [pid for pid in children() if pid not in but]) and time.monotonic() < begun + KILL_S:
        alive = [pid for pid in there if not _reaped(pid)]
        for pid in alive:
            with suppress(OSError):
                if time.monotonic() > begun + TIDY_S or not _is_tracker(pid):
                    os.kill(pid, SIGKILL)
        if alive:
            found = True
            time.sleep(_LOOK_S)
    return found


def _is_tracker(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return _TRACKER in file.read()
    return False


def _reaped(pid: int) -> bool:
    if sys.platform == "win32":
        return False
    else:
        try:
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:
            return True


def children() -> list[int]:
    """Return the children of this process, on Windows all that descends from it; none if the system does not tell."""
    if sys.platform == "win32":
        from . import job_object

        return job_object.others()
    else:
        found: list[int] = []
        try:
            for thread in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{thread}/children", "rb") as file:
                    found += map(int, file.read().split())
        except FileNotFoundError:
            return _children_of(os.getpid())
        except OSError:
            return []
        return found


def _children_of(parent: int) -> list[int]:
    """Return the same on a kernel that does not list them; none on a system that does not tell at all."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(int(name)) == parent]
    return []


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if the system does not tell, or there is no such process."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return None


def with_descendants(pid: int) -> list[int]:
    """Return a process and all that descend from it, as far as the system tells."""
    found = [pid]
    for each in found:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{thread}/children", "rb") as file:
                    found += map(int, file.read().split())
    return found


def stop(pid: int) -> set[int]:
    """Stop a process and all that descend from it, as far as the system tells; return those that were not stopped.

    One that is about to stop may start another one. So this looks again until there is no other.
    """
    found = set[int]()
    if sys.platform != "win32":
        if sys.platform != "linux":  # which does not tell what descends from it: its group, then
            with suppress(OSError):
                os.killpg(pid, signal.SIGSTOP)
        seen = set[int]()
        while new := [each for each in with_descendants(pid) if each not in seen]:
            seen.update(new)
            for each in [each for each in new if not _is_stopped(each)]:
                with suppress(OSError):
                    os.kill(each, signal.SIGSTOP)
                    found.add(each)
            if len(seen) > _MOST_STOPPED:
                break  # the next call goes on
    return found


def resume(pid: int, stopped: Collection[int]) -> None:
    """Let those go on that were ``stopped`` and still descend from a process: what a task stopped itself stays so."""
    if sys.platform != "win32":
        if sys.platform != "linux":
            with suppress(OSError):
                os.killpg(pid, signal.SIGCONT)
        for each in with_descendants(pid):
            if each in stopped:
                with suppress(OSError):
                    os.kill(each, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    return False


def give_way(nice: int) -> None:
    """Let everybody else on this PC come first: this process and its copies get what is left. ``nice``: 0 to 19.

    With 0, nothing changes. With 19, they get the processor only when it would be idle. On Windows, a process is
    started so: see `priority_class`.
    """
    if nice <= 0:
        return
    if sys.platform != "win32":
        with suppress(OSError):
            os.nice(nice)
    if sys.platform == "linux":
        if nice >= LOWEST:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        number = _IOPRIO_SET.get(os.uname().machine)
        if number is not None:
            libc("syscall", number, 1, 0, _IDLE_DISK)


def priority_class(nice: int) -> int:
    """Return what a process that gives way is started with on Windows (creationflags); 0 on other systems."""
    if sys.platform == "win32":
        import subprocess

        low = subprocess.IDLE_PRIORITY_CLASS if nice >= LOWEST else subprocess.BELOW_NORMAL_PRIORITY_CLASS
        return low if nice > 0 else 0
    else:
        return 0


def adopt(parent_s_end: int | None = 0) -> None:
    """On Linux, become the parent of everything that descends from this process and loses its own.

    ``parent_s_end``: the signal with which this process ends when its parent does; 0: none; None: the same as so far.
    """
    if sys.platform == "linux":
        libc("prctl", _SUBREAPER, 1, 0, 0, 0)
        if parent_s_end is not None:
            libc("prctl", _DEATH_SIGNAL, parent_s_end, 0, 0, 0)


def adopts() -> bool:
    """Whether this process has called `adopt`."""
    if sys.platform == "linux":
        with suppress(ImportError):
            import ctypes

            found = ctypes.c_int()
            return libc("prctl", _IS_SUBREAPER, ctypes.byref(found), 0, 0, 0) == 0 and found.value == 1
    return False


def kill_at_the_end_of(lifeline: int, owner: int) -> None:
    """On Linux, have the kernel kill a process when the other end of a pipe closes: see F_SETSIG of fcntl(2).

    ``owner``: the process, which has ``lifeline`` open; or a group, as a negative number.
    """
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETOWN, owner)
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def become(uid: int, gid: int, groups: list[int], folder: str) -> None:
    """Become another user, as root, for good, who owns a folder that is out of his reach so far."""
    if sys.platform != "win32":
        os.chown(folder, uid, gid)
        for descriptor in (1, 2):
            with suppress(OSError):  # a system where pipes belong to nobody
                os.fchown(descriptor, uid, gid)  # so that it can open /dev/stdout
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        if sys.platform == "linux":
            libc("prctl", _DUMPABLE, 1, 0, 0, 0)  # else what is below /proc/self stays root's
        adopt(SIGKILL)


def libc(function: str, *arguments: Any) -> int:
    """Call a function of the C library that Python does not have; return -1 where it cannot be found."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
        result: int = getattr(ctypes.CDLL(None), function)(*given)
        return result
    return -1
