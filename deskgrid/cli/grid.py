"""``deskgrid status``, ``workers``, ``bags``, ``shares`` and ``policy``: commands for the grid as a whole."""

import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from deskgrid.cli.base import join_option, open_grid, open_link, say, table
from deskgrid.durations import duration
from deskgrid.option_types import Refusal, Seconds, key_values
from deskgrid.wire import clean

if TYPE_CHECKING:
    from rich.console import Console

    from deskgrid.wire.status import BagState, StatusDocument, WorkerState


@click.command()
@click.option("--once", is_flag=True, help="Print the first view once, with every worker and bag.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the status as JSON (deskgrid/wire/status.py describes it)."
)
@click.option(
    "--check",
    is_flag=True,
    help="Print one line for a monitoring system. Exit code 0: all is well; 1: somebody should look; 2: nothing can be "
    "done.",
)
@join_option
def status(*, once: bool, as_json: bool, check: bool, join: str | None) -> None:
    """Watch the grid: workers and their windows, running tasks, bags, people, the next 24 hours, and events.

    Press 1 to 6 to choose a view, the arrow keys to move, Enter to open a PC, a bag or a task, / to search, ? to see
    all keys, and q to quit.

    The bar of a window shows the time used so far, the time that running and queued tasks will take, and the time left.
    Each slot has a sign: a bar that grows with its task, ! for a task that runs longer than predicted, and a dot for
    no task. If stdout is not a terminal, the screen is printed once.
    """
    from rich.console import Console

    if check:
        if once or as_json:
            raise click.UsageError("--check goes with neither --once nor --json", click.get_current_context())
        with open_grid(join) as grid:
            code, said = _health(grid.status())
        say(said)
        sys.exit(code)
    console = Console()
    if not (once or as_json) and console.is_terminal and not console.is_dumb_terminal:
        _watch(join, console)
        return
    with open_grid(join) as grid:
        snapshot = grid.status()
    if as_json:
        click.echo(json.dumps(snapshot, indent=2))
    else:
        _print_once(snapshot, console)


def _health(snapshot: "StatusDocument") -> tuple[int, str]:
    """Return the exit code of --check, and its line."""
    from deskgrid.screen.drawing import counted

    totals, facts, queues = snapshot["totals"], snapshot["broker"], snapshot["queues"]
    waiting = queues["regular"] + queues["priority"]
    sick = [worker["name"] for worker in snapshot["workers"] if worker["quarantine_s"] is not None]
    stops = ["the disk is full"] if facts["disk"] == "full" else []
    # At times at which no PC has a window, nothing is wrong.
    nobody = not totals["workers_up"] and (totals["pcs_absent"] or not totals["workers_away"])
    stops += [f"{counted(waiting, 'task')} waiting, and no worker is up"] if waiting and nobody else []
    looks = ["the disk is nearly full"] if facts["disk"] == "low" else []
    looks += facts["problems"]
    looks += [f"{counted(totals['pcs_absent'], 'PC')} missing"] if totals["pcs_absent"] else []
    looks += [f"{counted(totals['workers_lost'], 'worker')} lost"] if totals["workers_lost"] else []
    looks += [f"in quarantine: {', '.join(sick)}"] if sick else []
    code = 2 if stops else 1 if looks else 0
    facts_line = f"{counted(totals['workers_up'], 'worker')} up, {counted(totals['bags_under_way'], 'bag')} under way"
    return code, f"{('OK', 'WARNING', 'CRITICAL')[code]}: {'; '.join([*stops, *looks, facts_line])}"


def _print_once(snapshot: "StatusDocument", console: "Console") -> None:
    from deskgrid.screen.screen import render
    from deskgrid.screen.watch import takes_ascii_only

    console.print(render(snapshot, console.width, None, 0.0, ascii_only=takes_ascii_only(console)))


def _watch(join: str | None, console: "Console") -> None:
    from deskgrid.client.replies import ANSWER_S, ORDER_S, ask
    from deskgrid.screen.questions import ORDERED
    from deskgrid.screen.watch import watch

    # The screen itself says when the broker is away.
    with open_link(join) as link, _silent("deskgrid.client"):
        watch(lambda what, args: ask(link, what, args, ORDER_S if what in ORDERED else ANSWER_S), console)


@contextmanager
def _silent(name: str) -> Iterator[None]:
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@click.command()
@click.option("--mine", is_flag=True, help="Only bags that were submitted with your key.")
@click.option(
    "--state", type=click.Choice(["unfinished", "ended", "failed", "paused"]), help="failed: some of its tasks failed."
)
@click.option("--since", type=Seconds(positive=True), help="Only bags submitted at most this long ago, such as 2h.")
@click.option("--name", "pattern", metavar="PATTERN", help="Only bags with such a name, as in 'sweep-*'.")
@join_option
def bags(*, mine: bool, state: str | None, since: float | None, pattern: str | None, join: str | None) -> None:
    """List the bags on the broker, oldest first, including bags that have ended.

    If the terminal is too narrow for all columns, some are left out.
    """
    from deskgrid.screen.bag_rows import complete

    with open_grid(join, submits=mine) as grid:
        found = grid.bags(mine=mine)
    states: dict[str | None, Callable[[BagState], bool]] = {
        None: lambda bag: True,
        "unfinished": lambda bag: not complete(bag),
        "ended": complete,
        "failed": lambda bag: bag["failed"] > 0,
        "paused": lambda bag: bag["paused"],
    }
    found = [
        bag
        for bag in found
        if states[state](bag)
        and (since is None or bag["age_s"] <= since)
        and (pattern is None or fnmatchcase(bag["name"], pattern))
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in fitted_table([_TITLES, *map(_cells, found)], width):
        say(line)
    for bag in found:
        if bag["note"]:
            say(f"deskgrid: {bag['bag']}: {bag['note']}", err=True)


_TITLES = ("BAG", "OWNER", "AGE", "TASKS", "DONE", "FAILED", "CANCELLED", "RUNNING", "WAITING", "TO GO", "NAME")
# Columns that a narrow terminal can do without, in the order in which they are left out.
_LEFT_OUT = ("WAITING", "RUNNING", "CANCELLED", "OWNER", "AGE")


def fitted_table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Format rows, the first of which has the titles, as lines of at most ``width`` characters, if that is possible.

    None: as wide as necessary.
    """
    lines = list(table(rows))
    for title in _LEFT_OUT:
        if width is None or max(map(len, lines)) <= width:
            break
        place = rows[0].index(title)
        rows = [[*row[:place], *row[place + 1 :]] for row in rows]
        lines = list(table(rows))
    return lines


def _cells(bag: "BagState") -> tuple[str, ...]:
    from deskgrid.screen.bag_rows import complete

    numbers = (bag["total"], bag["done"], bag["failed"], bag["cancelled"], bag["running"], bag["waiting"])
    unknown = "ended" if complete(bag) else "unknown"
    to_go = unknown if bag["eta_s"] is None or complete(bag) else duration(bag["eta_s"])
    counts = [f"{number}" for number in numbers]
    return (clean(bag["bag"]), clean(bag["owner"]), duration(bag["age_s"]), *counts, to_go, clean(bag["name"]))


@click.command()
@click.argument("patterns", metavar="[PC|PATTERN]...", nargs=-1)
@join_option
def workers(*, patterns: tuple[str, ...], join: str | None) -> None:
    """List the workers that the broker knows, by name: whether they are there, until when, and what they do.

    A PC that should be there by windows.toml, and is not, is "missing". PATTERN is as in that file, such as 'lab3-*';
    quote it, and case does not matter. What is wrong with a worker follows on stderr, and which workers run another
    version of deskgrid than the broker.
    """
    from deskgrid.windows.windows_file import pattern_matches

    def chosen(*names: str) -> bool:
        return not patterns or any(pattern_matches(pattern, name) for pattern in patterns for name in names)

    with open_grid(join) as grid:
        snapshot = grid.status()
    found = [worker for worker in snapshot["workers"] if chosen(worker["name"], worker["pc"])]
    absent = {pc["pc"]: pc for pc in snapshot["absent"] if chosen(pc["pc"])}
    rows = [_worker_cells(worker, missing=absent.pop(worker["pc"], None) is not None) for worker in found]
    rows += [(clean(name), "missing", "", "", "", "", "", clean(pc["plan"])) for name, pc in absent.items()]
    if patterns and not rows:
        raise Refusal(f"no worker has a name like {' or '.join(patterns)}")
    for line in table([_WORKER_TITLES, *sorted(rows, key=lambda cells: cells[0].lower())]):
        say(line)
    for worker in found:
        if worker["note"]:
            say(f"deskgrid: {worker['name']}: {worker['note']}", err=True)
    ours = snapshot["broker"]["version"]
    if others := [worker for worker in found if worker["version"] != ours]:
        runs = "1 worker runs" if len(others) == 1 else f"{len(others)} workers run"
        say(f"deskgrid: {runs} another version than the broker ({ours}):", err=True)
        for worker in others:
            say(f"deskgrid: {worker['name']}: {worker['version']}", err=True)


_WORKER_TITLES = ("WORKER", "STATE", "LEFT", "BUSY", "ENDED", "SPEED", "PYTHON", "PLANNED")


def _worker_cells(worker: "WorkerState", *, missing: bool) -> tuple[str, ...]:
    state: str = "missing" if missing else worker["state"]
    if state == "up":
        quarantine, drained = worker["quarantine_s"] is not None, worker["drained_by"] is not None
        state = "drained" if drained else "quarantine" if quarantine else "paused" if worker["paused"] else "up"
    left_s = worker["uptime_s"]
    left = "" if worker["state"] != "up" else "open" if left_s is None else duration(left_s)
    busy, python = f"{worker['busy']}/{worker['slot_count']}", ",".join(worker["pythons"])
    numbers = f"{worker['ended']:,}", f"{worker['speed']:.2f}"
    return (clean(worker["name"]), state, left, busy, *numbers, clean(python), clean(worker["plan"]))


@click.command()
@join_option
def shares(*, join: str | None) -> None:
    """Show the share of each person, and how much of the grid they have used.

    USED is the time of their tasks on slots, half of which is forgotten after three days. PROMISED is the predicted
    time of their tasks on PCs now. The tasks of whoever has used least, relative to their weight, come first. The file
    shares.toml in the broker's home changes weights, and combines several keys of one person.
    """
    with open_grid(join) as grid:
        found = grid.shares()
    for line in table([_SHARE_TITLES, *map(_share_cells, found)]):
        say(line)


_SHARE_TITLES = ("SHARE", "WEIGHT", "USED", "PROMISED", "ON PCS", "WAITS", "KEYS")


def _share_cells(row: "dict[str, Any]") -> tuple[str, ...]:
    times = duration(row["used_s"]), duration(row["promised_s"])
    keys = ", ".join(clean(key) for key in row["keys"])
    waits = "yes" if row["waits"] else "no"
    return (clean(row["share"]), f"{row['weight']:g}", *times, f"{row['running']}", waits, keys)


@click.command()
@click.argument("name")
@click.argument("options", nargs=-1, metavar="[KEY=VALUE]...", callback=key_values)
@join_option
def policy(*, name: str, options: dict[str, object], join: str | None) -> None:
    """Change the scheduling policy of the running broker, until it is restarted.

    NAME is packing, longest, pgs or fcfs, a policy for parallel tasks (easy, rhap, scojo-p, tla, cisne-uniform and
    others), or one that you installed. Options that you do not give have their defaults.

    Only admins can use this command. On the broker's machine, anyone who can read its home is an admin.
    """
    with open_grid(join) as grid:
        grid.policy(name, **options)
        chosen = grid.status()["broker"]
    say(" ".join([chosen["policy"], *(f"{key}={value}" for key, value in chosen["options"].items())]))
