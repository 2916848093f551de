"""Honest work beside hostile peers."""

from contextlib import closing
from pathlib import Path

from deskgrid.wire import TaskOptions
from tests.grid.builders import bag
from tests.grid.grid import VirtualGrid, cycle, for_seconds, open_ended
from tests.grid.hostile import Hostile, HostileWorker

# How long it goes on; seconds of virtual time.
HARM_S = 12.0
# Honest work is done in so long, whatever the hostile do: three workers, a hundred seconds of tasks, and a lease.
DONE_S = 45.0


def raid_after_restart(seed: int, home: Path) -> int:
    """The broker is killed while honest work runs: when it is back, the hostile may be there before the honest are."""
    grid = VirtualGrid(seed, home)
    with closing(grid):
        grid.broker.start()
        for number in range(3):
            grid.worker(f"pc{number}", open_ended, slots=2)
        client = grid.client()
        client.submit(bag([HARM_S] * 6, "bag1"))
        grid.run(2.0)
        hostile = [HostileWorker(grid.world, grid.port, grid.witness, f"pc{number}") for number in range(2)]
        grid.run(1.0)
        grid.restart_broker(1.0)
        grid.run_until(lambda: client.idle, DONE_S, "all honest work done")
        for each in hostile:
            each.hang_up()
        grid.finish()
        assert sum(grid.witness.executions.started.values()) == 6, "nothing was executed twice"
        return sum(each.said for each in hostile)


def raid(seed: int, home: Path, kinds: list[type[Hostile]]) -> int:
    """Honest work beside the hostile; how many messages they sent."""
    grid = VirtualGrid(seed, home)
    with closing(grid):
        grid.broker.start()
        for name, plan in (("pc0", open_ended), ("pc1", cycle((20.0, 5.0))), ("pc2", for_seconds(200.0))):
            grid.worker(name, plan, slots=2)
        client = grid.client()
        gangs = bag([1.0] * 5, "bag3", options=TaskOptions(ranks=(2, 2), gang=True))
        for work in (bag([1.5] * 30, "bag1", size=7), bag([0.1] * 60, "bag2"), gangs):
            client.submit(work)
        hostile = [kind(grid.world, grid.port, grid.witness, "pc1") for kind in kinds]
        grid.run(HARM_S)
        grid.run_until(lambda: client.idle, DONE_S - HARM_S, "all honest work done")
        predicted = {grid.broker.sessions.state.scheduler.grid.tasks.runtime(task) for task in range(95)}
        assert predicted == {1.5, 1.0, 0.1}, "what others predicted stays as it is"
        for each in hostile:
            each.hang_up()
        grid.finish()
        assert sum(grid.witness.executions.started.values()) == 90, "nothing was executed twice"
        return sum(each.said for each in hostile)
