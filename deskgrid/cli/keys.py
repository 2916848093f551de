"""``deskgrid keys``: manages the credentials that the broker accepts.

Rule: the secret half of a new key is made here, and printed here once. The broker never sees it.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from deskgrid.broker.auth.roles import ROLES, Role
from deskgrid.cli.base import join_option, open_link, say, table

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


@click.group("keys")
def keys() -> None:
    """Let people and PCs in, each with a key of their own, and keep them out again, while the broker runs.

    Only admins can use these commands. On the broker's machine, anyone who can read its home is an admin.
    """


@keys.command()
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name")
@join_option
def add(*, role: Role, name: str, join: str | None) -> None:
    """Let NAME in with a role, and print its join line.

    The line is shown only once: nobody keeps its secret. Any number of PCs can enrol with a lab's line, each under
    a name of its own. The line of a worker is the key of one PC, called NAME; it works even while enrolment is off.
    """
    from deskgrid.wire.joinline import JoinLine, Keys, parse_address
    from deskgrid.wire.key_pair import new_pair

    public, secret = new_pair()
    with open_link(join, admin=True) as link:
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
    """List who is let in.

    These are PCs, the lines with which they enrol, and people, each with the number of its connections. SINCE is the
    date when a PC was enrolled.
    """
    from deskgrid.client.replies import pages

    with open_link(join, admin=True) as link:
        told = list(pages(lambda after: _ask(link, "keys", after=after)))
    rows = [
        (row["name"], str(row["connected"]), _since(row["age_s"]), _role(row)) for page in told for row in page["keys"]
    ]
    for line in table([("NAME", "CONNECTED", "SINCE", "ROLE"), *rows]):
        say(line)
    enrols = "new PCs can enrol; to stop that, run: deskgrid keys enrol off"
    if not told[-1]["enrol"]:
        enrols = "new PCs cannot enrol; to let them, run: deskgrid keys enrol on"
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
    """Keep NAME out.

    Its connections are cut at once, and there will be no new ones. Its bags stay, and an admin can follow them; what a
    PC was running is given to other PCs. The name of a PC stays taken, so that the PC cannot enrol again by itself; see
    forget. When you revoke one of the three keys that a broker starts with (worker, which is the lab's line, client,
    admin), a new one replaces it, and its line is in the broker's home. PCs that have enrolled are not affected.
    """
    with open_link(join, admin=True) as link:
        told = _ask(link, "keys revoke", name=name)
    new = f"; the new line is in {told['line_in']} on the broker's machine" if told["line_in"] else ""
    say(f"revoked {name}; connections cut: {told['connected']}{new}")


@keys.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@join_option
def forget(*, names: tuple[str, ...], join: str | None) -> None:
    """Forget PCs, and free their names for others.

    Their keys no longer work, and other PCs can enrol under their names. Use it for a PC that was reinstalled, was
    replaced, or runs its worker under another user's account now.
    """
    with open_link(join, admin=True) as link:
        for name in names:
            told = _ask(link, "keys forget", name=name)
            say(f"forgot {name}; connections cut: {told['connected']}")


@keys.command()
@click.argument("state", type=click.Choice(("on", "off")))
@join_option
def enrol(*, state: str, join: str | None) -> None:
    """Turn enrolment on or off. PCs that have enrolled are not affected.

    The setting stays when the broker is restarted.
    """
    with open_link(join, admin=True) as link:
        _ask(link, "keys enrol", on=state == "on")
    say(f"enrolment is {state}")
