"""Bags for directed tests."""

from deskgrid.client.template import command_template
from deskgrid.wire import TaskOptions
from tests.grid.clients import BagPlan, ClientNode
from tests.grid.environments import Libraries
from tests.grid.grid import VirtualGrid, bag_of

TEMPLATE = command_template(["work", "{}"])


def bag(
    seconds: list[float],
    name: str = "bag",
    size: int = 1000,
    fate: str = "ok",
    options: TaskOptions | None = None,
    *,
    brings: Libraries | None = None,
) -> BagPlan:
    """A bag of tasks that take ``seconds``, predicted exactly, in batches of ``size``."""
    template = TEMPLATE if brings is None else command_template(["work", "{}"], environment=brings.environment)
    tasks = bag_of(name, seconds, size, fate)
    return BagPlan(name, template, tasks, list(seconds), options or TaskOptions(), libraries=brings)


def submitted(grid: VirtualGrid, seconds: list[float], name: str = "bag") -> ClientNode:
    """A client that submits one bag now; some moments pass, and the broker has it."""
    client = grid.client()
    client.submit(bag(seconds, name))
    grid.run(0.5)
    assert grid.witness.told[name] == len(seconds)
    return client


def executions(grid: VirtualGrid) -> list[int]:
    """How often each task that was started was started."""
    return list(grid.witness.executions.started.values())
