"""The account that unpacks wheels and makes environments, if the worker is root and tasks run as another user.

It is neither root nor an account of tasks: a number that no user and no group of the system has. So nothing has to be
set up for it, nobody can log in with it, and no file that was there before is its own. What it made is read-only, and
tasks cannot change that.
"""

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from deskgrid.worker.run.accounts import AccountError

# Numbers that neither systemd nor Debian gives to anybody: between those of dynamic users and `nobody`.
NUMBERS = range(65_520, 65_534)


class Installer(NamedTuple):
    """The number of the user and of its only group."""

    number: int

    def process(self) -> dict[str, Any]:
        """Return the arguments of `subprocess.Popen` for a process of this account."""
        return {"user": self.number, "group": self.number, "extra_groups": (), "umask": 0o022, "cwd": "/"}

    def own(self, folder: Path) -> None:
        """Make this account the owner of a new folder, in a folder where only the worker can write. Raises OSError."""
        if sys.platform != "win32":
            os.chown(folder, self.number, self.number, follow_symlinks=False)

    def let_pass(self, folder: Path) -> None:
        """Let only this account, besides the worker, reach files by name in ``folder``. Raises OSError.

        ``folder``: in a folder where only the worker can write.
        """
        if sys.platform != "win32":
            os.chown(folder, 0, self.number, follow_symlinks=False)
            folder.chmod(0o710)


def find_installer() -> Installer:
    """Return the account. All workers of a PC find the same. Raises `AccountError`."""
    for number in NUMBERS:
        if not _is_known(number):
            return Installer(number)
    raise AccountError(
        f"users or groups of this machine have all numbers from {NUMBERS[0]} to {NUMBERS[-1]}: "
        "free one of them, for the process that unpacks wheels"
    )


def _is_known(number: int) -> bool:
    """Whether a user or a group has this number."""
    if sys.platform == "win32":
        return False
    else:
        import grp
        import pwd

        for find in (pwd.getpwuid, grp.getgrgid):
            try:
                find(number)
            except KeyError:
                continue
            return True
        return False
