"""The options that name a picture: what cannot be drawn is refused before anything is run for it."""

from importlib.util import find_spec
from pathlib import Path

import click

# What matplotlib draws well into: text and lines, or dots.
KINDS = (".svg", ".png", ".pdf")
NO_MATPLOTLIB = 'pictures need matplotlib: pip install "deskgrid[plot]"'


def picture_file(_: click.Context, option: click.Parameter, file: Path | None) -> Path | None:
    """The callback of such an option: the path, if a picture can be written there."""
    if file is not None and (refusal := refused(file)):
        raise click.BadParameter(refusal, param=option)
    return file


def refused(file: Path) -> str | None:
    """Why no picture can be written to ``file``; None when one can."""
    if file.suffix.lower() not in KINDS:
        return f"the name of a picture ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}, not as {file.name}"
    if not file.absolute().parent.is_dir():
        return f"there is no folder {file.absolute().parent}"
    return NO_MATPLOTLIB if find_spec("matplotlib") is None else None
