"""Finds the broker: from a given join line, from $DESKGRID_JOIN, or on this machine.

Rule: an error here stands alone, because its sentence says all that there is to say.

Anyone who can read a broker's home is its admin, but submits like everybody else. So submitting uses the line for
clients in the home, and all other commands use the admin's line.
"""

import os

from deskgrid.client.given import check
from deskgrid.errors import GridRefused, GridUnreachable
from deskgrid.homes import NoHome, deskgrid_home
from deskgrid.wire.joinline import JoinLine, JoinLineError, parse_join_line, read_join_line


def check_no_task() -> None:
    """Refuse to submit from a task: it would hold its slot while it waits for others that need one, perhaps for ever.

    Raises `GridRefused`.
    """
    if os.environ.get("DESKGRID_TASK"):
        raise GridRefused(
            "a task cannot submit: this program runs in a task of a grid, and would hold its slot while it waits. "
            "Return what is to be done next, and submit it from the program that submitted this task. If you mean "
            "another grid, remove DESKGRID_TASK from os.environ first"
        )


def client_line(join: str | None) -> JoinLine:
    """Return the join line for submitting. Raises `GridRefused` or `GridUnreachable`."""
    if join is not None:
        check("join", join, str, "a join line, or @FILE that contains it", TypeError)
        return _parsed(join)
    return _in_environment() or _left("client")


def admin_line(join: str | None) -> JoinLine:
    """Return the join line for an admin: this machine's own if $DESKGRID_JOIN names the same broker."""
    if join is not None:
        return _parsed(join)
    if (line := _in_environment()) is None:
        return _left("admin")
    try:
        own = _left("admin")
    except GridUnreachable:
        return line
    same = own.keys is not None and line.keys is not None and own.keys.server == line.keys.server
    return own if same else line


def _in_environment() -> JoinLine | None:
    """Return the join line in $DESKGRID_JOIN. An error names the variable: whoever set it may not think of it."""
    if not (text := os.environ.get("DESKGRID_JOIN")):
        return None
    try:
        return _parsed(text)
    except GridRefused as error:
        raise GridRefused(f"DESKGRID_JOIN: {error}") from None


def _parsed(text: str) -> JoinLine:
    try:
        return read_join_line(text, "client")
    except JoinLineError as error:
        raise GridRefused(str(error)) from None


def _left(name: str) -> JoinLine:
    """Return the join line that this machine's broker left in its home."""
    try:
        path = deskgrid_home() / f"{name}.join"
    except NoHome as error:
        raise GridUnreachable(
            f"no broker is known: DESKGRID_JOIN is not set, and {error}; set DESKGRID_JOIN to the line that the broker "
            "prints for people"
        ) from None
    try:
        return parse_join_line(path.read_text(encoding="utf-8"), "client")
    except FileNotFoundError:
        raise GridUnreachable(
            f"no broker is known: DESKGRID_JOIN is not set, and no broker has run on this machine ({path} is not "
            "there); start one with `deskgrid broker`, or set DESKGRID_JOIN to the line that it prints for people"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise GridUnreachable(
            f"{path}, where this machine's broker left its join line, cannot be read: {error}"
        ) from None
    except JoinLineError as error:
        raise GridRefused(str(error)) from None
