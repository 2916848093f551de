"""Pauses, limits, and bags after others, on a virtual network whose broker is killed at any step."""

from dataclasses import replace
from typing import Any

import pytest

from deskgrid import wire
from tests.grid.builders import bag, executions
from tests.grid.clients import ClientNode
from tests.grid.grid import VirtualGrid
from tests.grid.test_restarts import STEPS


def started(grid: VirtualGrid, name: str) -> int:
    """How many tasks of a bag were started, and have ended or were stopped."""
    return sum(count for (of, _), count in grid.witness.executions.started.items() if of == name)


def submitted(grid: VirtualGrid, client: ClientNode, name: str, seconds: list[float], **options: Any) -> None:
    plan = bag(seconds, name)
    client.submit(replace(plan, options=replace(plan.options, **options)))
    grid.run(0.5)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", ["pause", "resume"])
def test_a_broker_that_dies_at_any_step_of_a_pause_keeps_it_or_gets_it_again(
    grid: VirtualGrid, step: str, what: str
) -> None:
    grid.worker("pc", slots=2)
    client = grid.client()
    submitted(grid, client, "bag", [30.0] * 6)
    answers: list[object] = []
    if what == "resume":
        client.ask("pause", {"bag": "bag"}, answers.append)
        grid.run(5.0)
    grid.broker.steps.arm(step, 0)
    client.ask(what, {"bag": "bag"}, answers.append)
    grid.run(100.0)
    assert all(isinstance(answer, wire.Answer) for answer in answers)
    assert grid.broker.lives == 2
    if what == "pause":
        assert started(grid, "bag") == 2
        client.ask("resume", {"bag": "bag"}, answers.append)
    grid.finish()
    assert executions(grid) == [1] * 6


@pytest.mark.parametrize("downtime", [0.1, 600.0])
def test_a_bag_after_another_begins_although_the_broker_was_killed(grid: VirtualGrid, downtime: float) -> None:
    grid.worker("pc", slots=2)
    client = grid.client()
    submitted(grid, client, "first", [20.0] * 3)
    submitted(grid, client, "last", [5.0] * 3, after=("first",))
    grid.run(25.0)
    assert (started(grid, "first"), started(grid, "last")) == (2, 0)
    grid.restart_broker(downtime)
    grid.run(downtime)
    grid.finish()
    assert executions(grid) == [1] * 6


def test_a_limit_is_kept_while_pcs_come_and_go_and_the_broker_is_killed(grid: VirtualGrid) -> None:
    pcs = [grid.worker(f"pc{number}", slots=2) for number in range(3)]
    client = grid.client()
    submitted(grid, client, "bag", [10.0] * 8, limit=2)
    submitted(grid, client, "other", [5.0] * 8)
    most = 0
    for second in range(60):
        grid.run(1.0)
        if second == 15:
            pcs[0].crash()
        if second == 25:
            grid.restart_broker(2.0)
        if grid.broker.up:
            categories = grid.broker.sessions.state.scheduler.grid.categories.by_key
            most = max([most, *(category.out for key, category in categories.items() if key.limit)])
    grid.finish()
    assert most == 2
