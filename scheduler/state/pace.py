"""How fast a worker does tasks of bags with copies, beside how fast they are usually done."""

from deskgrid.scheduler.state.bags import TaskBatch
from deskgrid.scheduler.state.slots import Worker

# How many tasks a worker must have done before it counts as faster or slower than others: one slow task says little.
ENOUGH = 3


def learn_pace(batch: TaskBatch, worker: Worker, task: int, took_s: float) -> None:
    """Note how long ``worker`` took for a task of ``batch``, and how long such a task takes on average."""
    if batch.bag.copies:
        worker.done += 1
        worker.took_s += took_s
        worker.usual_s += batch.runtime(task) * batch.bag.pace


def pace(worker: Worker) -> float:
    """How long ``worker`` takes for a task, as a multiple of what is usual: below 1.0 for a fast PC."""
    return worker.took_s / worker.usual_s if worker.done >= ENOUGH and worker.usual_s else 1.0
