"""``deskgrid env``: the environments that bags at the broker use."""

from typing import TYPE_CHECKING

import click

from deskgrid.cli.base import join_option, open_link, say, table
from deskgrid.lazy_commands import LazyGroup
from deskgrid.wire import clean

if TYPE_CHECKING:
    from deskgrid.client.environments.kept import KeptEnvironment


@click.group(name="env", cls=LazyGroup)
def env() -> None:
    """List and delete environments: the libraries that bags bring.

    A bag gets an environment with deskgrid submit --env or --with, or with env=... in Python.
    """


@env.command(name="list")
@join_option
def list_environments(*, join: str | None) -> None:
    """List the environments that bags use, newest first."""
    from deskgrid.client.environments.kept import environments

    with open_link(join) as link:
        found = environments(link)
    for line in table([("ENVIRONMENT", "OWNER", "SIZE", "BAGS", "RUNS ON", "ASKED FOR"), *map(_cells, found)]):
        say(line)


def _cells(kept: "KeptEnvironment") -> tuple[str, ...]:
    systems = ", ".join(dict.fromkeys(f"{build.system.python} {build.system.platform}" for build in kept.builds))
    return (kept.id, clean(kept.owner), _megabytes(kept.size), f"{kept.count}", clean(systems), clean(kept.label))


@env.command(short_help="Show the wheels of an environment, and the bags that use it.")
@click.argument("name", metavar="ENVIRONMENT")
@join_option
def show(*, name: str, join: str | None) -> None:
    """Show the wheels of ENVIRONMENT for each kind of PC, and the bags that use it."""
    from deskgrid.client.environments.kept import find, wheels

    with open_link(join) as link:
        kept = find(link, name)
        say(f"{kept.id}: {kept.label}")
        for build in kept.builds:
            say(f"{build.system}: {_megabytes(build.size)}, {_megabytes(build.unpacked)} unpacked")
            for wheel in wheels(link, kept, build):
                say(f"  {wheel.path}  {_megabytes(wheel.size)}")
    say(f"used by {', '.join(kept.bags)}{' and others' if kept.count > len(kept.bags) else ''}")


@env.command()
@click.argument("names", metavar="ENVIRONMENT...", nargs=-1, required=True)
@join_option
def forget(*, names: tuple[str, ...], join: str | None) -> None:
    """Delete each ENVIRONMENT, on this machine and at the broker.

    All bags that use it must have ended; they keep their results. The next bag that asks for the same environment
    resolves it again.
    """
    from deskgrid.client.environments.kept import find
    from deskgrid.client.environments.kept import forget as forget_kept

    with open_link(join) as link:
        for kept in [find(link, name) for name in names]:
            say(f"forgot {kept.id} ({kept.label}): {_megabytes(forget_kept(link, kept))} less at the broker")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
