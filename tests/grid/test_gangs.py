"""Gangs on a virtual grid, beside workers that fail with gangs, and where PCs leave."""

from functools import partial

import pytest

from deskgrid import wire
from tests.counting import COUNTS
from tests.grid.builders import bag
from tests.grid.clients import ClientNode
from tests.grid.grid import VirtualGrid, for_seconds
from tests.grid.network import Connection
from tests.grid.worker_node import WorkerNode

PAIR = wire.TaskOptions(ranks=(2, 2), gang=True)
# Ten gangs of two, of two seconds each, on four honest slots and beside two hostile ones: without the hostile ones it
# takes ten seconds; a worker that says nothing may hold up one gang for half a minute, and its next rest is longer.
GANGS, GANG_S, DONE_S = 10, 2.0, 60.0
# So long windows that every task fits, and yet they close before those of the others: gangs go there first.
LONG_S = 10_000.0


class Quitter(WorkerNode):
    """A PC that gives its ranks back whenever they are to start."""

    quits = 0

    def arrived(self, connection: Connection, data: bytes) -> None:
        message = wire.decode(data)
        if isinstance(message, wire.StartRanks):
            self.quits += 1
            data = wire.encode(wire.Stop((wire.Ref(message.task, message.number),)))
        super().arrived(connection, data)


def submitted(grid: VirtualGrid, seconds: list[float], options: wire.TaskOptions = PAIR) -> ClientNode:
    """A client that submits a bag of gangs now."""
    client = grid.client()
    client.submit(bag(seconds, "gangs", options=options))
    return client


@pytest.mark.parametrize("hostile", ["never ready", "gives back"])
def test_beside_workers_that_fail_with_gangs_and_do_single_tasks_well_all_gangs_are_done_soon(
    grid: VirtualGrid, hostile: str
) -> None:
    bad = []
    for number in range(2):
        name = f"bad{number}"
        if hostile == "never ready":
            grid.witness.executions.of_ranks.never_ready.add(name)
            grid.worker(name, for_seconds(LONG_S))
        else:
            node = Quitter(grid.world, grid.port, grid.witness, name, for_seconds(LONG_S), slots=1, delay_s=0.002)
            grid.workers[name] = node
            node.start()
            bad.append(node)
    for number in range(4):
        grid.worker(f"pc{number}")
    grid.run(10.0)
    client = submitted(grid, [GANG_S] * GANGS)
    singles = grid.client()
    for number in range(20):
        grid.world.after(1.0 + number, partial(singles.submit, bag([0.5], f"single{number}")))
    began = grid.world.now
    grid.run_until(lambda: bool(client.watched) and client.idle, DONE_S, "the end of all gangs")
    COUNTS.append(f"gangs beside two workers ({hostile}): {GANGS} gangs of 2 done in {grid.world.now - began:.0f} s")
    assert any(node.quits for node in bad) == (hostile == "gives back")
    grid.run(20.0)  # all single tasks are submitted
    grid.finish()
