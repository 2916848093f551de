"""The tasks of a bag as rows, what they printed and how they failed: one task's log, and the newest of a whole bag.

All in slices.
"""

import re
from collections.abc import Sequence
from typing import Any

from deskgrid import wire
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.store.one_by_one import blocks_around, newest_blocks, printed_in, result_in
from deskgrid.broker.store.rows import ResultRow
from deskgrid.broker.work.live_output import Live, LiveOutput
from deskgrid.broker.work.operations import Slices
from deskgrid.scheduler.model import ENDED, State
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.wire.details import OutputRow, PrintedRow, RankRow, TaskRow

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
# The cost of reading a block in units (`deskgrid.broker.work.operations`).
BLOCK_UNITS = 300
# Of a whole bag: the most blocks that are read for one answer, the most rows in it, and the most bytes of each text.
OUTPUT_BLOCKS = 20
OUTPUT_ROWS = 200
OUTPUT_BYTES = 1_000
# Of a bag that somebody follows, the most tasks that are watched at a time.
FOLLOWED = 50
# What the ranks of one gang have printed, in one answer. As JSON, a byte may take six.
RANKS_BYTES = wire.ANSWER_BYTES // 8


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


def task_log(state: BrokerState, live: LiveOutput, task: int) -> Slices:
    """What a task printed, where it ran and how it ended; of one that runs, the last of what it has printed.

    Of one that is tried again and has not printed anything, its last failed attempt.
    """
    now = state.scheduler.state(task)
    row = None
    for seq, size in blocks_around(state.journal, task) if now in ENDED else ():
        row = result_in(state.journal, seq, size, task)
        if row is not None:
            break
        yield BLOCK_UNITS
    if row is None or row.outcome == wire.Outcome.CANCELLED:
        row = state.failed_attempts.last(task)
    ranks = _rank_rows(state, live, task) if state.book.find(task)[0].row.options.gang else []
    if (running := _running(state, live, task)) and (row is None or running["stdout"] or running["stderr"]):
        return {**running, "ranks": ranks}
    if row is None:
        nothing: dict[str, Any] = {"worker": None, "elapsed_s": 0.0, "stdout": "", "stderr": "", "error": None}
        return {"state": name_of(now), **nothing, "rank": None, "ranks": ranks}
    error = _error_text(row)
    over = now in (State.DONE, State.FAILED)
    bag = state.book.by_number[row.bag]
    return {
        "state": wire.Outcome(row.outcome).name.lower() if over else name_of(now),
        "worker": row.worker,
        "elapsed_s": row.elapsed,
        "stdout": shortened(row.stdout, wire.PRINTED_BYTES),
        "stderr": shortened(row.stderr, wire.PRINTED_BYTES),
        "error": None if error is None else shortened(error.encode(errors="replace"), wire.PRINTED_BYTES),
        "rank": _rank_of(bag, row),
        "ranks": ranks,
    }


def _running(state: BrokerState, live: LiveOutput, task: int) -> dict[str, Any] | None:
    """What is known of a task that runs; None if it does not."""
    if (runs := live.runs(task)) is None:
        return None
    stdout, stderr = live.printed(task)
    return {
        "state": "running",
        "worker": runs.workers[0],
        "elapsed_s": max(0.0, state.now - runs.since),
        "stdout": shortened(stdout, wire.PRINTED_BYTES),
        "stderr": shortened(stderr, wire.PRINTED_BYTES),
        "error": None,
        "rank": None,
    }


def printed_now(
    state: BrokerState, live: LiveOutput, bag: OpenBag, items: Sequence[int] | None, *, who: str, after: int
) -> Slices:
    """What running tasks of a bag have printed after a place, and the next place; ``who`` watches them from now on.

    ``items``: of these; None: of the first that run.
    """
    if items is None:
        page = yield from task_rows(state, bag, "running", None)
        assert not isinstance(page, str)
        items = [row["item"] for row in page["tasks"] if row["state"] == "running"][:FOLLOWED]
    rows: list[PrintedRow] = []
    tasks = [(item, task) for item in items if (task := bag.task(item)) is not None]
    place = live.place
    for item, task in tasks:
        if (watched := live.watch(task, who)) is not None:
            rows += [_printed_row(item, watched, shown) for shown in live.news(task, after, place)]
        yield BLOCK_UNITS
    states = [name_of(state.scheduler.state(task)) for _, task in tasks]
    return {"printed": rows, "after": place, "states": states, "complete": bag.complete}


def _printed_row(item: int, watched: Live, shown: wire.Shown) -> PrintedRow:
    return {
        "item": item,
        "attempt": shown.number,
        "rank": shown.rank if len(watched.runs.workers) > 1 else None,
        "worker": watched.runs.workers[shown.rank],
        "stdout_bytes": shown.stdout_bytes,
        "stdout": shown.stdout.decode(errors="surrogateescape"),
        "stderr_bytes": shown.stderr_bytes,
        "stderr": shown.stderr.decode(errors="surrogateescape"),
    }


def _rank_of(bag: OpenBag, row: ResultRow) -> int | None:
    """Of a gang, the rank whose output a row has: the one that failed first, or else rank 0."""
    if not bag.row.options.gang:
        return None
    return 0 if row.outcome == wire.Outcome.DONE else wire.read_failure(row.payload).rank or 0


def _rank_rows(state: BrokerState, live: LiveOutput, task: int) -> list[RankRow]:
    """What each rank of the newest attempt of a gang printed, or has printed so far."""
    outputs = state.journal.ranks.outputs(task)
    goes_on = state.scheduler.state(task) in (State.SENT, State.HELD)
    most = min(wire.PRINTED_BYTES, RANKS_BYTES // max(1, 2 * len(outputs)))
    printed = {
        output.rank: live.printed(task, output.rank)
        if goes_on and output.outcome is None
        else (output.stdout, output.stderr)
        for output in outputs
    }
    return [
        {
            "rank": output.rank,
            "worker": output.worker,
            "state": _state_of(output.outcome, goes_on=goes_on),
            "elapsed_s": output.elapsed,
            "stdout": shortened(printed[output.rank][0], most),
            "stderr": shortened(printed[output.rank][1], most),
        }
        for output in outputs
    ]


def _state_of(outcome: int | None, *, goes_on: bool) -> str:
    """How a rank has ended, as the log says it."""
    if outcome is None:
        return "running" if goes_on else "stopped"
    return wire.Outcome(outcome).name.lower()


def bag_output(state: BrokerState, bag: OpenBag, after: int) -> Slices:
    """What the tasks of a bag that ended last have printed, the oldest first.

    ``after``: the number that came with the last answer. If too many tasks have ended since, the older ones are left
    out: somebody watches, and has seen nothing of them for long.
    """
    found: list[ResultRow] = []
    blocks = newest_blocks(state.journal, bag.row.number, after, OUTPUT_BLOCKS)
    for seq, size in blocks:
        if len(found) < OUTPUT_ROWS:
            some = printed_in(state.journal, seq, OUTPUT_ROWS)
            found += [row for row in reversed(some) if row.outcome != wire.Outcome.CANCELLED]
            yield BLOCK_UNITS + size
    rows = [_output_row(bag, row) for row in reversed(found[:OUTPUT_ROWS])]
    return {"output": rows, "after": max([after, *(seq for seq, _ in blocks)])}


def _output_row(bag: OpenBag, row: ResultRow) -> OutputRow:
    error = _error_text(row)
    return {
        "item": row.item,
        "state": wire.Outcome(row.outcome).name.lower(),
        "worker": row.worker,
        "elapsed_s": row.elapsed,
        "rank": _rank_of(bag, row),
        "stdout": shortened(row.stdout, OUTPUT_BYTES),
        "stderr": shortened(row.stderr, OUTPUT_BYTES),
        "error": None if error is None else shortened(error.encode(errors="replace"), OUTPUT_BYTES),
    }


def shortened(printed: bytes, most: int) -> str:
    """The output of a task, as text from which its bytes can be had back; a note replaces the middle of a long one."""
    if len(printed) > most:
        half = most // 2
        note = f"\n[... {len(printed) - 2 * half:,} bytes are left out ...]\n".encode()
        printed = printed[:half] + note + printed[-half:]
    return printed.decode(errors="surrogateescape")


def _error_text(row: ResultRow) -> str | None:
    if row.outcome in (wire.Outcome.DONE, wire.Outcome.CANCELLED):
        return None
    failure = wire.read_failure(row.payload)
    kind, message, trace = failure.kind, failure.message, failure.trace
    # A Python traceback ends with the exception; the stderr of a command does not say how it ended.
    reason = f"{kind}: {message}"
    return trace if trace.rstrip().endswith(message or kind) else "\n".join(filter(None, [trace.rstrip(), reason]))
