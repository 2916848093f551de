"""CPython's own tests of executors, with a private grid as the executor, where this Python has its tests.

Three things of theirs are replaced: how they make an executor; the events, of threads or of managers, that their calls
wait for; and in the programs that they run, the executor and where its calls print, because a grid keeps what they
print. What breaks a pool fails one task of a grid, so other errors are expected there.

Left out are those of what only pools of CPython have: see `NOT_OURS`. All of an initializer and of pools of threads is
left out, too: a grid has none.
"""

import importlib
import re
import tempfile
import unittest
from collections.abc import Callable
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import pytest

from deskgrid import Grid
from deskgrid.errors import RemoteError, TaskError
from tests.clients.events import Event

# Where the mixins with the tests are: one module until Python 3.11, and a package since then.
MIXINS = {
    "test_process_pool": "ProcessPoolExecutorTest",
    "test_shutdown": "ExecutorShutdownTest",
    "test_wait": "WaitTests",
    "test_as_completed": "AsCompletedTests",
    "test_deadlock": "ExecutorDeadlockTest",
}
PRIVATE = "it looks at private attributes of a pool"
OPTIONS = "a grid is not made with this option of a pool"
NOT_OURS = {
    "test_max_workers_negative": OPTIONS,
    "test_max_workers_too_large": OPTIONS,
    "test_max_tasks_per_child": OPTIONS,
    "test_max_tasks_per_child_defaults_to_spawn_context": OPTIONS,
    "test_killed_child": PRIVATE,
    "test_saturation": PRIVATE,
    "test_idle_process_reuse_one": PRIVATE,
    "test_idle_process_reuse_multiple": PRIVATE,
    "test_shutdown_deadlock_pickle": PRIVATE,
    "test_python_finalization_error": PRIVATE,
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": PRIVATE,
    "test_traceback": "its cause is of a private type of a pool; ours is a RemoteTraceback",
    "test_error_at_task_pickle": "submit refuses what cannot be pickled, not the future",
    "test_cancel_futures": "a call that was just submitted has not begun yet, so all are cancelled",
}
# What comes of a call that breaks a pool of CPython. And a call's SystemExit does not end the program that asks for it.
BROKEN = (TaskError, UnpicklingError)
# Why the last call of a program is refused.
CLOSED, ENDED = b"deskgrid.errors.GridClosed: this program ends", b"RuntimeError: cannot schedule new futures"

# Before each program that a test runs. The program is there as long as its calls run.
PROGRAM = """
import os, time
from deskgrid import Grid

OUTPUT = f"/proc/{os.getpid()}/fd/1"

def executor_type(workers=1, max_workers=None):
    return Grid.local(workers=max_workers or workers)

def sleep_and_print(seconds, text):
    time.sleep(seconds)
    with open(OUTPUT, "a") as output:
        print(text, file=output)

"""


class OnAGrid(unittest.TestCase):
    """The executor of a test."""

    worker_count = 2

    @staticmethod
    def executor_type(workers: int = 1, *, max_workers: int | None = None, **_options: object) -> Grid:
        return Grid.local(workers=max_workers or workers)

    def setUp(self) -> None:
        """Open it."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._folder = folder.name
        self.executor = Grid.local(workers=self.worker_count)

    def tearDown(self) -> None:
        """Close it."""
        self.executor.shutdown(wait=True)

    def create_event(self) -> Event:
        """Return an event that calls wait for."""
        return Event(self._folder)

    # What they ask of `multiprocessing`: a context, and a manager, which has events.

    def get_context(self) -> "OnAGrid":
        return self

    def get_start_method(self, allow_none: bool = False) -> str:
        return "spawn"

    def Manager(self) -> "OnAGrid":
        return self

    def Event(self) -> Event:
        return self.create_event()

    def shutdown(self) -> None: ...

    def join(self) -> None: ...


def on_a_grid(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``run``, which runs a program in an interpreter, with a grid as the program's executor."""

    def ran(option: str, program: str) -> tuple[int, bytes, bytes]:
        own = re.sub(
            r"from (concurrent\.futures import executor_type|test\..* import sleep_and_print)\n", "pass\n", program
        )
        assert own != program
        code, out, err = run(option, PROGRAM + own)
        return code, out, err.replace(CLOSED, ENDED)

    return ran


def theirs(module: str, name: str) -> tuple[ModuleType, Any] | None:
    """Return a module, and its mixin; None if this Python lacks its tests."""
    for place in (f"test.test_concurrent_futures.{module}", "test.test_concurrent_futures"):
        try:
            found = importlib.import_module(place)
            return found, getattr(found, name)
        except (ImportError, AttributeError):
            continue
    return None


def replace_in(their: ModuleType) -> None:
    """Have the tests in a module expect of calls, and run as a program, what a grid has."""
    names = vars(their)
    if "BrokenProcessPool" in names:
        names["BrokenProcessPool"] = BROKEN
        names["SystemExit"] = RemoteError
    if "assert_python_ok" in names:
        names["assert_python_ok"] = on_a_grid(names["assert_python_ok"])


FOUND = {name: found for module, name in MIXINS.items() if (found := theirs(module, name)) is not None}
for their in {module.__name__: module for module, _ in FOUND.values()}.values():
    replace_in(their)
for name, (_, mixin) in FOUND.items():
    globals()[name] = type(name, (mixin, OnAGrid), {"__module__": __name__})
    for test, why in NOT_OURS.items():
        if hasattr(mixin, test):
            setattr(globals()[name], test, pytest.mark.skip(reason=why)(getattr(mixin, test)))
    del mixin


@pytest.mark.skipif(bool(FOUND), reason="it has them")
def test_this_python_has_its_tests() -> None:
    pytest.skip("this Python has no test.test_concurrent_futures (Debian: libpython3-testsuite)")
