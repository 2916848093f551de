"""Types of values on the command line, and the refusal of a command: for all commands, those of sleepbench included."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from deskgrid.durations import read_duration
from deskgrid.wire import SECONDS_LIMIT


class Refusal(click.ClickException):
    """The command cannot be carried out; the message says why in one line."""

    exit_code = 2


class Folder(click.Path):
    """A folder, whose name must not be empty: an empty name would mean the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the folder that ``value`` names; a usage error if the name is empty."""
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class Whole(click.IntRange):
    """A whole number in a range; errors call it that, and not an integer."""

    name = "whole number"


class Seconds(click.ParamType[float]):
    """A finite number of seconds, or a duration with units, at least 0; ``positive``: more than 0."""

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds in ``value``; a usage error if it is not a duration in the range."""
        try:
            seconds = read_duration(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= SECONDS_LIMIT or (self._positive and not seconds):
            least = "more than 0" if self._positive else "0 or more"
            self.fail(
                f"{value!r} is not a number of seconds, {least}, nor a duration like 20min or 1h30min", param, ctx
            )
        return seconds


def key_values(ctx: click.Context, param: click.Parameter, words: Iterable[str]) -> dict[str, object]:
    """Parse ``KEY=VALUE`` words. Values are numbers, true and false in JSON's notation; anything else is text."""
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
