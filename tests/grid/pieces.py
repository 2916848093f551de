"""Scripted runs of checkpointable tasks: the broker is killed as a piece ends, and somebody else saves."""

from contextlib import closing
from pathlib import Path

from deskgrid import wire
from deskgrid.wire import TaskOptions
from tests.broker.office import Office
from tests.grid.builders import bag
from tests.grid.grid import VirtualGrid, cycle
from tests.grid.witness import expect

# Long enough for two checkpoints.
WINDOW_S = 1200.0
OPTIONS = TaskOptions(checkpoint=True, min_piece=30.0)
BAG = ("bag", 0)


def pieces(seed: int, home: Path) -> None:
    """A task of three windows and a half: none of it is done twice."""
    grid = VirtualGrid(seed, home)
    grid.work_s = 10 * WINDOW_S
    with closing(grid):
        grid.broker.start()
        grid.worker("pc", cycle((WINDOW_S, 60.0)))
        grid.client().submit(bag([3.5 * WINDOW_S], options=OPTIONS))
        grid.run(WINDOW_S - 11.0)
        grid.broker.kill()
        grid.world.after(30.0, grid.broker.start)
        grid.run(60.0)
        grid.workers["pc"].crash()
        grid.worker("other", cycle((WINDOW_S, 60.0)))
        grid.run_until(lambda: BAG in grid.witness.recorded, 4 * WINDOW_S, "done")
        expect(grid.counters["planned_kills"] == 0, "{} pieces were killed", grid.counters["planned_kills"])
        worked = grid.witness.executions.worked[BAG]
        expect(abs(worked - 3.5 * WINDOW_S) < 1.0, "the task ran for {} s", worked)
        grid.finish()


def saved_by_others(seed: int, home: Path) -> None:
    """Only the worker that has the newest attempt saves; a checkpoint that cannot be read leaves the one before."""
    with closing(Office(home)) as office:
        client = office.client()
        client.submit([b"0"], runtime=36_000.0, checkpoint=True)
        worker, thief = office.worker("pc"), office.worker("thief")
        worker.join(uptime=WINDOW_S)
        (work,) = worker.work()
        thief.join(uptime=1.0)
        thief.send(wire.Saved(work.task, work.number, 1, 0.9, 1.0, 1.0, 0, 6, b"forged"))
        expect(thief.expect(wire.CheckpointKept).checkpoint == 0, "somebody else's checkpoint is kept")
        office.now += 1.0
        for serial, progress in ((1, 1e-12), (2, 0.2), (3, 0.3)):
            worker.send(wire.Saved(work.task, work.number, serial, progress, 1.0, 1.0, 0, 1, b"%d" % serial))
            expect(worker.expect(wire.CheckpointKept).checkpoint > 0, "its own checkpoint is not kept")
            left_s = office.sessions.state.scheduler.left_s(work.task)
            expect(left_s <= wire.SECONDS_LIMIT, "{} s are left: no message can say that", left_s)
        held = len(list(office.journal.recovery.checkpoints()))
        expect(held == 2, "{} checkpoints are kept", held)
        for outcome, expected in ((wire.Outcome.PIECE, b"3"), (wire.Outcome.UNREADABLE, b"2")):
            worker.finish(work, outcome=outcome)
            (work,) = worker.work()
            worker.send(wire.Resume(work.task, work.number, work.checkpoint, 0))
            expect(worker.expect(wire.Checkpoint).data == expected, "the task does not go on from {}", expected)
        expect(work.runtime < 36_000.0, "what is left of the task is {} s", work.runtime)
        worker.finish(work, outcome=wire.Outcome.PIECE)
        worker.finish(*worker.work(), outcome=wire.Outcome.PIECE)
        expect(not list(office.journal.recovery.checkpoints()), "a task that was given up has checkpoints")
