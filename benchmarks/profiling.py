"""Where a task's microseconds go: ``python -m benchmarks.profiling``, or ``make profile``.

A grid of two workers runs no-op calls, in each of three forms. The kernel tells how much processor time each process
used meanwhile, by thread: Python's main thread, ZeroMQ's threads (which encrypt), and the others. With ``--calls`` each
process also records its calls, which makes it several times slower, and tables of the most expensive functions follow.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from benchmarks.calls import call_tables
from benchmarks.catalogue import ENVIRONMENTS, environment
from benchmarks.environments.deskgrid import Deskgrid
from benchmarks.proc import Used, used, used_below
from benchmarks.tasks import noop

US = 1e6
WORKERS = 2
# Calls before the measurement begins, so that modules are loaded and processes are started.
WARM_UP = 500
ROLES = ("client", "broker", "worker agents", "task processes")

# The ways to submit calls, and the fraction of the tasks with which each is measured.
FORMS: Mapping[str, tuple[Callable[[Deskgrid, int], object], float]] = {
    "one bag": (lambda grid, count: grid.gather_bag(grid.submit_bag(noop, range(count))), 1.0),
    "one submit each": (lambda grid, count: grid.gather(grid.submit(noop, range(count))), 0.1),
    "one at a time": (lambda grid, count: [grid.one(noop, item) for item in range(count)], 0.01),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of ``tasks`` tasks: wall-clock seconds, and processor time by role."""

    form: str
    tasks: int
    seconds: float
    by_role: Mapping[str, Used]


def roles(grid: Deskgrid) -> dict[str, Used]:
    """What the processes of each role have used. A process for tasks ends with its bag."""
    agents = grid.workers()
    alone = [_used([os.getpid()]), _used(grid.schedulers()), _used(agents)]
    return dict(zip(ROLES, [*alone, sum(map(used_below, agents), Used())], strict=True))


def spend(grid: Deskgrid, form: str, tasks: int) -> Spent:
    """Run calls in that form (its fraction of ``tasks``), and measure them."""
    work, part = FORMS[form]
    count, before = max(1, int(tasks * part)), roles(grid)
    began = time.perf_counter()
    work(grid, count)
    seconds = time.perf_counter() - began
    after = roles(grid)
    return Spent(form, count, seconds, {role: after[role] - before[role] for role in ROLES})


def _used(pids: list[int]) -> Used:
    return sum((used(pid) for pid in pids), Used())


def table_of(found: Spent) -> Table:
    """Microseconds for each task, by role and thread."""
    title = f"{found.form}: {found.tasks:,} tasks, {found.tasks / found.seconds:,.0f} a second"
    table = Table("us of a core per task", "main thread", "ZeroMQ's", "others", "together", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for role, spent in [*found.by_role.items(), ("all", sum(found.by_role.values(), Used()))]:
        parts = (spent.main, spent.zmq, spent.others, spent.total)
        table.add_row(role, *[f"{seconds * US / found.tasks:.1f}" for seconds in parts])
    table.add_row("on the clock", "", "", "", f"{found.seconds * US / found.tasks:.1f}")
    return table


@contextmanager
def running(key: str) -> Iterator[Deskgrid]:
    """A grid that has done its first tasks."""
    grid = environment(key)
    assert isinstance(grid, Deskgrid)
    try:
        grid.start(WORKERS)
        grid.gather_bag(grid.submit_bag(noop, range(WARM_UP)))
        yield grid
    finally:
        grid.stop()


@click.command()
@click.option(
    "--tasks", default=100_000, show_default=True, help="In one bag; a tenth one by one, a hundredth in turn."
)
@click.option("--form", "forms", type=click.Choice(tuple(FORMS)), multiple=True, help="Only this; may be repeated.")
@click.option(
    "--on", type=click.Choice([key for key in ENVIRONMENTS if key.startswith("deskgrid")]), default="deskgrid"
)
@click.option("--calls", is_flag=True, help="Also which functions it is, by cProfile in every process.")
@click.option("--lines", default=25, show_default=True, help="Functions in each table of calls.")
def main(*, tasks: int, forms: tuple[str, ...], on: str, calls: bool, lines: int) -> None:
    """Where a task's microseconds go."""
    console = Console()
    chosen = forms or tuple(FORMS)
    with running(on) as grid:
        for form in chosen:
            console.print(table_of(spend(grid, form, tasks)))
    for form in chosen if calls else ():
        console.rule(f"calls: {form}")
        for table in call_tables("benchmarks.profiling", ["--tasks", str(tasks), "--form", form, "--on", on], lines):
            console.print(table)


if __name__ == "__main__":
    main()
