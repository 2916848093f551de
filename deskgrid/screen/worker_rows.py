"""The rows of workers and of their slots on the status screen, and the headings above them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from deskgrid.durations import duration
from deskgrid.screen import tables
from deskgrid.screen.drawing import BarPart, Column, bar, counted, row
from deskgrid.screen.tables import left, right
from deskgrid.wire import clean
from deskgrid.wire.status import GridState, RunningTask, SlotState, Totals, WorkerState

USED = BarPart("·", "bright_black", "used")
RUNNING = BarPart("█", "green", "running")
QUEUED = BarPart("▒", "yellow", "queued")
LEFT = BarPart("─", "blue", "left")
WINDOW_PARTS = (USED, RUNNING, QUEUED, LEFT)

# PCs that are named, of those that should be there.
ABSENT_NAMED = 3
# A slot's progress in eighths of its task's predicted runtime; a task that runs longer than predicted; an idle slot.
STEPS = "▁▂▃▄▅▆▇█"
LATE = "!"
IDLE = "·"

# The most slots with a glyph each, and the cells of a slot's name.
STRIP = 8
SLOT = len("slot 99")


def worker_heading(grid: GridState) -> Iterable[Text]:
    """Draw the numbers of workers and slots, the PCs that should be there and are not, and the legend of the bars."""
    totals = grid["totals"]
    yield Text("Workers", "bold")
    if missing := totals["pcs_absent"]:
        some = [f"{clean(pc['pc'])} (for {duration(pc['since_s'])})" for pc in grid["absent"][:ABSENT_NAMED]]
        more = f" and {missing - len(some)} more" if missing > len(some) else ""
        yield Text(f"{missing:,} should be there and {'is' if missing == 1 else 'are'} not: ", "bold red").append(
            ", ".join(some) + more
        )
    if not worker_count(totals):
        yield Text("none; start one on a PC with the line that the broker printed", "yellow")
        return
    lost = totals["workers_lost"]
    yield Text(f"{totals['workers_up']:,} up")
    yield Text(f"{totals['workers_away']:,} away")
    yield Text(f"{lost:,} lost", "bold red" if lost else "")
    yield Text(f"{totals['busy']:,} of {counted(totals['slots'], 'slot')} busy")
    yield tables.legend(WINDOW_PARTS)


def worker_count(totals: Totals) -> int:
    """Return the number of all workers."""
    return totals["workers_up"] + totals["workers_away"] + totals["workers_lost"]


def other_workers(totals: Totals, shown: Sequence[WorkerState]) -> str:
    """Describe the workers without a row on the screen in a few words."""
    states = Counter(worker["state"] for worker in shown)
    up = totals["workers_up"] - states["up"]
    away = totals["workers_away"] - states["away"]
    lost = totals["workers_lost"] - states["lost"]
    busy = totals["busy"] - sum(worker["busy"] for worker in shown)
    return f"{up:,} up ({counted(busy, 'slot')} busy), {away:,} away, {lost:,} lost"


def interest(worker: WorkerState) -> tuple[int, int, tuple[tuple[int, str], ...]]:
    """Return a sort key: quarantined workers or those with a task that will not end in time, busy, lost, idle, away."""
    busy = worker["busy"]
    if worker["state"] == "up":
        rank = (
            0
            if worker["quarantine_s"] is not None or any(beyond(worker, slot) for slot in worker["slots"])
            else 1
            if busy
            else 3
        )
    else:
        rank = 2 if worker["state"] == "lost" else 4
    return rank, -busy, tables.natural(worker["name"])


def worker_columns(workers: Sequence[WorkerState], width: int) -> list[Column]:
    """The columns of a table of workers. Speeds and loads are shown where PCs differ."""
    wide = width >= tables.WIDE
    names = tables.name_width((worker["name"] for worker in workers), width)
    slots = max((worker["slot_count"] for worker in workers), default=1)
    ended = max((len(f"{worker['ended']:,}") for worker in workers), default=1)
    unequal = any(worker["speed"] != 1.0 or percent(worker["load"]) != "0 %" for worker in workers)
    sites = max((len(worker["site"]) for worker in workers), default=0)
    labels = max((len(_labels(worker)) for worker in workers), default=0)
    plans = max((len(worker["plan"]) for worker in workers), default=0)
    columns = [
        left(names, "name", lambda worker: clean(worker["name"])),
        Column(1, "left", "window", window),
        right(tables.DURATION, "time left", time_left),
        Column(max(5, slots if slots <= STRIP else 2 * len(str(slots)) + 1), "left", "slots", _strip),
        right(max(5, ended) if width >= tables.MEDIUM else 0, "ended", lambda worker: f"{worker['ended']:,}"),
        right(5 if wide and unequal else 0, "speed", lambda worker: f"{worker['speed']:.2f}"),
        right(5 if wide and unequal else 0, "load", lambda worker: percent(worker["load"])),
        left(max(4, min(sites, 12)) if wide and sites else 0, "site", lambda worker: clean(worker["site"])),
        left(max(6, min(labels, 16)) if wide and labels else 0, "labels", _labels),
        left(min(plans, width // 4) if wide else 0, "plan", lambda worker: Text(clean(worker["plan"]), "dim")),
    ]
    return tables.filled_up(width, columns, flexible=1)


def percent(share: float) -> str:
    """Format a share of 1."""
    return f"{100 * share:.0f} %"


def _labels(worker: WorkerState) -> str:
    return clean(", ".join(worker["labels"]))


def slot_rows(worker: WorkerState, columns: Sequence[Column], names: Mapping[str, str]) -> list[Text]:
    """Draw a line for each slot of a worker that runs a task. ``names``: the names of bags, by id."""
    return [
        row(
            (
                Text(f"slot {slot['slot']}" if columns[0].width >= SLOT else str(slot["slot"]), "dim"),
                Text(clean(f"{names.get(task['bag']) or task['bag']} #{task['item']}")),
                progress(task),
                said_of(worker, slot, task),
            ),
            (Column(columns[0].width, "right"), Column(20), Column(10), Column(44)),
        )
        for slot in worker["slots"]
        if (task := slot["running"]) is not None
    ]


def seconds_to_run(slot: SlotState) -> float:
    """Return the predicted seconds until the running task ends; 0 if it is late or there is none."""
    task = slot["running"]
    return 0.0 if task is None else max(0.0, task["runtime_s"] - task["elapsed_s"])


def seconds_of_work(worker: WorkerState) -> tuple[float, float]:
    """Predicted seconds of work for each slot of a worker, on average: of running tasks, and of those behind them."""
    slots = max(1, len(worker["slots"]))
    running = sum(seconds_to_run(slot) for slot in worker["slots"])
    return running / slots, sum(slot["ahead_s"] + slot["queued_s"] for slot in worker["slots"]) / slots


def beyond(worker: WorkerState, slot: SlotState) -> bool:
    """Whether the running task is predicted to end after the window."""
    return worker["uptime_s"] is not None and seconds_to_run(slot) > worker["uptime_s"]


def window(worker: WorkerState, width: int) -> Text:
    """Draw the window of a worker as a bar, or say in words why it has none."""
    if worker["drained_by"] is not None:
        lost = "lost; " if worker["state"] == "lost" else ""
        return Text(lost + clean(worker["note"]), "yellow")
    if worker["state"] != "up":
        return _absence(worker)
    if worker["quarantine_s"] is not None:
        soon = f", tried again in {duration(worker['quarantine_s'])}" if worker["quarantine_s"] else ", being tried"
        return Text(clean(worker["note"]) + soon, "bold red")
    if worker["paused"]:
        return Text(clean(f"paused: {worker['paused']}"), "yellow")
    running, queued = seconds_of_work(worker)
    uptime = worker["uptime_s"]
    if uptime is None:
        work = f", {duration(running + queued)} of work" if running + queued else ""
        return Text(f"open-ended{work}", "cyan")
    running = min(running, uptime)
    queued = min(queued, uptime - running)
    amounts = (worker["opened_s"], running, queued, uptime - running - queued)
    return bar(list(zip(amounts, WINDOW_PARTS, strict=True)), width)


def _absence(worker: WorkerState) -> Text:
    lost = worker["state"] == "lost"
    said = f"lost, silent for {duration(worker['silent_s'])}" if lost else "away"
    if worker["windows"]:
        starts_in, lasts = worker["windows"][0]
        when = f"back in {duration(starts_in)}" if starts_in > 0 else f"was due {duration(-starts_in)} ago"
        back = f"{when} for {duration(lasts + min(starts_in, 0.0))}"
    else:
        back = "" if lost else "no window in the coming week"
    return Text(f"{said}, {back}" if back else said, "bold red" if lost else "dim")


def time_left(worker: WorkerState) -> Text:
    """How long the window stays open, or the state of a worker that is not up. "~": as learned, not as told."""
    if worker["state"] != "up":
        return Text(worker["state"], "bold red" if worker["state"] == "lost" else "dim")
    if worker["uptime_s"] is None:
        return Text("open-ended")
    short = any(beyond(worker, slot) for slot in worker["slots"])
    said, hours = duration(worker["uptime_s"]), worker["hours"]
    if hours is not None and hours["goes_s"] is not None:
        said = "~" + (said if len(said) < tables.DURATION else said.partition(" h")[0] + " h")
    return Text(said, "bold yellow" if short else "")


def _strip(worker: WorkerState, width: int) -> Text:
    """Draw a glyph for each slot that shows its task's progress or, if there are too many slots, how many are busy."""
    if worker["state"] != "up":
        return Text()
    slots, count = worker["slots"], worker["slot_count"]
    if count > STRIP or count > width or count > len(slots):
        return Text(f"{worker['busy']}/{count}")
    text = Text()
    for slot in slots:
        task = slot["running"]
        if task is None:
            text.append(IDLE, "dim")
        elif task["elapsed_s"] > task["runtime_s"]:
            text.append(LATE, "bold yellow")
        else:
            text.append(STEPS[min(7, int(8 * _fraction(task)))], RUNNING.style)
    return text


def _fraction(task: RunningTask) -> float:
    return min(1.0, task["elapsed_s"] / task["runtime_s"]) if task["runtime_s"] > 0 else 1.0


def progress(task: RunningTask) -> Text:
    """Draw how far a task is, by its prediction."""
    done = _fraction(task)
    return bar([(done, RUNNING), (1 - done, LEFT)], 10)


def said_of(worker: WorkerState, slot: SlotState, task: RunningTask) -> Text:
    """How long a task has run, which of its ranks it is, and what comes after it on its slot."""
    rank = "" if task["rank"] is None else f"rank {task['rank']} of {task['ranks']}, "
    text = Text(f"{rank}{duration(task['elapsed_s'])} of {duration(task['runtime_s'])}")
    if slot["copy"]:
        text.append(", a copy", "dim")
    if beyond(worker, slot):
        if task["saves"]:
            text.append(", goes on in another window", "dim")
        else:
            text.append(", too long for this window", "bold yellow")
    if waiting := slot["ahead"] + slot["queued"]:
        text.append(f", then {waiting:,} for {duration(slot['ahead_s'] + slot['queued_s'])}", "dim")
    return text
