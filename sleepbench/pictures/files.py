"""The options that name a picture file: an impossible one is refused before anything is run."""

from importlib.util import find_spec
from pathlib import Path

import click

# The file formats: vector graphics and pixels.
KINDS = (".svg", ".png", ".pdf")
NO_MATPLOTLIB = "pictures need matplotlib: pip install matplotlib"


def picture_file(_: click.Context, option: click.Parameter, file: Path | None) -> Path | None:
    """The callback of these options: returns the path if a picture can be written there."""
    if file is not None and (refusal := refused(file)):
        raise click.BadParameter(refusal, param=option)
    return file


def refused(file: Path) -> str | None:
    """Why no picture can be written to ``file``; None if one can."""
    if file.suffix.lower() not in KINDS:
        return f"the name of a picture has to end in {', '.join(KINDS[:-1])} or {KINDS[-1]}: {file.name} does not"
    if not file.absolute().parent.is_dir():
        return f"there is no folder {file.absolute().parent}"
    return NO_MATPLOTLIB if find_spec("matplotlib") is None else None
