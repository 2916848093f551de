"""Pages about one PC, one bag and one task. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from textwrap import wrap
from typing import cast

from rich.cells import chop_cells
from rich.text import Text

from deskgrid.client.eta import clock
from deskgrid.durations import duration
from deskgrid.screen import bag_rows, tables, worker_rows
from deskgrid.screen.drawing import Column, counted, row
from deskgrid.screen.listing import Listing, ListRow, line
from deskgrid.screen.questions import GROUPS, explain_of, logs_of, output_of, tasks_of, worker_of
from deskgrid.screen.view import ScreenData, ScreenQuestion, ScreenView
from deskgrid.screen.work import event_row
from deskgrid.sizes import size
from deskgrid.wire import clean, clean_lines
from deskgrid.wire.details import OutputRow, TaskRow
from deskgrid.wire.status import BagState, SlotState, WorkerState

# Cells of a label at the start of a line.
LABEL = 10
# The last events of a PC that its page shows, and of the reasons why a bag waits the first.
EVENTS = 20
REASONS = 5

EMPTY = line("")


def _labelled(label: str, text: Text | str) -> ListRow:
    return line(Text(f"{label:{LABEL}}", "dim").append_text(Text(clean(text)) if isinstance(text, str) else text))


def _printed(text: str, width: int) -> list[ListRow]:
    """Lines that a task printed, cut where the screen ends."""
    lines = clean_lines(text).expandtabs().splitlines()
    return [line(part) for each in lines for part in (chop_cells(each, width) or [""])]


def _sentences(texts: Iterable[str], width: int, style: str = "") -> list[ListRow]:
    """Lines of the broker, wrapped between words."""
    return [line(part, style) for text in texts for part in wrap(clean(text), width, subsequent_indent="  ")]


def _refused(seen: ScreenData, width: int, *questions: ScreenQuestion) -> list[ListRow]:
    """Why the broker did not answer; each reason once."""
    return _sentences(dict.fromkeys(filter(None, map(seen.error, questions))), width, "yellow")


# --- a PC ------------------------------------------------------------------------------------------------------------


def pc(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """A PC: its window, its slots with what they run, and its last events."""
    page = view.page
    question = worker_of(page.name)
    listed = next((worker for worker in seen.snapshot["workers"] if worker["name"] == page.name), None)
    told = cast("WorkerState | None", seen.answer(question) or listed)
    heading = [Text(clean(page.name), "bold")]
    if told is None:
        return Listing(heading, _refused(seen, width, question) or [line("asking the broker ...", "dim")])
    heading += [Text(clean(f"{name} {told[name]}")) for name in ("host", "site") if told[name]]
    heading += [tables.legend(worker_rows.WINDOW_PARTS)]
    names = {bag["bag"]: bag["name"] for bag in seen.bags}
    slots = [
        _slot(told, slot, names.get(slot["running"]["bag"], "") if slot["running"] else "") for slot in told["slots"]
    ]
    return Listing(
        heading,
        [
            *_refused(seen, width, question),
            *_about(told, width, seen.now),
            EMPTY,
            line(f"Slots  {told['busy']} of {told['slot_count']} busy", "bold"),
            *(slots or [line("none while it is not up", "dim")]),
            *_events(page.name, seen),
        ],
    )


def _about(worker: WorkerState, width: int, now: datetime) -> Iterable[ListRow]:
    if worker["note"]:
        yield _labelled("trouble", Text(clean(worker["note"]), "bold red"))
    columns = [Column(max(0, width - LABEL - tables.DURATION - 2)), Column(tables.DURATION, "right")]
    window = worker_rows.window(worker, columns[0].width)
    yield _labelled("window", row((window, worker_rows.time_left(worker)), columns))
    yield _labelled("plan", worker["plan"] or worker["kind"])
    for label, text in zip(("hours", ""), _hours(worker, now), strict=False):
        yield _labelled(label, text)
    coming = [f"in {duration(starts)} for {duration(lasts)}" for starts, lasts in worker["windows"]]
    yield _labelled("next", ", ".join(coming) or "no further window is announced")
    yield _labelled("ended", counted(worker["ended"], "task"))
    fast = "that of a fast desktop PC" if worker["speed"] == 1.0 else f"{worker['speed']:.2f} of a fast desktop PC's"
    used = f"others use {worker_rows.percent(worker['load'])} of {counted(worker['processors'], 'processor')}"
    shown = (
        "" if worker["speed"] == worker["stated_speed"] else f", as tasks show ({worker['stated_speed']:.2f} measured)"
    )
    yield _labelled("speed", f"{fast}{shown}; {used}")
    if worker["memory"] is not None:
        yield _labelled("memory", size(worker["memory"]))
    if worker["resources"]:
        yield _labelled("resources", ", ".join(worker["resources"]))
    yield _labelled("Python", ", ".join(worker["pythons"]))
    if worker["labels"]:
        yield _labelled("labels", ", ".join(worker["labels"]))
    if not worker["reachable"]:
        yield _labelled("network", Text("other PCs cannot reach it, so it gets no gangs of several PCs", "yellow"))


def _hours(worker: WorkerState, now: datetime) -> Iterable[str]:
    """What was learned of when it goes, in words; nothing if it is taken at its word because nothing is known."""
    if (hours := worker["hours"]) is None:
        return
    lasts, early_s, goes = hours["lasts_s"], hours["early_s"], hours["goes_s"]
    seen = f"({counted(hours['seen'], 'closing')} seen)"
    if lasts is not None:
        plan = "no plan" if worker["kind"] == "open-ended" else "whatever its plan"
        yield f"{plan}: it usually stays {_between(*map(duration, lasts))} {seen}"
    elif early_s is not None:
        yield f"usually closes {duration(abs(early_s))} {'before' if early_s > 0.0 else 'after'} it says {seen}"
    elif goes is None:
        yield f"closes when it says {seen}"
    else:
        yield f"expected to do as most other PCs do {seen}"
    if goes is not None:
        yield f"so it should go {_between(*[clock(now + timedelta(seconds=each), now) for each in goes])}"


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _slot(worker: WorkerState, slot: SlotState, bag: str) -> ListRow:
    """A slot: what it runs, which can be opened."""
    text = Text(f"slot {slot['slot']:<4} ", "dim")
    task = slot["running"]
    if task is None:
        left = slot["left_s"]
        return line(text.append("idle" if left is None else f"idle, {duration(max(0.0, left))} left"))
    text.append(f"{clean(bag or task['bag'])} #{task['item']}  ").append_text(worker_rows.progress(task)).append("  ")
    return line(text.append_text(worker_rows.said_of(worker, slot, task)), key=f"task {task['bag']} {task['item']}")


def _events(name: str, seen: ScreenData) -> list[ListRow]:
    of_it = [each for each in seen.events if each.row["facts"].get("name") == name][: -EVENTS - 1 : -1]
    rows = [ListRow(f"event {each.row['number']}", partial(event_row, each)) for each in of_it]
    return [EMPTY, line("Events  newest first", "bold"), *rows] if rows else []


# --- a bag -----------------------------------------------------------------------------------------------------------


def bag(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """A bag: how far it is, why it waits, and its tasks, those in trouble first."""
    page = view.page
    told = seen.bag(page.name)
    if told is None:
        return Listing([Text(clean(page.name), "bold")], [line("the broker no longer has this bag", "dim")])
    heading = [
        Text(clean(bag_rows.title(told)), "bold"),
        Text(clean(f"id {told['bag']}")),
        Text(clean(f"of {told['owner']}")),
        Text(f"{duration(told['age_s'])} old"),
        tables.legend(bag_rows.BAG_PARTS),
    ]
    questions = [explain_of(page.name), *(tasks_of(page.name, group) for group in GROUPS)]
    return Listing(
        heading,
        [
            *_progress(told, width),
            *_refused(seen, width, *questions),
            *_why(told, seen, width),
            EMPTY,
            *_tasks(told, seen),
        ],
    )


def _progress(bag: BagState, width: int) -> Iterable[ListRow]:
    room = max(0, width - LABEL - tables.DURATION - 2)
    columns = [Column(room), Column(tables.DURATION, "right")]
    yield _labelled("tasks", row((bag_rows.bag_bar(bag, room), bag_rows.to_go(bag)), columns))
    if needs := _needs(bag):
        yield _labelled("needs", needs)
    counts = [f"{bag[state]:,} {state}" for state in ("done", "failed", "cancelled", "running", "waiting")]
    yield _labelled("", ", ".join(counts))
    work = f"{duration(bag['left_s'])} left, longest task {duration(bag['longest_s'])}"
    yield _labelled("work", work if bag["closed"] else f"{work}; more tasks may come")
    if (low := bag["eta_low_s"]) is not None and not bag_rows.complete(bag):
        high = "nobody knows how long" if bag["eta_high_s"] is None else duration(bag["eta_high_s"])
        yield _labelled("to go", f"{duration(low)} to {high}, with a confidence of 90 %")
    if bag["note"]:
        yield _labelled("note", Text(clean(bag["note"]), "yellow"))


def _needs(bag: BagState) -> str:
    """What each of its tasks needs at once, in words; nothing if that is one slot."""
    least, most = bag["ranks"]
    slots = counted(bag["slots"], "slot")
    if not bag["gang"]:
        return f"{slots} of one PC for each task" if bag["slots"] > 1 else ""
    ranks = counted(most, "rank") if least == most else f"{least:,} to {most:,} ranks"
    return f"{ranks} for each task" + (f", each on {slots} of one PC" if bag["slots"] > 1 else "")


def _why(bag: BagState, seen: ScreenData, width: int) -> list[ListRow]:
    """Why its longest task waits."""
    text = seen.answer(explain_of(bag["bag"])).get("text", [])
    if not text or not bag["waiting"]:
        return []
    more = [line(f"... and {counted(len(text) - REASONS, 'line')} more: open the task to see all", "dim")]
    found = _sentences(text[:REASONS], width)
    return [EMPTY, line("Why it waits", "bold"), *found, *(more if len(text) > REASONS else [])]


def _tasks(bag: BagState, seen: ScreenData) -> Iterable[ListRow]:
    """Its tasks: failed, running, waiting, cancelled and done ones."""
    yield line("Tasks", "bold")
    shown = 0
    for group in GROUPS:
        tasks: Sequence[TaskRow] = seen.answer(tasks_of(bag["bag"], group)).get("tasks", ())
        for task in tasks:
            yield ListRow(f"task {bag['bag']} {task['item']}", partial(_task_row, task))
        shown += len(tasks)
    if not shown:
        yield from _running(bag["bag"], seen)
    elif shown < bag["total"]:
        yield line(f"... and {counted(bag['total'] - shown, 'task')} more", "dim")


def _task_row(task: TaskRow) -> Text:
    state = task["state"]
    where = _on(task["workers"] or [task["worker"]]) if task["worker"] else ""
    if task["elapsed_s"] is not None:
        took = f"{duration(task['elapsed_s'])} of {duration(task['runtime_s'])}"
    else:
        took = f"predicted {duration(task['runtime_s'])}" if state not in ("done", "failed", "cancelled") else ""
    style = "bold red" if state == "failed" else "green" if state == "running" else ""
    text = Text(f"#{task['item']:<9} ").append(f"{clean(state):10}", style)
    return text.append(clean("  ".join(filter(None, [where, took]))))


def _running(bag_id: str, seen: ScreenData) -> Iterable[ListRow]:
    """What everybody may see of somebody else's bag: where its tasks run."""
    ranks: dict[int, dict[int, str]] = {}
    for worker in seen.snapshot["workers"]:
        for slot in worker["slots"]:
            task = slot["running"]
            if task is None or task["bag"] != bag_id:
                continue
            if task["rank"] is None:
                said = worker_rows.said_of(worker, slot, task)
                yield _runs(bag_id, task["item"], f"{_on([worker['name']])}  ", said)
            else:
                ranks.setdefault(task["item"], {})[task["rank"]] = worker["name"]
    for item, places in ranks.items():
        yield _runs(bag_id, item, _on([places[rank] for rank in sorted(places)]))


def _runs(bag_id: str, item: int, where: str, more: Text | str = "") -> ListRow:
    text = Text(f"#{item:<9} ").append("running   ", "green").append(clean(where))
    return line(text.append(more), key=f"task {bag_id} {item}")


def _on(workers: Sequence[str | None]) -> str:
    """Where a task runs; of a gang: on which PCs how many of its ranks."""
    counts = Counter([worker or "?" for worker in workers])
    places = ", ".join([name if many == 1 else f"{name} ×{many}" for name, many in counts.items()])
    return f"on {places}" if len(workers) == 1 else f"{len(workers)} ranks on {places}"


def log(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """What the tasks of a bag printed, in the order in which they ended."""
    question = output_of(view.page.name)
    told = seen.bag(view.page.name)
    outputs: Sequence[OutputRow] = seen.answer(question).get("output", ())
    entries = [entry for row in outputs for entry in _output(row, width)]
    refused = _refused(seen, width, question)
    nothing = "no task of it has ended yet" if question in seen.told else "asking the broker ..."
    name = view.page.name if told is None else bag_rows.title(told)
    return Listing(
        [Text("Log", "bold"), Text(clean(f"of bag {name}")), Text("the newest at the end", "dim")],
        refused + entries or [line(nothing, "dim")],
    )


def _output(row: OutputRow, width: int) -> list[ListRow]:
    rank = "" if row["rank"] is None else f"rank {row['rank']} "
    head = f"#{row['item']}  {row['state']} {rank}on {row['worker']} after {duration(row['elapsed_s'])}"
    texts = (text for text in (row["error"], row["stderr"], row["stdout"]) if text)
    style = "bold" if row["state"] == "done" else "bold red"
    return [line(head, style), *(entry for text in texts for entry in _printed(text, width))]


# What is said of a task that has printed nothing, by its state; of others that nothing was printed.
NOTHING = dict.fromkeys(("waiting", "queued", "sent", "held"), "its output is shown when it runs") | {
    "running": "it has printed nothing so far"
}

# --- a task ----------------------------------------------------------------------------------------------------------


def _texts(width: int, where: str = "", **texts: str | None) -> Iterable[ListRow]:
    """What was printed, each text below its label."""
    for label, text in texts.items():
        if text:
            yield from (EMPTY, line(clean(f"{label}{where}"), "bold"), *_printed(text, width))


def task(view: ScreenView, seen: ScreenData, width: int) -> Listing:
    """A task: where it is or why it waits, how it ended, and what it printed."""
    page = view.page
    why, logs = explain_of(page.name, page.item), logs_of(page.name, page.item)
    told = seen.bag(page.name)
    name = page.name if told is None else bag_rows.title(told)
    entries = _sentences(seen.answer(why).get("text", []), width)
    log = seen.answer(logs)
    if log.get("worker") and log["state"] != "running":
        entries.append(line(f"last attempt: {log['state']} on {log['worker']} after {duration(log['elapsed_s'])}"))
    entries += _texts(width, Error=log.get("error"))
    ranks = log.get("ranks", ())
    for rank in ranks:
        where = f", rank {rank['rank']} on {rank['worker']} after {duration(rank['elapsed_s'])}"
        entries += _texts(width, where, stderr=rank["stderr"], stdout=rank["stdout"])
    if not ranks:
        entries += _texts(width, stderr=log.get("stderr"), stdout=log.get("stdout"))
    if log and not (log["stdout"] or log["stderr"] or log["error"]):
        entries += [EMPTY, line(NOTHING.get(log["state"], "nothing was printed"), "dim")]
    refused = _refused(seen, width, why, logs)
    return Listing(
        [Text(f"task {page.item}", "bold"), Text(clean(f"of bag {name}")), Text(clean(f"id {page.name}"), "dim")],
        [*refused, *entries] or [line("asking the broker ...", "dim")],
    )
