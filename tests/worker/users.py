"""Users of this machine that tests make, and remove again. Only root can, on Linux."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE_S, eventually

if os.name != "nt":
    import pwd

PREFIX = "deskgridtest"
# The number of the first user that a process makes, and the most that it makes at a time.
FIRST, MOST = 1_000_000, 16


def can_make_users() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0 and bool(shutil.which("useradd") and shutil.which("userdel"))


def _run(*argv: str) -> None:
    """Other tests may do the same now, and then the table is locked. What is to be removed may be gone already."""

    def done() -> bool:
        return subprocess.run(argv, capture_output=True, check=False).returncode in (0, 6)

    assert eventually(done, PATIENCE_S), argv


def changed(name: str, *options: str) -> None:
    """Change a user."""
    _run("usermod", *options, name)


@contextmanager
def users(count: int) -> Iterator[list[str]]:
    """New users with groups of their own, without homes. Those of a test that was killed are removed.

    Their numbers are nobody else's: tests beside this one end all that runs as their users.
    """
    for name in [entry.pw_name for entry in pwd.getpwall()]:
        found = re.fullmatch(rf"{PREFIX}(\d+)-\d+", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            _run("userdel", name)
    names = [f"{PREFIX}{os.getpid()}-{number}" for number in range(count)]
    how = ("--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/false")
    try:
        for number, name in enumerate(names):
            _run("useradd", *how, "--no-log-init", "--uid", str(FIRST + MOST * os.getpid() + number), name)
        yield names
    finally:
        for name in names:
            _run("userdel", name)
        for name in names:  # a test may have changed whose group it is
            _run("groupdel", name)
