"""CPython's own tests of executors, with a private grid as the executor, where this Python has its tests.

Left out are those of what only pools of CPython have: see `NOT_OURS`.
"""

import importlib
import unittest
from typing import Any

import pytest

from deskgrid import Grid

# Where the mixins with the tests are: one module until Python 3.11, and a package since then.
MIXINS = {
    "executor": "ExecutorTest",
    "test_shutdown": "ExecutorShutdownTest",
    "test_wait": "WaitTests",
    "test_as_completed": "AsCompletedTests",
}
NOT_OURS = {
    "test_max_workers_negative": "a grid is not made with max_workers",
    "test_max_workers_too_large": "a grid is not made with max_workers",
    "test_interpreter_shutdown": "its program names an executor of concurrent.futures",
    "test_submit_after_interpreter_shutdown": "its program names an executor of concurrent.futures",
    "test_hang_issue39205": "its program names an executor of concurrent.futures",
    "test_hang_gh83386": "its program names an executor of concurrent.futures",
    "test_hang_gh94440": "it makes an executor of its own",
    "test_cancel_futures": "a call that was just submitted has not begun yet, so all are cancelled",
}


class OnAGrid:
    """The executor of a test."""

    worker_count = 2
    executor_type = Grid

    def setUp(self) -> None:
        """Open it."""
        self.executor = Grid.local(workers=self.worker_count)

    def tearDown(self) -> None:
        """Close it."""
        self.executor.shutdown(wait=True)


def theirs(module: str, name: str) -> Any:
    """Return a mixin; None if this Python lacks its tests."""
    for place in (f"test.test_concurrent_futures.{module}", "test.test_concurrent_futures"):
        try:
            return getattr(importlib.import_module(place), name)
        except (ImportError, AttributeError):
            continue
    return None


for module, name in MIXINS.items():
    if (mixin := theirs(module, name)) is not None:
        globals()[name] = type(name, (OnAGrid, mixin, unittest.TestCase), {"__module__": __name__})
        for test, why in NOT_OURS.items():
            if hasattr(mixin, test):
                setattr(globals()[name], test, pytest.mark.skip(reason=why)(getattr(mixin, test)))
        del mixin


@pytest.mark.skipif("ExecutorTest" in globals(), reason="it has them")
def test_this_python_has_its_tests() -> None:
    pytest.skip("this Python has no test.test_concurrent_futures (Debian: libpython3-testsuite)")
