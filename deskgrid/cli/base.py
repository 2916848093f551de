"""Code that the commands share: what they print, and connections to the broker."""

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deskgrid.homes import NoHome, deskgrid_home
from deskgrid.option_types import Refusal
from deskgrid.wire import clean, clean_lines

if TYPE_CHECKING:
    from deskgrid.client.bag import Bag
    from deskgrid.client.grid import Grid
    from deskgrid.client.link import Link


# What stands for the newest bag.
LAST = "last"


def default_home() -> Path:
    """Return the folder where this machine's broker keeps its state by default. Raises `Refusal`."""
    try:
        return deskgrid_home()
    except NoHome as error:
        raise Refusal(f"{error}: set HOME, or DESKGRID_HOME") from error


def expanded(path: Path) -> Path:
    """Return ``path`` with the home folder that ~ stands for. Raises `Refusal` if there is none."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise Refusal(f"{path}: there is no such home folder") from error


def is_loopback(host: str) -> bool:
    """Whether ``host`` is an address of this machine that only this machine can reach."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def say(text: str, *, err: bool = False) -> None:
    """Print one line of ours, cleaned because names in it come from other machines."""
    click.echo(clean(text), err=err)


def show(text: str, *, err: bool = False) -> None:
    """Print a result or an error of a function: cleaned on a terminal, unchanged to a file or a pipe."""
    _echo(text if text.endswith("\n") else f"{text}\n", "backslashreplace", err=err)


def show_output(text: str, *, err: bool = False, goes_on: bool = False) -> None:
    """Print what a task printed: to a file or a pipe the very bytes, whatever the encoding; cleaned on a terminal.

    Unless it ``goes_on``, its last line is ended on a terminal, and on stderr, where the next may be ours.
    """
    ends = goes_on or text.endswith("\n") or not (err or sys.stdout.isatty())
    _echo(text if ends else f"{text}\n", "surrogateescape", err=err)


def _echo(text: str, errors: str, *, err: bool) -> None:
    # `color`: without it, click removes escape sequences.
    # `file`: the current stream, which a progress bar may have replaced in order to move out of the way.
    stream = sys.stderr if err else sys.stdout
    if stream.isatty() or not hasattr(stream, "buffer"):
        click.echo(clean_lines(text) if stream.isatty() else text, file=stream, nl=False, color=True)
    else:
        click.echo(text.encode("utf-8", errors), file=stream, nl=False)


join_option = click.option(
    "--join",
    metavar="LINE",
    help="The join line for people, or @FILE that contains it [default: $DESKGRID_JOIN, or this machine's broker].",
)


@contextmanager
def when_interrupted(said: str) -> Iterator[None]:
    """After Ctrl-C, have `deskgrid.cli.front` say what was stopped, and what was not."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        stopped.args = stopped.args or (said,)
        raise


@contextmanager
def open_grid(join: str | None, *, submits: bool = False) -> Iterator["Grid"]:
    """Open the grid of ``join`` or, without it, the grid that `Grid` finds by itself.

    Whoever can read the home of this machine's broker is its admin, unless the command ``submits``.
    """
    from deskgrid.client.discovery import admin_line
    from deskgrid.client.grid import Grid

    with _refusals(), Grid(join if submits else str(admin_line(join))) as grid:
        yield grid


@contextmanager
def open_link(join: str | None) -> Iterator["Link"]:
    """Open a connection, as `open_grid` does, for questions that `Grid` has no method for."""
    from deskgrid.client.discovery import admin_line
    from deskgrid.client.link import Link

    with _refusals(), closing(Link(admin_line(join))) as link:
        link.open()
        yield link


def attached(grid: "Grid", bag: str) -> "Bag[Any, Any]":
    """Attach to the bag with this id, or to the newest of yours with this name; `LAST`: to the newest of all.

    It says on stderr which one a name means. Raises `RequestFailed`.
    """
    from deskgrid.errors import RequestFailed

    try:
        return grid.attach(bag)
    except RequestFailed:
        rows = grid.bags(mine=True) or grid.bags()  # admins seldom have any
        same = [row["bag"] for row in rows if bag in (LAST, row["name"])]
        if not same:
            raise
        others = f", the newest of {len(same)} with this name" if len(same) > 1 and bag != LAST else ""
        say(f"deskgrid: {bag} is bag {same[-1]}{others}", err=True)
        return grid.attach(same[-1])


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the client's errors into refusals."""
    from deskgrid.errors import DeskgridError

    try:
        with _told("deskgrid.client"):
            yield
    except DeskgridError as error:
        raise Refusal(str(error)) from error


def table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Format rows as lines. Columns are as wide as necessary; all but the first and the last are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *middle, last in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True))]
        yield "  ".join([*cells, last]).rstrip()


class _Lines(logging.Handler):
    """Prints each record of a logger as one of our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"deskgrid: {record.getMessage()}", err=True)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Print the logger's warnings (the broker is away, a bag has a note) to stderr in the style of our other lines."""
    log = logging.getLogger(name)
    handler = _Lines(logging.WARNING)
    propagated, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagated
