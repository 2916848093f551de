"""Hides a join line on the command line from the list of processes, which everybody on a PC can see.

Rule: the process keeps its id, but executes itself again without the line among its arguments. It then reads the line
from a pipe, as from any ``@FILE``.
"""

import os
import sys
from collections.abc import Sequence

from deskgrid.wire.joinline import JoinLineError, parse_join_line

# The folder of a process's open files on POSIX systems. Windows shows arguments only to the same user.
_OPEN_FILES = "/dev/fd"


def hide(join: str | None) -> None:
    """Execute this process again if ``join`` is a join line and is among its arguments; otherwise return."""
    if join is None or not _is_line(join) or not os.path.isdir(_OPEN_FILES):
        return
    # On Windows, a program that executes itself again has ended for whoever has started it.
    if sys.platform != "win32" and {join, f"--join={join}"} & {*sys.orig_argv}:
        readable, writable = os.pipe()
        os.write(writable, join.encode())  # never blocks: a pipe holds far more than a line
        os.close(writable)
        os.set_inheritable(readable, True)
        os.execve(sys.executable, without(sys.orig_argv, join, f"@{_OPEN_FILES}/{readable}"), _environment())


def _is_line(text: str) -> bool:
    """Whether ``text`` is a join line with keys, which has to be hidden."""
    try:
        return parse_join_line(text, "worker").keys is not None
    except JoinLineError:
        return False


def without(words: Sequence[str], line: str, place: str) -> list[str]:
    """Return the arguments with ``place`` instead of the line."""
    return [word.replace(line, place) for word in words]


def _environment() -> dict[str, str]:
    """Return the environment without the client's join line: a worker does not need it, and tasks could read it."""
    return {name: value for name, value in os.environ.items() if name != "DESKGRID_JOIN"}
