"""``deskgrid demo``: a whole grid on this machine, on real input, in a minute or two.

A broker and four workers, whose windows open and close meanwhile, compress every file of the installed standard library
with several settings. One task, longer than every window, counts the names in its source. Rule: the counts printed at
the end are the broker's own.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deskgrid.screen.drawing import counted
from deskgrid.sleepbench.compress import (
    CompressionTask,
    FileToCompress,
    Squeezed,
    affordable,
    groups,
    library,
    measure,
    sources,
    squeeze,
    standings,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from deskgrid import Bag, Grid
    from deskgrid.sleepbench.processes import Processes
    from deskgrid.wire.status import StatusDocument

# Each worker's name, and its seconds up and down. Every worker's window closes several times in a run, at times that
# drift apart. The last one has room for a piece of the long task, which ends ten seconds before the window closes.
WINDOWS = {"pc1": (9.0, 2.0), "pc2": (11.0, 2.5), "pc3": (13.0, 3.0), "pc4": (22.0, 3.0)}
# The work is chosen so that all cores together need at most this long for it. The run takes longer, because PCs are
# away now and then, and the end of each window stays empty.
WORK_S = 35.0
# The long task, on a PC of its own, and what a piece of it gets at least.
LONG_S = 20.0
PIECE_S = 4.0
# The approximate runtime of a task on a PC of its own: short enough for some hundreds of tasks.
TASK_S = 0.15
# Predictions are longer than the measurements by this factor, because the files are not those of the sample. The margin
# is larger than usual, because these PCs share one machine, which may be busy with other work: with six busy processes
# on two cores, a factor of 1.5 and the broker's usual margin of 1 s lost a task now and then.
CAUTION = 2.0
MARGIN_S = 2.0
# What no window has room for is left out: a large file, with a thorough setting, on a slow or busy machine.
LONGEST_S = max(up for up, _ in WINDOWS.values()) - MARGIN_S
# Seconds between two pictures of the grid, and between two lines if there is no terminal.
LOOK_S = 0.5
LINE_S = 5.0
# Names that are printed.
MOST_FREQUENT = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's totals; the JSON has exactly these fields. ``seconds``: from the command to its last result."""

    tasks: int
    done: int
    attempts: int
    departures: int
    planned_kills: int
    seconds: float


@click.command("demo")
@click.option(
    "--json",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the totals to this file: tasks, done, attempts, departures, planned_kills, seconds.",
)
def demo_command(file: Path | None) -> None:
    """Run a whole grid on this machine, with real work, for a minute or two.

    The demo starts a broker and four workers, whose windows open and close. They compress every file of the installed
    standard library with several settings, and the demo prints the best setting for each kind of file. Another task
    counts the names in the library's source. It takes longer than any window, so it saves checkpoints.
    """
    from rich.console import Console

    from deskgrid import DeskgridError
    from deskgrid.sleepbench.cli.common import check_writable
    from deskgrid.sleepbench.processes import ProcessError, ended_by_signals

    check_writable(file)
    console = Console()
    try:
        with ended_by_signals():
            summary, results, found = _run(console, time.monotonic())
    except (ProcessError, DeskgridError) as error:
        raise click.ClickException(str(error)) from error
    console.print(_table(standings(results)))
    console.print(*found, sep="\n", highlight=False, soft_wrap=True)
    console.print(_last_line(summary), highlight=False, soft_wrap=True)
    if file is not None:
        file.write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")


def _run(console: "Console", started: float) -> tuple[Summary, list[Squeezed], list[str]]:
    """Run it all. Returns the totals, the results of the short tasks, and what the long task found and took."""
    from deskgrid import File, Grid
    from deskgrid.sleepbench.census import archive_for, take_census
    from deskgrid.sleepbench.processes import Processes

    files, tasks = _work(console)
    with Processes(options={"margin": MARGIN_S}) as processes, Grid(processes.client_line) as grid:
        _start_workers(processes, grid)
        share = _share()
        archive = processes.folder / "library.tar"
        modules = [file.path for file in files if file.kind == "source"]
        count, seconds = archive_for(library(), modules, LONG_S, archive)
        long = grid.bag(
            take_census,
            [File(archive)],
            runtime=seconds * share * CAUTION,
            name="census",
            checkpoint=True,
            min_piece=PIECE_S,
        )
        console.print(
            f"One more task counts the names in {count:,} modules; it is predicted to take "
            f"{seconds * share * CAUTION:.0f} s, longer than any window, so it saves checkpoints",
            highlight=False,
            soft_wrap=True,
        )
        runtimes = [task.seconds * share * CAUTION for task in tasks]
        bag = grid.bag(squeeze, tasks, runtime=runtimes, name="compress")
        snapshot = _watch(console, processes, grid, bag, long)
        seconds = time.monotonic() - started
        results = list(bag.results())
        found = ["The most frequent names in its source: " + _most_frequent(long.fetch(processes.folder, item=0)[0])]
    counters = snapshot["counters"]
    if counters["pieces"]:
        found.append(f"That task was longer than a window, and went on in others: {counters['pieces'] + 1} pieces")
    return (
        Summary(
            tasks=len(tasks) + 1,
            done=counters["done"],
            attempts=counters["attempts"],
            departures=counters["departures"],
            planned_kills=counters["planned_kills"],
            seconds=round(seconds, 1),
        ),
        results,
        found,
    )


def _work(console: "Console") -> tuple[list[FileToCompress], list[CompressionTask]]:
    """The files, and the short tasks: every file with every setting that there is time for."""
    root = library()
    files = sources(root)
    if not any(file.kind == "source" for file in files):
        raise click.ClickException(f"there is no source of the standard library in {root}")
    with console.status("Measuring how fast this machine compresses"):
        costs = measure(root, files)
    cores = min(len(WINDOWS), os.cpu_count() or 1)
    settings = affordable(files, costs, WORK_S * cores)
    tasks = [task for task in groups(files, settings, costs, TASK_S) if task.seconds * _share() * CAUTION <= LONGEST_S]
    console.print(
        f"{len(files):,} files of {root} ({sum(file.size for file in files) / 1e6:.0f} MB) under {len(settings)} "
        f"settings: {len(tasks)} tasks, predicted to take {sum(task.seconds for task in tasks):.0f} s of one core",
        highlight=False,
        soft_wrap=True,
    )
    return files, tasks


def _share() -> float:
    """How many times as long a task takes while all PCs share this machine."""
    return len(WINDOWS) / min(len(WINDOWS), os.cpu_count() or 1)


def _start_workers(processes: "Processes", grid: "Grid") -> None:
    from deskgrid.sleepbench.processes import write_cycle

    for name, pair in WINDOWS.items():
        processes.start_worker(name, write_cycle(processes.folder / f"{name}.cycle", [pair]))
    processes.wait_for(lambda: len(grid.status()["workers"]) == len(WINDOWS), "the workers to join")


# --- while it works --------------------------------------------------------------------------------------------------


def _watch(console: "Console", processes: "Processes", grid: "Grid", *bags: "Bag[Any, Any]") -> "StatusDocument":
    """Show the grid until the bags have ended; return the last snapshot."""
    from deskgrid.sleepbench.processes import snapshot_of

    with _status(console) as show:
        for bag in bags:
            while not bag.wait(LOOK_S):
                processes.check()
                show(snapshot_of(grid))
    return snapshot_of(grid)


@contextmanager
def _status(console: "Console") -> "Iterator[Callable[[StatusDocument], None]]":
    """Yield a function that shows a snapshot: a live picture, or, without a terminal, a line now and then."""
    from rich.live import Live

    from deskgrid.screen.screen import render
    from deskgrid.screen.watch import takes_ascii_only

    if not console.is_terminal:
        yield _lines(console)
        return
    ascii_only = takes_ascii_only(console)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(snapshot: "StatusDocument") -> None:
            height = max(1, console.height - 1)
            live.update(render(snapshot, console.width, height, 0.0, ascii_only=ascii_only), refresh=True)

        yield show


def _lines(console: "Console") -> "Callable[[StatusDocument], None]":
    due = 0.0

    def show(snapshot: "StatusDocument") -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_S
            up = sum(worker["state"] == "up" for worker in snapshot["workers"])
            ended, total = snapshot["counters"]["done"], snapshot["counters"]["submitted"]
            console.print(
                f"{ended} of {total} tasks, {up} of {len(WINDOWS)} workers up, "
                + counted(snapshot["counters"]["departures"], "departure"),
                highlight=False,
            )

    return show


# --- at the end ------------------------------------------------------------------------------------------------------


def _table(results: dict[str, list[Squeezed]]) -> "Table":
    """A row for each kind of file: the setting with the smallest result, and the fastest one."""
    from deskgrid.sleepbench.tables import new_table

    headings = ("kind", "files", "MB", "smallest", "ratio", "MB/s", "quickest", "ratio", "MB/s")
    caption = "ratio: size before over after, file by file; MB/s: of one core"
    drawn = new_table("Which setting wins, by kind of file", headings, caption, left=(0, 3, 6))
    for kind, rows in results.items():
        smallest, quickest = rows[0], max(rows, key=lambda row: row.speed)
        size = f"{smallest.before / 1e6:.1f}"
        drawn.add_row(kind, f"{smallest.files:,}", size, *_cells(smallest), *_cells(quickest))
    return drawn


def _cells(row: Squeezed) -> tuple[str, str, str]:
    return row.setting, f"{row.ratio:.2f}", f"{row.speed:.1f}"


def _most_frequent(census: Path) -> str:
    """The first lines of the long task's result."""
    rows = [line.split() for line in census.read_text(encoding="utf-8").splitlines()[:MOST_FREQUENT]]
    return ", ".join(f"{name} ({int(count):,})" for name, count in rows)


def _last_line(summary: Summary) -> str:
    return (
        f"{summary.done} of {summary.tasks} tasks done in {summary.attempts} attempts and {summary.seconds:.0f} s, "
        f"with {counted(summary.departures, 'departure')}; tasks killed by a planned departure: {summary.planned_kills}"
    )
