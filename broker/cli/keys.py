"""``deskgrid keys``: who is let in.

Rule: the secret half of a new key is made here, and printed here once. The broker never sees it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from broker.cli.base import Refusal, join_option, say, table
from broker.roles import ROLES, Role

if TYPE_CHECKING:
    from broker.client.link import Link
    from broker.joinline import JoinLine

# How long connecting may take. Seconds.
OPENING_S = 5.0
_TO_PASTE = {"worker": "deskgrid worker --join LINE", "client": "export DESKGRID_JOIN=LINE"}


@dataclass(frozen=True, slots=True)
class _Admin:
    """A connection to a broker, by ``line``."""

    line: "JoinLine"
    link: "Link"

    def ask(self, what: str, **args: str | None) -> dict[str, Any]:
        from broker.client.replies import ask

        return ask(self.link, what, args)


@contextmanager
def _admin(join: str | None) -> Iterator[_Admin]:
    from broker.client.errors import DeskgridError
    from broker.client.finding import admin_line
    from broker.client.link import Link

    try:
        line = admin_line(join)
        link = Link(line)
        try:
            link.open(OPENING_S)
            yield _Admin(line, link)
        finally:
            link.close()
    except DeskgridError as error:
        raise Refusal(str(error)) from error


@click.group("keys")
def keys() -> None:
    """Let people and PCs in, each by a key of their own, and keep them out again, while the broker runs.

    For admins: on the broker's machine whoever can read its home is one.
    """


@keys.command()
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name")
@join_option
def add(*, role: Role, name: str, join: str | None) -> None:
    """Let NAME in as a worker, a submitter or an admin, and print the join line for it.

    The line is shown this once: of its secret nothing is kept. One line may be used on many PCs.
    """
    from broker.joinline import JoinLine, Keys, parse_address
    from broker.keys import new_pair

    public, secret = new_pair()
    with _admin(join) as admin:
        host, port = parse_address(admin.ask("keys add", role=role, name=name, public=public.hex())["address"])
        server = admin.line.keys
        assert server is not None  # a broker without keys has none to add, and has said so
        line = JoinLine("worker" if role == "worker" else "client", host, port, Keys(server.server, public, secret))
    click.echo(line)
    click.echo(f"deskgrid: {name} is let in as {role}, by: {_TO_PASTE[line.side]}", err=True)


@keys.command("list")
@join_option
def list_(*, join: str | None) -> None:
    """List who is let in, and how many connections there are by each key."""
    from broker.client.replies import pages

    with _admin(join) as admin:
        rows = [row for page in pages(lambda after: admin.ask("keys", after=after)) for row in page["keys"]]
    for line in table([("NAME", "CONNECTED", "ROLE"), *((r["name"], str(r["connected"]), r["role"]) for r in rows)]):
        say(line)


@keys.command()
@click.argument("name")
@join_option
def revoke(*, name: str, join: str | None) -> None:
    """Keep NAME out: its connections are cut at once, and there will be no new ones.

    Its bags stay, and an admin can follow them; what its PCs were running is given to others. The three keys that a
    broker starts with (worker, client, admin) are replaced by new ones, whose lines are in its home.
    """
    with _admin(join) as admin:
        told = admin.ask("keys revoke", name=name)
    new = f"; the new line is in {told['line_in']} on the broker's machine" if told["line_in"] else ""
    say(f"revoked {name}, by which there were {told['connected']} connections{new}")
