"""Keeps a join line that was typed out of the list of processes, which everybody on a PC can see.

Rule: the process goes on as itself, with the same number, but is started anew without the line among its arguments: it
reads the line from a pipe, as from any ``@FILE``.
"""

import os
import sys
from collections.abc import Sequence

from deskgrid.wire.joinline import JoinLineError, parse_join_line

# Where a POSIX system has the open files of a process. Windows shows arguments to the same user only.
_OPEN_FILES = "/dev/fd"


def hide(join: str | None) -> None:
    """Start this process anew, if ``join`` is a line and stands among its arguments; else return."""
    if join is None or not _is_line(join) or not os.path.isdir(_OPEN_FILES):
        return
    if {join, f"--join={join}"} & {*sys.orig_argv}:
        readable, writable = os.pipe()
        os.write(writable, join.encode())  # a line is far shorter than what a pipe holds
        os.close(writable)
        os.set_inheritable(readable, True)
        os.execve(sys.executable, without(sys.orig_argv, join, f"@{_OPEN_FILES}/{readable}"), _environment())


def _is_line(text: str) -> bool:
    """Whether it is a join line itself, and so what has to be hidden."""
    try:
        return parse_join_line(text, "worker").keys is not None
    except JoinLineError:
        return False


def without(words: Sequence[str], line: str, place: str) -> list[str]:
    """Arguments with ``place`` where the line was."""
    return [word.replace(line, place) for word in words]


def _environment() -> dict[str, str]:
    """Without the line of a client, which a worker has no use for, and its tasks could read."""
    return {name: value for name, value in os.environ.items() if name != "DESKGRID_JOIN"}
