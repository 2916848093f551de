"""The user account that tasks run as, if it is not the worker's own: ``deskgrid worker --run-as``.

The worker stays root, so that it can kill every process of a task. A task can read only what that user can read.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Variables of the worker's environment that tasks of another user inherit, in addition to that user's own (HOME, ...).
KEPT = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
# Variables that no task sees: they tell which grid this is and where its keys are.
HIDDEN = ("DESKGRID_JOIN", "DESKGRID_HOME")
# What the variables begin with by which a batch system or an MPI launcher that started the worker speaks to its own
# processes: an MPI program in a task would believe that they are meant for it, and wait for ranks that never come.
LAUNCHERS = ("SLURM_", "PMI", "OMPI_")
# Others cannot read what a task of another user writes.
UMASK = 0o077
# Time limit of the check whether that user can run Python. Seconds.
TRY_S = 60.0
_TRIAL = "import cloudpickle, msgpack, os, sys; open(sys.argv[1]).close(); os.stat(sys.argv[2] + '/.')"


class AccountError(Exception):
    """Tasks cannot run as that user; one line that says why."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine, with all of its groups. ``home``: an existing folder."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def environment(self) -> dict[str, str]:
        """Return the environment of this user's processes."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        return kept | {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def process(self) -> dict[str, Any]:
        """Return the arguments of `subprocess.Popen` for a process of this user."""
        who = {"user": self.uid, "group": self.gid, "extra_groups": self.groups}
        return {**who, "umask": UMASK, "cwd": self.home, "env": self.environment()}

    def own(self, path: Path | int) -> None:
        """Make this user the owner of a file: a path, or a descriptor."""
        if sys.platform != "win32":
            os.chown(path, self.uid, self.gid)

    def let_read(self, path: Path) -> None:
        """Let this user read root's file ``path``, but not change it."""
        if sys.platform != "win32":
            os.chown(path, 0, self.gid)
            path.chmod(0o640)

    def let_pass(self, folder: Path) -> None:
        """Let this user reach files by name in root's ``folder``, but neither list nor replace them."""
        if sys.platform != "win32":
            os.chown(folder, 0, self.gid)
            folder.chmod(0o710)


def find_account(name: str) -> Account:
    """Return the user of that name. Raises `AccountError` if tasks cannot run as that user."""
    if sys.platform == "win32":
        raise AccountError("--run-as does not work on Windows: start the worker as that user")
    else:
        import pwd

        if os.geteuid() != 0:
            raise AccountError("only root can run tasks as another user: start the worker as root, or as that user")
        try:
            entry = pwd.getpwnam(name)
        except KeyError as error:
            raise AccountError(f"there is no user {name!r} on this machine") from error
        if entry.pw_uid == 0:
            raise AccountError(f"{name} is root, who can read everything: choose another user")
        home = entry.pw_dir if Path(entry.pw_dir).is_dir() else "/"
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
        return Account(name, entry.pw_uid, entry.pw_gid, groups, home)


def check_account(account: Account, program: Path) -> None:
    """Raise `AccountError` unless that user can run ``program`` with this Python and reach the temporary folder."""
    place = tempfile.gettempdir()
    argv = [sys.executable, "-P", "-c", _TRIAL, str(program), place]
    try:
        subprocess.run(
            argv, check=True, timeout=TRY_S, stdin=subprocess.DEVNULL, capture_output=True, **account.process()
        )
    except (OSError, subprocess.SubprocessError) as error:
        needs = f"needs {sys.executable} with deskgrid in it, and {place}"
        closed = _closed_to(account, (sys.executable, str(program), place))
        why = "in folders that every user can enter" if closed is None else f"and cannot enter {closed}"
        raise AccountError(f"{account.name} cannot run tasks: it {needs}, {why}") from error


def _closed_to(account: Account, paths: Iterable[str]) -> Path | None:
    """The first folder on the way to one of these paths, or to what they lead to, that this user cannot enter."""
    for path in paths:
        for way in (Path(path).absolute(), Path(path).resolve()):
            for folder in [*reversed(way.parents), *([way] if way.is_dir() else [])]:
                found = folder.stat()
                mine = found.st_uid == account.uid
                ours = found.st_gid == account.gid or found.st_gid in account.groups
                if not found.st_mode >> (6 if mine else 3 if ours else 0) & 1:
                    return folder
    return None


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of tasks that run as the worker's own user."""
    return {name: value for name, value in given.items() if name not in HIDDEN and not name.startswith(LAUNCHERS)}
