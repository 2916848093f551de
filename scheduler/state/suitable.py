"""What PCs have beside time: whether a worker suits tasks of a category, by its rests, environments, labels, amounts.

Rule: never more of a worker is promised than it has. A single task has its amounts from when it is bound to a
slot, a gang from when it starts.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from deskgrid.scheduler.need import NOTHING, Amounts, Need
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Worker


def could(grid: SchedulerState, worker: Worker, key: CategoryKey) -> bool:
    """Whether a worker has what tasks of a category need, beside time, once all that it has is free."""
    if grid.avoided and grid.avoided.until(key, worker.name) is not None:
        return False
    if key.environment and key.environment not in worker.environments:
        return False
    need = key.need
    return need is None or (need.labels <= worker.traits.labels and need.amounts.within(worker.traits.amounts))


def suits(grid: SchedulerState, worker: Worker, key: CategoryKey) -> bool:
    """Whether a worker has what tasks of a category need, beside time."""
    need = key.need
    return could(grid, worker, key) and (
        need is None or not need.amounts or need.amounts.within(free_amounts(grid, worker))
    )


@contextmanager
def only_suitable(grid: SchedulerState, key: CategoryKey) -> Iterator[bool]:
    """Hide the slots of PCs that do not have what tasks of a category need, beside time: their environment, amounts and
    labels; and of those that rest from them. Yields whether others have room; if not, none is hidden.
    """
    if not key.environment and not grid.avoided.is_scarce(key) and scarce(grid, key.need) is None:
        yield True
        return
    others = list[Worker]()
    has_room = False
    for worker in grid.slots.workers.values():
        if suits(grid, worker, key):
            has_room = has_room or any(slot.rows is not None for slot in worker.slots)
        else:
            others.append(worker)
    if not has_room:
        yield False
        return
    grid.slots.hide(others)
    yield True
    hidden, grid.slots.hidden = grid.slots.hidden, []
    for slot in hidden:
        grid.slots.index(slot, grid.now)


def scarce(grid: SchedulerState, need: Need | None) -> Need | None:
    """What tasks need, unless every PC has it, as it may have the Python of all; None: nothing that a PC may lack."""
    return None if need is None or (not need.amounts and grid.slots.all_have(need.labels)) else need


@contextmanager
def without(grid: SchedulerState, names: Collection[str]) -> Iterator[None]:
    """Take the slots of these workers out of their indexes."""
    workers = [grid.slots.workers[name] for name in names if name in grid.slots.workers]
    slots = [slot for worker in workers for slot in worker.slots if slot.rows is not None]
    for slot in slots:
        grid.slots.unindex(slot)
    yield
    for slot in slots:
        grid.slots.index(slot, grid.now)


def promise(grid: SchedulerState, worker: Worker, task: int, amounts: Amounts) -> None:
    """A single task on a slot of ``worker`` has these. If others like it lack them, the slots are hidden."""
    worker.promised[task] = amounts
    if not amounts.within(free_amounts(grid, worker)):
        grid.slots.hide([worker])


def free_amounts(grid: SchedulerState, worker: Worker) -> Amounts:
    """What a worker has that neither gangs nor single tasks have been promised."""
    machine = grid.gangs.machines.get(worker.name)
    promised = worker.promised
    owed = grid.owed.get(worker.name, {}) if promised else {}
    blocked = {attempt.task for attempt, (slot, _) in owed.items() if slot is not None}
    for task in list(promised):  # forgotten here, so that leaving costs nothing
        live = grid.bound.get(task)
        if (live is None or live.slot.worker is not worker) and task not in blocked:
            del promised[task]
    occupied = NOTHING if machine is None else machine.occupied
    return worker.traits.amounts - sum(promised.values(), start=occupied)
