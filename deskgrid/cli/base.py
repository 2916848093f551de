"""What the commands share: refusals, kinds of values, and the way to the broker."""

import json
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deskgrid.wire import SECONDS_LIMIT, clean, clean_lines

if TYPE_CHECKING:
    from deskgrid.client.grid import Grid
    from deskgrid.client.link import Link


class Refusal(click.ClickException):
    """What was asked for cannot be; one line that says why."""

    exit_code = 2


def default_home() -> Path:
    """Where this machine's broker keeps its state unless it is told otherwise."""
    return Path(os.environ.get("DESKGRID_HOME") or Path.home() / ".deskgrid")


class Folder(click.Path):
    """A folder, by a name that is not empty: an empty name would mean the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The folder that ``value`` names; a usage error if it names none."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.ParamType[float]):
    """A finite number of seconds, from 0 or more than 0."""

    name = "seconds"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number in ``value``; a usage error if it is not such a number."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= SECONDS_LIMIT or (self._positive and not seconds):
            least = "more than 0" if self._positive else "0 or more"
            self.fail(f"{value!r} is not a number of seconds, {least}", param, ctx)
        return seconds


def key_values(ctx: click.Context, param: click.Parameter, words: Iterable[str]) -> dict[str, object]:
    """``KEY=VALUE`` words as a dictionary; numbers, true and false as JSON writes them, anything else is text."""
    found: dict[str, object] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{word!r} is not KEY=VALUE", ctx=ctx, param=param)
        found[key] = _scalar(text)
    return found


def _scalar(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    plain = isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else text


def say(text: str, *, err: bool = False) -> None:
    """Print one line of ours; names in it come from other machines."""
    click.echo(clean(text), err=err)


def show(text: str, *, err: bool = False) -> None:
    """Print what a task wrote or returned: to a terminal clean, to a file or a pipe as it is."""
    stream = sys.stderr if err else sys.stdout
    # Colours: without this, click takes out what it knows of escape sequences.
    # By the stream as it is now: a progress bar that stands there moves out of the way.
    click.echo(clean_lines(text) if stream.isatty() else text, file=stream, nl=not text.endswith("\n"), color=True)


join_option = click.option(
    "--join",
    metavar="LINE",
    help="The join line for clients, or @FILE that holds it [default: $DESKGRID_JOIN, else this machine's broker].",
)


@contextmanager
def open_grid(join: str | None, *, admin: bool = False) -> Iterator["Grid"]:
    """The grid of ``join``, else the one that `Grid` finds by itself."""
    from deskgrid.client.discovery import admin_line
    from deskgrid.client.grid import Grid

    with _refusals(), Grid(str(admin_line(join)) if admin else join) as grid:
        yield grid


@contextmanager
def open_admin_link(join: str | None) -> Iterator["Link"]:
    """An admin's connection, for what a `Grid` cannot be asked."""
    from deskgrid.client.discovery import admin_line
    from deskgrid.client.link import Link

    with _refusals(), closing(Link(admin_line(join))) as link:
        link.open()
        yield link


@contextmanager
def _refusals() -> Iterator[None]:
    """Errors of a client become refusals."""
    from deskgrid.errors import DeskgridError

    try:
        with _told("deskgrid.client"):
            yield
    except DeskgridError as error:
        raise Refusal(str(error)) from error


def table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """The rows as lines; every column as wide as it has to be, all but the first and the last to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *middle, last in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(middle, widths[1:-1], strict=True))]
        yield "  ".join([*cells, last]).rstrip()


@contextmanager
def _told(name: str) -> Iterator[None]:
    """What the logger warns of (a broker that is away, a note to a bag) is told on stderr, like all we have to say."""
    log = logging.getLogger(name)
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("deskgrid: %(message)s"))
    propagated, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagated
