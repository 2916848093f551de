"""The user accounts that tasks run as, if these are not the worker's own: ``deskgrid worker --run-as``.

The worker stays root, so that it can kill every process of a task. A task can read only what its user can read. Which
person has which account: see `deskgrid.worker.run.pool`.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deskgrid.worker.run.folders import taken
from deskgrid.worker.run.scope import SIGKILL, adopt

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
# A folder for locks, in one that only root can write to.
LOCKS = Path("/var/run/deskgrid")
# What stands for any characters in the names of several accounts, and what is between names.
ANY, AND = "%", ","
_OTHER_TRIAL = "import os, sys; open(sys.argv[1]).close(); os.stat(sys.argv[2] + '/.')"
_TRIAL = f"import cloudpickle, msgpack; {_OTHER_TRIAL}"


class AccountError(Exception):
    """Tasks cannot run as that user; one line that says why."""


@dataclass(frozen=True, slots=True)
class UserAccount:
    """A user of this machine, with all of its groups. ``home``: an existing folder."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    def environment(self) -> dict[str, str]:
        """Return the environment of this user's processes."""
        return kept_variables() | {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def process(self) -> dict[str, Any]:
        """Return the arguments of `subprocess.Popen` for a process of this user."""
        who = {"user": self.uid, "group": self.gid, "extra_groups": self.groups}
        return {**who, "umask": UMASK, "cwd": self.home, "env": self.environment()}

    def own(self, path: Path | int) -> None:
        """Make this user the owner of a file: a path, or a descriptor."""
        if sys.platform != "win32":
            os.chown(path, self.uid, self.gid)

    def owns(self, place: Path) -> bool:
        """Whether this user can make files in a folder."""
        try:
            found = place.stat()
        except OSError:
            return False
        ours = found.st_gid in (self.gid, *self.groups)
        return bool(found.st_mode >> (6 if found.st_uid == self.uid else 3 if ours else 0) & 2) or (
            found.st_uid == self.uid
        )

    def let_read(self, path: Path) -> None:
        """Let this user read root's file ``path``, but not change it."""
        if sys.platform != "win32":
            os.chown(path, 0, self.gid)
            path.chmod(0o640)

    def let_enter(self, folder: Path) -> None:
        """Let this user enter and list root's ``folder``, and nobody else."""
        if sys.platform != "win32":
            os.chown(folder, 0, self.gid)
            folder.chmod(0o750)

    def let_pass(self, folder: Path) -> None:
        """Let this user reach files by name in root's ``folder``, but neither list nor replace them."""
        if sys.platform != "win32":
            os.chown(folder, 0, self.gid)
            folder.chmod(0o710)


def kept_variables() -> dict[str, str]:
    """Return the variables of the worker's environment that processes of other users may see."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def find_accounts(names: str) -> tuple[UserAccount, ...]:
    """Return the users of these names. Raises `AccountError` if tasks cannot run as one of them.

    ``names``: one, or several with commas between them; "%" in a name stands for any characters.
    """
    if sys.platform == "win32":
        raise AccountError("--run-as does not work on Windows: start the worker as that user")
    else:
        import pwd

        if os.geteuid() != 0:
            raise AccountError("only root can run tasks as another user: start the worker as root, or as that user")
        found = dict[str, UserAccount]()
        for name in filter(None, (each.strip() for each in names.split(AND))):
            entries = []
            if ANY in name:
                pattern = re.compile(".*".join(map(re.escape, name.split(ANY))), re.DOTALL)
                entries = [entry for entry in pwd.getpwall() if pattern.fullmatch(entry.pw_name)]
            else:
                with suppress(KeyError):
                    entries = [pwd.getpwnam(name)]
            if not entries:
                what = "user that matches" if ANY in name else "user"
                raise AccountError(f"there is no {what} {name!r} on this machine: make accounts for tasks first")
            found.update(
                (entry.pw_name, _account(entry, os.getgrouplist(entry.pw_name, entry.pw_gid))) for entry in entries
            )
        _check_apart(list(found.values()))
        return tuple(found.values())


def _account(entry: Any, groups: Sequence[int]) -> UserAccount:
    """The account of a row of the table of users. Raises `AccountError`."""
    name, uid, gid = entry.pw_name, entry.pw_uid, entry.pw_gid
    if uid == 0:
        raise AccountError(f"{name} is root, who can read everything: choose another user")
    home = entry.pw_dir if Path(entry.pw_dir).is_dir() else "/"
    account = UserAccount(name, uid, gid, tuple(groups), home)
    if 0 in account.groups:
        raise AccountError(f"{name} is in root's group: choose another user")
    if account.owns(Path(home)):
        raise AccountError(
            f"{name} can write to its home {home}, where one person's tasks would find what another's have "
            "left: choose an account that was made for tasks, without a home"
        )
    return account


def _check_apart(accounts: Sequence[UserAccount]) -> None:
    """Raise `AccountError` unless no other user of the machine can read what is only for one of these."""
    if sys.platform != "win32":
        import grp
        import pwd

        # A directory service need not list all its users and members, so what is known of these accounts is added.
        users = [(user.pw_name, user.pw_uid, user.pw_gid) for user in pwd.getpwall()]
        users += [(account.name, account.uid, account.gid) for account in accounts]
        for account in accounts:
            members = {each.name for each in accounts if account.gid in each.groups}
            with suppress(KeyError):  # a group that has no name
                members.update(grp.getgrgid(account.gid).gr_mem)
            for name, uid, gid in users:
                if name != account.name and (uid == account.uid or gid == account.gid or name in members):
                    what = "are the same user" if uid == account.uid else "have a group in common"
                    raise AccountError(f"{name} and {account.name} {what}: each account needs a group of its own")


def check_account(account: UserAccount, program: Path, interpreters: Iterable[str] = ()) -> None:
    """Raise `AccountError` unless that user can run ``program`` with this Python and reach the temporary folder.

    ``interpreters``: other Pythons that it has to run.
    """
    place = tempfile.gettempdir()
    _try(account, [sys.executable, "-P", "-c", _TRIAL, str(program), place], f"{sys.executable} with deskgrid in it")
    for python in interpreters:
        _try(account, [python, "-I", "-c", _OTHER_TRIAL, str(program), place], python)


def _try(account: UserAccount, argv: Sequence[str], what: str) -> None:
    """Raise `AccountError` unless that user can run this Python with a program and a folder, the last arguments."""
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, **account.process()}
    try:
        # It ends with the worker, which has no other threads so early.
        subprocess.run(argv, check=True, timeout=TRY_S, preexec_fn=partial(adopt, SIGKILL), **how)
    except (OSError, subprocess.SubprocessError) as error:
        closed = _closed_to(account, (argv[0], *argv[-2:]))
        why = "in folders that every user can enter" if closed is None else f"and cannot enter {closed}"
        raise AccountError(f"{account.name} cannot run tasks: it needs {what}, and {argv[-1]}, {why}") from error


def _closed_to(account: UserAccount, paths: Iterable[str]) -> Path | None:
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


@contextmanager
def reserved(accounts: Iterable[UserAccount], folder: Path = LOCKS) -> Iterator[None]:
    """Keep other workers of this PC from using these accounts. Raises `AccountError` if one does."""
    with ExitStack() as locks:
        for account in accounts:
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
                lock = os.open(folder / str(account.uid), os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise AccountError(f"{account.name} cannot be reserved in {folder}: {error.strerror}") from error
            locks.callback(os.close, lock)
            if not taken(lock):
                raise AccountError(f"another worker of this PC uses {account.name}: each needs accounts of its own")
        yield


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of tasks that run as the worker's own user."""
    return {name: value for name, value in given.items() if name not in HIDDEN and not name.startswith(LAUNCHERS)}
