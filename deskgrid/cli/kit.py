"""``deskgrid kit``: what PCs without internet need to install deskgrid, in one file."""

import re
from pathlib import Path

import click

from deskgrid.cli.base import expanded, say
from deskgrid.option_types import Refusal

# The versions of Python that rooms have.
PYTHONS = "3.11,3.12,3.13,3.14"


@click.command()
@click.option(
    "--platform",
    type=click.Choice(("linux", "windows", "both")),
    default="both",
    show_default=True,
    help="For which PCs, with 64-bit processors of Intel or AMD.",
)
@click.option(
    "--python",
    "pythons",
    default=PYTHONS,
    show_default=True,
    metavar="VERSION,...",
    help="For which versions of Python.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="lab.zip",
    show_default=True,
    help="The file to write.",
)
def kit(*, platform: str, pythons: str, out: Path) -> None:
    """Write one file with which PCs without internet install deskgrid, or update it.

    It has the wheels of this deskgrid and of all that it needs, scripts that install them and the worker's service, and
    a playbook for Ansible. This machine needs pip, and internet or an index of packages. There is no key in the file:
    give the lab's line to the script. On a PC with Linux, unpack the file, and run as root:

    \b
      sh deskgrid-kit/install.sh --join lab.join
    """
    from deskgrid.kit.make import KitError, Platform, make_kit

    versions = [each.strip() for each in pythons.split(",") if each.strip()]
    if wrong := [each for each in versions if not re.fullmatch(r"3\.\d{1,3}", each)]:
        raise click.UsageError(f"{wrong[0]!r} is not a version such as 3.12", click.get_current_context())
    if not versions:
        raise click.UsageError("--python needs a version such as 3.12", click.get_current_context())
    if old := [each for each in versions if int(each.removeprefix("3.")) < 11]:
        raise Refusal(f"deskgrid needs Python 3.11 or later, not {old[0]}")
    platforms: dict[str, tuple[Platform, ...]] = {
        "linux": ("linux",),
        "windows": ("windows",),
        "both": ("linux", "windows"),
    }
    try:
        make_kit(platforms[platform], versions, expanded(out), lambda line: say(f"deskgrid: {line}", err=True))
    except KitError as error:
        raise Refusal(str(error)) from error
    say(f"wrote {out}")
