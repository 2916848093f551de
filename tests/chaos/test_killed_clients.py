"""Clients that are killed while they submit: tasks that arrived are done, and every bag says what happened."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deskgrid.broker.peers import clients
from tests.live import ROOT, LiveGrid, live_grid
from tests.waiting import PATIENCE_S, eventually

# Submits a bag of `argv[2]` large items, a few in each message, and never comes to its end.
PROGRAM = """
import sys
from deskgrid import Grid

def items(count):
    for _ in range(count):
        yield bytes(200_000)
    print("sent", flush=True)
    sys.stdin.read()
    yield b""

with Grid(sys.argv[1]) as grid:
    grid.bag(len, items(int(sys.argv[2])), runtime=0.01)
"""
# How many items the clients come to before they are killed: less than one message of 20, one, and many.
ITEMS = (1, 30, 80, 300)


def kill_while_submitting(grid: LiveGrid, count: int) -> None:
    """Kill it when its first message has arrived, if it has come to send one."""
    known = len(bags(grid))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, grid.broker.ready.client_line, str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == "sent\n"
        assert count == 1 or eventually(lambda: len(bags(grid)) > known, PATIENCE_S)


def bags(grid: LiveGrid) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = grid.client().ask("bags")["bags"]
    return found


def test_bags_of_clients_killed_while_they_submit_are_closed_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "CLIENT_GONE_S", 1.0)
    monkeypatch.setattr(clients, "SWEEP_S", 0.1)
    with live_grid(tmp_path) as grid:
        for count in ITEMS:
            kill_while_submitting(grid, count)
        assert eventually(lambda: all("its client is gone" in bag["note"] for bag in bags(grid)), PATIENCE_S)
        halves = bags(grid)
        assert len(halves) == len(ITEMS) - 1
        assert not any(bag["closed"] for bag in halves), "their tasks wait"
        grid.worker()
        assert eventually(lambda: all(bag["closed"] for bag in bags(grid)), PATIENCE_S)
        for before, after in zip(halves, bags(grid), strict=True):
            assert after["done"] == after["total"] == before["total"] < max(ITEMS)
            assert (
                after["note"] == f"its client did not return: {after['total']:,} of its items arrived, perhaps not all"
            )
