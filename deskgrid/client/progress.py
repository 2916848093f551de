"""A progress bar on stderr for calls that take long; shows nothing if stderr is not a terminal."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deskgrid.client.eta import when_done
from deskgrid.errors import DeskgridError, GridUnreachable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

# Calls that are shorter than this show no bar. Seconds.
SHOW_AFTER_S = 1.0
# Seconds between two questions to the broker about the progress.
LOOK_EVERY_S = 2.0
# The part of the terminal's columns that the name of the bag may have.
NAME_PART = 6
# What the bar says while the broker does not answer.
AWAY = "broker away, retrying"
# Columns for the bar, if the text after it can be shorter; and for the time, with its "after" and all blanks.
BAR_COLUMNS, TIME_COLUMNS = 10, 17


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a bag, in tasks.

    ``left_s``: predicted seconds of work left. ``eta_s``: seconds until the bag should be done; with a confidence of
    0.9, it takes from ``eta_low_s`` to ``eta_high_s``; None: unknown. `Bag.eta` says why.
    """

    total: int
    done: int
    failed: int
    cancelled: int
    running: int
    waiting: int
    eta_s: float | None
    left_s: float
    eta_low_s: float | None = None
    eta_high_s: float | None = None

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Progress":
        """Make it from a bag's row of the status document."""
        return cls(**{name: row[name] for name in cls.__slots__})


class Meter:
    """The bar of one call. ``look`` asks the broker for the bag's progress."""

    def __init__(self, title: str, look: Callable[[], Progress]) -> None:
        self._title = title
        self._look = look
        self._wanted = sys.stderr is not None and sys.stderr.isatty()
        self._look_at = time.monotonic() + SHOW_AFTER_S
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        self._ended = 0

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            if exception[0] is None:
                with suppress(DeskgridError):
                    self._show(self._look())  # the final state
            self._bar.stop()
            self._bar = None

    def tick(self) -> None:
        """Show or update the bar if it is due; call this often."""
        now = time.monotonic()
        if self._wanted and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            with suppress(DeskgridError):  # no call ends because of its bar
                self._look_again()

    def has_ended(self, tasks: int) -> None:
        """Show at once that so many tasks have ended, which the call knows sooner than it asks."""
        if tasks > self._ended:
            self._ended = tasks
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=tasks)

    def _look_again(self) -> None:
        try:
            self._show(self._look())
        except GridUnreachable:
            bar, task = self._made()
            bar.update(task, status=AWAY)
            bar.start()

    def _show(self, progress: Progress) -> None:
        settled = max(self._ended, progress.done + progress.failed + progress.cancelled)
        bar, task = self._made()
        counts, width = len(f"{progress.total}/{progress.total}"), bar.console.width
        taken = min(len(self._title), width // NAME_PART) + BAR_COLUMNS + counts + TIME_COLUMNS
        bar.update(task, completed=settled, total=progress.total, status=_status(progress, width - taken))
        bar.start()  # does nothing the second time

    def _made(self) -> "tuple[RichProgress, TaskID]":
        """Return the bar and its only task, which the first call makes."""
        if self._bar is None or self._task is None:
            self._bar = _new_bar()
            self._task = self._bar.add_task(self._title, total=None, status="")
        return self._bar, self._task


def _status(progress: Progress, columns: int) -> str:
    """Return the text after the bar; in a narrow terminal, without when the bag is done at the latest."""
    parts = [f"{progress.running} running"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.eta_s is not None:
        parts.append(when_done(progress.eta_s, progress.eta_high_s, datetime.now().astimezone()))
    whole = ", ".join(parts)
    return whole if len(whole) <= columns or progress.eta_s is None else whole.rpartition(", ")[0]


def _new_bar() -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # Only the bar shrinks in a narrow terminal: rich first cuts the columns that may be wrapped.
    console = Console(stderr=True)
    name = Column(no_wrap=True, max_width=console.width // NAME_PART)
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("after"),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
        # Output that the program prints to the terminal goes above the bar.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )
