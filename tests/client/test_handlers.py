"""Signal handlers and finalizers use the grid in the middle of its own calls, at each line: nothing hangs or breaks."""

import concurrent.futures
import gc
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pytest

from deskgrid.client.grid import Grid
from deskgrid.client.lock import LOCK, answering
from deskgrid.errors import GridClosed
from tests.client.fakebroker import FakeGrid
from tests.counting import tried
from tests.waiting import PATIENCE_S, eventually

# Where locks are held, by us or for us.
FILES = ("call_stream.py", "futures.py", "link.py", "lock.py", "replies.py", "_base.py", "threading.py")
CALLS: dict[str, Callable[[Grid], object]] = {
    "submit": lambda grid: grid.submit(abs, -1),
    "submit a new function": lambda grid: grid.submit(eval("lambda item: item"), -1),
    "result": lambda grid: grid.submit(abs, -1).result(),
    "cancel": lambda grid: grid.submit(abs, -1).cancel(),
    "callback": lambda grid: grid.submit(abs, -1).add_done_callback(str),
    "map": lambda grid: list(grid.map(abs, [-1, -2])),
    "bag": lambda grid: grid.bag(abs, [-1, -2]).results(),
    "wait": lambda grid: concurrent.futures.wait([grid.submit(abs, -1), grid.submit(abs, -2)]),
    "as completed": lambda grid: set(concurrent.futures.as_completed([grid.submit(abs, -1), grid.submit(abs, -2)])),
    "shutdown": lambda grid: grid.shutdown(),
}
Place = tuple[str, int]
# One line in so many has a Grid of its own that is shut down there, the same ones each time; `make soak` tries all.
ONE_IN = 3


class Interrupted(Exception):
    """What a handler raises."""


def _traced(at: Callable[[Place], None], call: Callable[[], object]) -> None:
    """Make a call, and tell of each line of FILES before it runs."""

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        path = frame.f_code.co_filename.replace("\\", "/")
        if not path.endswith(FILES) or "/tests/" in path:
            return None
        if event == "line":
            at((path, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def lines_of(call: Callable[[], object]) -> list[Place]:
    """The lines through which a call goes."""
    found: dict[Place, None] = {}
    _traced(found.setdefault, call)
    return list(found)


def interrupted(place: Place, call: Callable[[], object], handler: Callable[[], object]) -> None:
    """Make a call, with a handler in its middle: before the line at a place."""
    todo = [handler]

    def at(here: Place) -> None:
        if here == place and todo:
            sys.settrace(None)
            todo.pop()()

    _traced(at, call)


def ends(grid: Grid) -> bool:
    """Whether a Grid that is shut down comes to its end."""
    for thread in [thread for thread in threading.enumerate() if thread.name == "deskgrid-end"]:
        thread.join(PATIENCE_S)
    grid.shutdown()
    return eventually(lambda: not any(thread.name.startswith("deskgrid-") for thread in threading.enumerate()))


def opened(fake: FakeGrid) -> Grid:
    """A Grid that knows a function already."""
    grid = Grid(fake.line)
    grid.submit(abs, -1).result()
    return grid


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_shut_the_grid_down_at_each_line(fake: FakeGrid, name: str) -> None:
    call = CALLS[name]
    with opened(fake) as grid:
        places = lines_of(lambda: call(grid))
    assert len(places) > 30
    for place in tried(places, ONE_IN):
        grid = opened(fake)
        with suppress(GridClosed, concurrent.futures.CancelledError):
            interrupted(place, partial(call, grid), grid.shutdown)
        assert ends(grid), place


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CALLS if name != "shutdown"])
@pytest.mark.parametrize("use", ["result", "cancel", "bag", "wait", "as completed", "raise"])
def test_a_handler_that_uses_the_grid_at_any_line_is_served_or_told_at_once(
    fake: FakeGrid, grid: Grid, name: str, use: str
) -> None:
    call, told = CALLS[name], 0
    old = grid.submit(abs, -1)

    def handler() -> None:
        if use == "raise":
            raise Interrupted
        assert use != "result" or grid.submit(abs, -3).result() == 3
        assert use != "bag" or grid.bag(abs, [-3]).results() == [3]
        assert use != "wait" or not concurrent.futures.wait([grid.submit(abs, -3), grid.submit(abs, -4)]).not_done
        assert use != "as completed" or list(concurrent.futures.as_completed([grid.submit(abs, -3)]))
        old.cancel()

    for place in lines_of(lambda: call(grid)):
        if name in ("wait", "as completed") and place[0].endswith("_base.py"):
            continue  # it does not give back the locks of futures if an exception ends it while it takes them
        if use == "raise" and place[0].endswith("threading.py"):
            continue  # nor does a condition, or a thread that starts
        try:
            interrupted(place, lambda: call(grid), handler)
        except Interrupted:
            pass
        except RuntimeError as error:
            told += "reentrant call" in str(error)
        assert grid.submit(abs, -2).result(PATIENCE_S) == 2, place
    assert told or use == "raise"


def test_a_finalizer_does_not_wait_on_the_thread_that_brings_the_answers(fake: FakeGrid) -> None:
    kept: list[object] = [opened(fake), Grid(fake.line)]
    link = kept[1]._link  # type: ignore[attr-defined]
    done = threading.Event()

    def collected(_now: float) -> tuple[()]:
        kept.clear()
        gc.collect()
        done.set()
        return ()

    link._do(collected)
    link.wake()
    assert done.wait(PATIENCE_S)
    assert eventually(lambda: not any(thread.name.startswith("deskgrid-") for thread in threading.enumerate()))
    assert not answering


def test_a_grid_that_is_collected_under_the_lock_is_closed_when_it_is_given_back(fake: FakeGrid) -> None:
    kept = [opened(fake)]
    with LOCK:
        kept.clear()
        gc.collect()
        assert [thread for thread in threading.enumerate() if thread.name == "deskgrid-end"]
    assert eventually(lambda: not any(thread.name.startswith("deskgrid-") for thread in threading.enumerate()))
