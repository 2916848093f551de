"""``deskgrid keys``: manages the credentials that the broker accepts.

Rule: the secret half of a new key is made here, and printed here once. The broker never sees it.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from deskgrid.broker.auth.roles import ROLES, Role
from deskgrid.cli.base import join_option, open_link, say, table
from deskgrid.lazy_commands import LazyGroup

if TYPE_CHECKING:
    from deskgrid.client.link import Link

# How to use a new join line, by its role.
_TO_DO: dict[Role, str] = {
    "lab": "PCs can enrol with this line: run deskgrid worker --join LINE on each of them",
    "worker": "the PC {name} can join with this line: run deskgrid worker --join LINE --name {name} there",
    "submitter": "{name} can submit work with this line: export DESKGRID_JOIN=LINE",
    "admin": "{name} can administer the grid with this line: export DESKGRID_JOIN=LINE",
}


def _ask(link: "Link", what: str, **args: object) -> dict[str, Any]:
    from deskgrid.client.replies import ask

    return ask(link, what, args)


@click.group("keys", cls=LazyGroup)
def keys() -> None:
    """Manage the keys of people and PCs while the broker runs.

    Only admins can use these commands. On the broker's machine, anyone who can read its home is an admin.
    """


@keys.command()
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name")
@join_option
def add(*, role: Role, name: str, join: str | None) -> None:
    """Make a key for NAME with a role, and print its join line.

    The line is printed only once, because the broker does not keep its secret. Any number of PCs can enrol with a lab's
    line, each under its own name. The line of a worker is the key of one PC, called NAME. It works even if enrolment is
    off.
    """
    from deskgrid.wire.dealer import new_pair
    from deskgrid.wire.joinline import JoinLine, Keys, parse_address

    public, secret = new_pair()
    with open_link(join) as link:
        host, port = parse_address(_ask(link, "keys add", role=role, name=name, public=public.hex())["address"])
        server = link.join.keys
        assert server is not None  # a broker without keys has refused the request
        line = JoinLine(
            "worker" if role in ("lab", "worker") else "client", host, port, Keys(server.server, public, secret)
        )
    click.echo(line)
    click.echo(f"deskgrid: {_TO_DO[role].format(name=name)}", err=True)


@keys.command("list")
@join_option
def list_(*, join: str | None) -> None:
    """List all keys: those of PCs and people, and the lab's lines.

    CONNECTED is the number of connections. SINCE is the date when a PC enrolled.
    """
    from deskgrid.client.replies import pages

    with open_link(join) as link:
        told = list(pages(lambda after: _ask(link, "keys", after=after)))
    rows = [
        (row["name"], str(row["connected"]), _since(row["age_s"]), _role(row)) for page in told for row in page["keys"]
    ]
    for line in table([("NAME", "CONNECTED", "SINCE", "ROLE"), *rows]):
        say(line)
    enrols = "new PCs can enrol; to prevent this, run: deskgrid keys enrol off"
    if not told[-1]["enrol"]:
        enrols = "new PCs cannot enrol; to allow this, run: deskgrid keys enrol on"
    click.echo(f"deskgrid: {enrols}", err=True)


def _since(age_s: float | None) -> str:
    if age_s is None:
        return "-"
    return (datetime.now().astimezone() - timedelta(seconds=age_s)).strftime("%Y-%m-%d")


def _role(row: dict[str, Any]) -> str:
    return f"{row['role']}, revoked" if row["revoked"] else str(row["role"])


@keys.command()
@click.argument("name")
@join_option
def revoke(*, name: str, join: str | None) -> None:
    """Revoke the key of NAME.

    Its connections are closed at once, and it cannot connect again. Its bags stay, and an admin can manage them. The
    tasks of a PC go to other PCs. The name of the PC stays taken, so that it cannot enrol again; to free the name, use
    forget.

    If you revoke one of the broker's three original keys (worker, client, admin), a new one replaces it, and its line
    is in the broker's home. The key worker is the lab's line; PCs that have enrolled are not affected.
    """
    with open_link(join) as link:
        told = _ask(link, "keys revoke", name=name)
    new = f"; the new line is in {told['line_in']} on the broker's machine" if told["line_in"] else ""
    say(f"revoked {name}; connections closed: {told['connected']}{new}")


@keys.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@join_option
def forget(*, names: tuple[str, ...], join: str | None) -> None:
    """Forget PCs, so that others can enrol under their names.

    The old keys no longer work. Use this for a PC that was reinstalled or replaced, or whose worker now runs under
    another account.
    """
    with open_link(join) as link:
        for name in names:
            told = _ask(link, "keys forget", name=name)
            say(f"forgot {name}; connections closed: {told['connected']}")


@keys.command()
@click.argument("state", type=click.Choice(("on", "off")))
@join_option
def enrol(*, state: str, join: str | None) -> None:
    """Turn the enrolment of new PCs on or off.

    PCs that have enrolled are not affected. The setting survives a restart of the broker.
    """
    with open_link(join) as link:
        _ask(link, "keys enrol", on=state == "on")
    say(f"enrolment is {state}")
