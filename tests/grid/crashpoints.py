"""A scripted run in which the broker is killed at each of its steps: each commit, each message, each decision.

The script covers everything that a broker records: bags in several batches, results of all kinds, attempts that are
recorded and attempts that are not, a worker that leaves and comes back, cancelled items, a cancelled bag, a bag that is
forgotten in many slices, a task with a copy, a gang that is done and one that fails, a bag that brings libraries, whose
parts are let go, and another that is held because two PCs refuse its wheel, and is resumed.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from deskgrid.broker.store import purge
from deskgrid.broker.work import operations, orders
from deskgrid.wire import Readiness, TaskOptions
from tests.grid.builders import bag
from tests.grid.clients import ClientNode
from tests.grid.environments import Wheel, libraries
from tests.grid.grid import VirtualGrid, cycle

REFUSED = Readiness.REFUSED
# How long the script is on its way; seconds of virtual time.
SCRIPT_S = 15.0
# How long a task takes that is predicted to take a second, so that it gets a copy.
TAIL_S = 3.5
# The broker is down for so long when it was killed.
DOWN_S = 0.7
# When it is killed twice, the second time is so many steps after the first: all within the first moments of the life
# that takes up what the first one left.
NEXT_STEPS = 45


# A slice of cancelling is so many units, and of deleting so many rows: large bags have hundreds of them.
SLICE_UNITS = 8
SLICE_ROWS = 1


@contextmanager
def small_slices() -> Iterator[None]:
    """Small bags take several slices, each a turn of its own."""
    with (
        patch.object(orders, "CANCEL_UNITS", SLICE_UNITS),
        patch.object(orders, "PIECE_TASKS", SLICE_UNITS // 4),
        patch.object(purge, "ROWS", SLICE_ROWS),
        patch.object(operations, "TURN_UNITS", 1),
    ):
        yield


def begun(grid: VirtualGrid) -> None:
    """Begin the script."""
    grid.broker.downtime_s = DOWN_S
    grid.broker.start()
    grid.worker("stays", slots=2)
    grid.worker("cycles", cycle((4.0, 2.0)))
    client = grid.client()
    plans = [bag([0.4, 2.0, 0.1, 3.0, 0.2], "mixed", size=2), bag([0.05] * 12, "short", size=4), bag([1.2] * 3, "late")]
    plans[0].batches[1] = [task._replace(fate="raise") for task in plans[0].batches[1]]
    plans[1].forget = True
    plans[2].batches = [[task._replace(fate="crash", times=1) for task in batch] for batch in plans[2].batches]
    for at, plan in zip((0.5, 1.5, 4.0), plans, strict=True):
        grid.work_s += sum(plan.runtimes) if isinstance(plan.runtimes, list) else 0.0
        grid.world.after(at, lambda plan=plan: client.submit(plan))  # type: ignore[misc]
    grid.world.after(4.5, lambda: client.cancel("late", [2]))
    grid.world.after(6.0, lambda: client.submit(bag([5.0] * 24, "whole", size=6)))
    grid.world.after(7.5, lambda: client.cancel("whole", None))
    tail = bag([TAIL_S, 1.0], "tail")
    tail.options, tail.runtimes = TaskOptions(copies=True), 1.0
    grid.work_s += 2 * TAIL_S
    grid.world.after(8.0, lambda: client.submit(tail))
    for at, name, fate in ((2.0, "gang", "ok"), (9.0, "broken", "raise")):
        plan = bag([1.0], name, fate=fate, options=TaskOptions(ranks=(2, 2), gang=True))
        grid.work_s += 2.0
        grid.world.after(at, lambda plan=plan: client.submit(plan))  # type: ignore[misc]
    _bring(grid, client)


def _bring(grid: VirtualGrid, client: ClientNode) -> None:
    """Two bags bring libraries. Of one, two PCs refuse a wheel once: it is held, and goes on when it is resumed."""
    good = libraries(Wheel("good", 0.2))
    bad = libraries(Wheel("bad", 0.2, REFUSED, 1), Wheel("good", 0.2))
    grid.work_s += 2.0
    for at, name, brings in ((0.8, "brings", good), (1.0, "held", bad)):
        plan = bag([0.3, 0.3], name, brings=brings)
        grid.world.after(at, lambda plan=plan: client.submit(plan))  # type: ignore[misc]
    grid.world.after(10.0, lambda: client.ask("resume", {"bag": "held"}))
    grid.world.after(14.5, lambda: client.ask("release", {"bag": "brings", "parts": good.tree}))


def steps() -> int:
    """How many steps the broker makes in the script when nobody kills it."""
    folder = tempfile.TemporaryDirectory(prefix="deskgrid-crash-")
    with folder as home, small_slices(), closing(_grid(home)) as grid:
        begun(grid)
        grid.run(SCRIPT_S)
        made = grid.broker.steps.passed
        _finish(grid)
        return made


def killed(first: int, second: int | None = None) -> str:
    """Kill the broker after ``first`` steps, and then after ``second`` more; what does not hold, or empty."""
    folder = tempfile.TemporaryDirectory(prefix="deskgrid-crash-")
    with folder as home, small_slices(), closing(_grid(home)) as grid:
        grid.broker.steps.arm("", first)
        begun(grid)
        try:
            if second is not None:
                grid.world.run(SCRIPT_S, lambda: grid.broker.lives == 2)
                grid.broker.steps.arm("", second)
            grid.run(max(0.0, SCRIPT_S - grid.world.now))
            _finish(grid)
            # Towards the end of the script there may be no second step to be killed at.
            return "" if grid.broker.lives > 1 else "the broker was not killed"
        except Exception as error:
            return f"killed after {first} and {second} steps: {error}\n\n{grid.world.story(60)}"


def _grid(folder: str) -> VirtualGrid:
    return VirtualGrid(1, Path(folder))


def _finish(grid: VirtualGrid) -> None:
    grid.calm()
    grid.finish()
