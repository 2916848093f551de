"""The tasks of one bag, as rows: a page of those that are in the same state."""

import re

from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.operations import Slices
from deskgrid.scheduler.model import State
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.wire.details import TaskRow

# Rows in one answer, and how many tasks are looked at for one unit (`deskgrid.broker.work.operations`).
TASK_ROWS = 200
TASKS_A_UNIT = 500

# What can be asked for: runs of tasks by their states, which are found at C speed.
GROUPS = {
    "waiting": re.compile(b"[%c-%c]+" % (State.WAITING, State.QUEUED)),
    "running": re.compile(b"[%c-%c]+" % (State.SENT, State.HELD)),
    "done": re.compile(b"%c+" % State.DONE),
    "failed": re.compile(b"%c+" % State.FAILED),
    "cancelled": re.compile(b"%c+" % State.CANCELLED),
}


def task_rows(state: BrokerState, bag: OpenBag, group: str, after: int | None) -> Slices:
    """A page of the tasks of a bag that are in one of the states of ``group``.

    ``after``: the item that came with the previous page.
    """
    rows: list[TaskRow] = []
    grid, start = state.scheduler.grid, 0 if after is None else after + 1
    for batch in list(bag.batches):
        skipped = max(0, start - batch.start)
        if skipped >= batch.count:
            continue
        tasks = grid.tasks.known(batch.first)
        for first, many in tasks.spans(GROUPS[group], batch.first + skipped, batch.count - skipped):
            some = range(first, first + min(many, TASK_ROWS - len(rows)))
            rows += [_row(grid, task, batch.start + task - batch.first, state.now) for task in some]
            if len(rows) == TASK_ROWS:
                return {"tasks": rows, "after": rows[-1]["item"]}
        yield 1 + batch.count // TASKS_A_UNIT
        if state.book.by_number.get(bag.row.number) is not bag:
            break  # somebody has forgotten it meanwhile
    return {"tasks": rows, "after": None}


def name_of(state: State) -> str:
    """The state of a task in an answer. It waits, whatever the reason: what people call paused is a bag."""
    return "waiting" if state in (State.BARRED, State.PAUSED) else state.name.lower()


def _row(grid: SchedulerState, task: int, item: int, now: float) -> TaskRow:
    state, live = grid.tasks.state(task), grid.bound.get(task)
    slot = None if live is None else live.slot
    name, elapsed, runtime = name_of(state), None, grid.tasks.runtime(task)
    gang = grid.gangs.running.get(task)
    if state == State.SENT and gang is not None:
        name, elapsed, runtime = "running", max(0.0, now - gang.since), gang.seconds
    elif state == State.SENT and slot is not None:
        runs = slot.sent[0] is live
        name, elapsed = ("running", max(0.0, now - slot.started)) if runs else ("next", None)
        runtime /= slot.speed
    workers = [] if gang is None else [rank.worker for rank in gang.ranks]
    return {
        "item": item,
        "state": name,
        "worker": workers[0] if workers else None if slot is None else slot.worker.name,
        "workers": workers,
        "runtime_s": runtime,
        "elapsed_s": elapsed,
    }
