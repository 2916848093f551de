"""What ended tasks tell of how fast their PCs are (`deskgrid.scheduler.prediction.speeds`), and what follows from it.

Tasks on several slots tell nothing, because PCs differ in more than their speed for them; nor do checkpointable ones,
whose attempts begin anywhere; nor those on a PC of which others use much: its load says that already.
"""

from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Worker, rated

# While others use so much of a PC's processors, its tasks tell nothing. From 0 to 1.
LOADED = 0.25


def ran(grid: SchedulerState, worker: Worker, task: int, seconds: float) -> None:
    """A single task is done, and took so many seconds on a worker. Its first prediction is still known."""
    if worker.load < LOADED:
        batch = grid.tasks.known(task)
        bag = batch.bag
        if bag.category.key.piece is None:
            predicted = None if bag.bounded else batch.evidence(task)[0]
            grid.speeds.ran(bag.number, task, worker.name, worker.stated, seconds=seconds, predicted=predicted)


def killed(grid: SchedulerState, worker: Worker, task: int, elapsed: float, predicted: float) -> None:
    """A single task that is not checkpointable was killed after so many seconds on a worker."""
    if worker.load < LOADED:
        bag = grid.tasks.known(task).bag
        known = None if bag.bounded else predicted
        grid.speeds.killed(bag.number, task, worker.name, worker.stated, seconds=elapsed, predicted=known)


def correct(grid: SchedulerState, worker: Worker) -> None:
    """Look again at how fast a worker is: it has stated another speed, or its tasks have shown another one."""
    exact = worker.stated if worker.given else grid.speeds.corrected(worker.name, worker.stated)
    speed, before = rated(exact), worker.speed
    if speed == before:
        return
    grid.change_all(worker)
    worker.exact, worker.speed = exact, speed
    # What its tasks took counts from now on as if it had always been known to be so fast.
    worker.took_s *= speed / before
    grid.slots.uneven = True
    for slot in worker.slots:
        slot.speed = speed
        if slot.gang is not None:
            slot.sent[0].runtime = slot.gang.seconds * speed


def correct_moved(grid: SchedulerState) -> None:
    """Look again at PCs whose tasks have shown another speed."""
    for name in grid.speeds.moved:
        if (worker := grid.slots.workers.get(name)) is not None:
            correct(grid, worker)
    grid.speeds.moved.clear()
