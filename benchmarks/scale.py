"""The cost of a task by number of tasks and of slots: ``python -m benchmarks.scale``, or ``make bench-scale``.

Tasks: a real grid on this machine runs bags of no-op calls, from a thousand to a million. Slots, from ten to ten
thousand: a real broker with fake workers, which report at once that all work is done; and the scheduler by itself.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from benchmarks.environments.deskgrid import Deskgrid
from benchmarks.fakes import FakeWorkers
from benchmarks.machine import machine
from benchmarks.proc import used
from benchmarks.scheduling import Loaded
from benchmarks.tasks import noop
from deskgrid import Grid
from deskgrid.sleepbench.pictures.style import SPARE, WIDTH, drawing, new_figure, save
from deskgrid.sleepbench.processes import Processes

US = 1e6
WORKERS = 8
WARM_UP = 500
# The number of fake workers, which share the slots; the tasks in the bag that they get.
FAKES = 100
FAKE_TASKS = 20_000
# For the scheduler by itself: waiting tasks, passes, and tasks that end before each pass.
WAITING = 100_000
PASSES = 100
BATCH = 100
POLICIES = ("packing", "pgs")


@dataclass(frozen=True, slots=True)
class Point:
    """Microseconds per task, with ``at`` tasks or slots."""

    axis: str
    what: str
    at: int
    us: float


def by_tasks(most: int) -> Iterator[Point]:
    """A real grid: wall-clock time, and processor time of the broker."""
    grid = Deskgrid()
    try:
        grid.start(WORKERS)
        grid.gather_bag(grid.submit_bag(noop, range(WARM_UP)))
        for count in _decades(1_000, most):
            broker = grid.schedulers()[0]
            before, began = used(broker), time.perf_counter()
            grid.gather_bag(grid.submit_bag(noop, range(count)))
            seconds, spent = time.perf_counter() - began, used(broker) - before
            yield Point("tasks", f"on the clock, {WORKERS} slots", count, US * seconds / count)
            yield Point("tasks", "broker, of a core", count, US * spent.total / count)
    finally:
        grid.stop()


def by_slots(most: int) -> Iterator[Point]:
    """A real broker with fake workers; the scheduler by itself."""
    for slots in _decades(10, most):
        yield Point("slots", "broker with fake workers, of a core", slots, _faked(slots))
        for policy in POLICIES:
            found = Loaded(policy, slots, WAITING).passes(PASSES, min(BATCH, slots))
            yield Point("slots", f"a decision of {policy} by itself", slots, found.decision_us)


def _faked(slots: int) -> float:
    """The broker's microseconds of processor time for each task of a bag."""
    count = min(slots, FAKES)
    with Processes(more=["--durability", "process"]) as processes, Grid(processes.client_line) as grid:
        broker = processes.pid("broker")
        with FakeWorkers(processes.home, count, slots // count) as workers:
            before = used(broker)
            grid.bag(noop, range(FAKE_TASKS))
            while workers.finished < FAKE_TASKS:
                workers.turn(0.1)
            return US * (used(broker) - before).total / FAKE_TASKS


def _decades(least: int, most: int) -> Iterator[int]:
    while least <= most:
        yield least
        least *= 10


# --- what is shown ---------------------------------------------------------------------------------------------------


def medians(points: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[int, float]]:
    """The median of all runs at each number of tasks or slots, by axis and name."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for point in points:
        found.setdefault((point["axis"], point["what"]), {}).setdefault(point["at"], []).append(point["us"])
    return {key: {at: median(us) for at, us in curve.items()} for key, curve in found.items()}


def table(result: Mapping[str, Any]) -> Table:
    """A row for each point."""
    shown = Table("axis", "what", "at", "us a task", title="cost of a task", title_justify="left")
    for (axis, what), curve in medians(result["points"]).items():
        for at, us in curve.items():
            shown.add_row(axis, what, f"{at:,}", f"{us:.1f}")
    return shown


def draw(result: Mapping[str, Any], file: Path) -> None:
    """Draw two panels. A flat curve means that the cost does not depend on the number."""
    curves = medians(result["points"])
    with drawing():
        figure = new_figure(2.8, WIDTH)
        for axis, name in zip(figure.subplots(1, 2, sharey=True), ("tasks", "slots"), strict=True):
            _panel(axis, name, {what: curve for (which, what), curve in curves.items() if which == name})
    save(figure, file)


def _panel(axis: Axes, name: str, curves: Mapping[str, Mapping[int, float]]) -> None:
    for (what, curve), (colour, marker) in zip(curves.items(), SPARE, strict=False):
        axis.plot(list(curve), list(curve.values()), color=colour, marker=marker, markersize=4, linewidth=1, label=what)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0.0)
    axis.grid()
    axis.set_xlabel(name)
    axis.set_ylabel("microseconds a task")
    axis.legend(loc="best")


@click.command()
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--tasks", default=1_000_000, show_default=True, help="The most of them.")
@click.option("--slots", default=10_000, show_default=True, help="The most of them.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder for scale.json and scale.svg.")
def main(*, runs: int, tasks: int, slots: int, out: Path | None) -> None:
    """Measure the cost of a task with more and more tasks, and with more and more slots."""
    told = Console(stderr=True)
    points: list[Point] = []
    about = machine()
    for run in range(1, runs + 1):
        for measured in _all(tasks, slots):
            for point in measured():
                told.print(f"run {run} of {runs}: {point}", style="dim", highlight=False)
                points.append(point)
    result = {
        "machine": about,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "runs": runs,
        "points": [asdict(point) for point in points],
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "scale.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        draw(result, out / "scale.svg")
    Console().print(table(result))


def _all(tasks: int, slots: int) -> Sequence[Callable[[], Iterator[Point]]]:
    return (lambda: by_tasks(tasks), lambda: by_slots(slots))


if __name__ == "__main__":
    main()
