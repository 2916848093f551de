"""The user accounts that tasks run as, if these are not the worker's own: ``deskgrid worker --run-as``.

Rule 1: the worker stays root, so that it can kill every process of a task. A task can read only what its user can read.
Rule 2: an account is one person's at a time. When that person has no process and no file here any more, all that runs
as this user is killed, what it left is removed, and only then does the next person get it.
Rule 3: each account has a folder that only it can enter, with all that its tasks are given. No account can enter the
folder of another, because they have different groups.
"""

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deskgrid.worker.run.beneath import remove

# Variables of the worker's environment that tasks of another user inherit, in addition to that user's own (HOME, ...).
KEPT = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ")
# Variables that no task sees: they tell which grid this is and where its keys are.
HIDDEN = ("DESKGRID_JOIN", "DESKGRID_HOME")
# What the variables begin with by which a batch system or an MPI launcher that started the worker speaks to its own
# processes: an MPI program in a task would believe that they are meant for it, and wait for ranks that never come.
LAUNCHERS = ("SLURM_", "PMI", "OMPI_")
# Others cannot read what a task of another user writes.
UMASK = 0o077
# Time limit of the check whether that user can run Python, and of the removal of what one has left. Seconds.
TRY_S = 60.0
CLEAR_S = 600.0
# What stands for any characters in the names of several accounts, and what is between names.
ANY, AND = "%", ","
# In the folder of an account: its home, what its processes use, where checkpointable tasks save, the modules that tasks
# were given, and what tasks leave.
HOME, RUN, TASKS, GIVEN, LEFT = "home", "run", "tasks", "given", "left"
_TRIAL = "import cloudpickle, msgpack, os, sys; open(sys.argv[1]).close(); os.stat(sys.argv[2] + '/.')"


class AccountError(Exception):
    """Tasks cannot run as that user; one line that says why."""


class NoAccount(OSError):
    """All accounts of this PC are other people's now."""

    def __init__(self, count: int) -> None:
        which = "the account" if count == 1 else f"all {count} accounts"
        super().__init__(errno.EDQUOT, f"{which} for tasks on this PC (--run-as): in use by other people")

    def __str__(self) -> str:
        return str(self.strerror)


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


def find_accounts(names: str) -> tuple[Account, ...]:
    """Return the users of these names. Raises `AccountError` if tasks cannot run as one of them.

    ``names``: one, or several with commas between them; "%" in a name stands for any characters.
    """
    if sys.platform == "win32":
        raise AccountError("--run-as does not work on Windows: start the worker as that user")
    else:
        import pwd

        if os.geteuid() != 0:
            raise AccountError("only root can run tasks as another user: start the worker as root, or as that user")
        found = dict[str, Account]()
        for name in filter(None, (each.strip() for each in names.split(AND))):
            entries = []
            if ANY in name:
                pattern = re.compile(".*".join(map(re.escape, name.split(ANY))), re.DOTALL)
                entries = [entry for entry in pwd.getpwall() if pattern.fullmatch(entry.pw_name)]
            else:
                with suppress(KeyError):
                    entries = [pwd.getpwnam(name)]
            if not entries:
                raise AccountError(f"there is no user {name!r} on this machine")
            found.update((entry.pw_name, _account(entry)) for entry in entries)
        _check_apart(list(found.values()))
        return tuple(found.values())


def _account(entry: Any) -> Account:
    """The account of a row of the table of users. Raises `AccountError`."""
    name, uid, gid = entry.pw_name, entry.pw_uid, entry.pw_gid
    if uid == 0:
        raise AccountError(f"{name} is root, who can read everything: choose another user")
    home = entry.pw_dir if Path(entry.pw_dir).is_dir() else "/"
    account = Account(name, uid, gid, tuple(os.getgrouplist(name, gid)), home)
    if 0 in account.groups:
        raise AccountError(f"{name} is in root's group: choose another user")
    if account.owns(Path(home)):
        raise AccountError(
            f"{name} can write to its home {home}, where one person's tasks would find what another's have "
            "left: choose an account that was made for tasks, without a home"
        )
    return account


def _check_apart(accounts: Sequence[Account]) -> None:
    """Raise `AccountError` unless none of these users can read what is only for another of them."""
    for one in accounts:
        for other in accounts:
            if one.name != other.name and (one.uid == other.uid or other.gid in (one.gid, *one.groups)):
                what = "are the same user" if one.uid == other.uid else "have a group in common"
                raise AccountError(f"{one.name} and {other.name} {what}: each account needs a group of its own")


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


# --- who has which ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where one person's tasks run: in the folder ``area``, as ``account``; None: as the worker's own user."""

    area: Path
    account: Account | None = None

    @property
    def uid(self) -> int | None:
        """Of the user; None: our own."""
        return None if self.account is None else self.account.uid


@dataclass(slots=True)
class _Held:
    """An account that a person has, how often it was taken, and the folders that it was let into."""

    place: Place
    uses: int = 0
    entered: list[Path] = field(default_factory=list)


class Accounts:
    """The accounts of this PC. Without any, everybody's tasks run as the worker's own user, in one place.

    ``area``: a folder that nobody else can write to. ``wake`` is called, from a thread, when an account has become
    free. ``clear``: ends and removes all that an account has left in these folders and elsewhere, and returns whether
    nothing stays.
    """

    def __init__(
        self,
        area: Path,
        accounts: Sequence[Account] = (),
        wake: Callable[[], None] = lambda: None,
        clear: Callable[[Account, Sequence[Path]], bool] | None = None,
    ) -> None:
        """Make the accounts' folders. Raises OSError."""
        self._wake = wake
        self._clear = clear or clear_account
        self._common = Place(area)
        self._held: dict[str, _Held] = {}
        self._free = deque[Place]()
        self._cleared = deque[tuple[Place, bool]]()
        self._unclean = list[Place]()
        self._threads = list[threading.Thread]()
        self.places = tuple([_made(area, account) for account in accounts]) or (self._common,)
        self.count = len(accounts)
        if accounts:
            area.chmod(0o711)
            # A worker that was killed may have left something.
            self._unclean += self.places
            self._clear_all()

    def __bool__(self) -> bool:
        return bool(self.count)

    def may_be_free(self, keep: Collection[str]) -> bool:
        """Whether an account will be free soon if everybody but these people ends: or else nothing will change that."""
        return any(person not in keep for person in self._held) or any(thread.is_alive() for thread in self._threads)

    def take(self, person: str) -> Place | None:
        """Take the place of a person, to be released as often as it was taken; None if all accounts are others'."""
        if not self.count:
            return self._common
        self._look()
        if person not in self._held:
            if not self._free:
                self._clear_all()
                return None
            self._held[person] = _Held(self._free.popleft())
        self._held[person].uses += 1
        return self._held[person].place

    def let_in(self, person: str, folder: Path) -> None:
        """Let a person's account enter root's ``folder``, as long as it is that person's."""
        held = self._held.get(person)
        if held is not None and held.place.account is not None and folder not in held.entered:
            held.place.account.let_enter(folder)
            held.entered.append(folder)

    def give(self, person: str, folder: Path) -> Path:
        """Give a person's tasks what is in root's ``folder``; return where they find it. Raises OSError."""
        held = self._held.get(person)
        if held is None:
            return folder
        mine = held.place.area / RUN / GIVEN / folder.name
        if not mine.is_dir():
            with tempfile.TemporaryDirectory(prefix="new-", dir=mine.parent) as staging:
                shutil.copytree(folder, Path(staging) / "all", copy_function=_link)
                (Path(staging) / "all").rename(mine)
        return mine

    def release(self, person: str) -> None:
        """A person needs the place less often. At the last time, it is cleared for the next person."""
        held = self._held.get(person)
        if held is None:
            return
        held.uses -= 1
        if not held.uses:
            del self._held[person]
            for folder in held.entered:
                close_folder(folder)
            self._unclean.append(held.place)
            self._clear_all()

    def close(self) -> None:
        """Clear all accounts that anybody has had, whose processes have been killed."""
        self._unclean += [held.place for held in self._held.values()]
        self._held.clear()
        self._clear_all()
        for thread in self._threads:
            thread.join(CLEAR_S)

    def _look(self) -> None:
        """Note which accounts have been cleared."""
        while self._cleared:
            place, is_clean = self._cleared.popleft()
            (self._free if is_clean else self._unclean).append(place)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _clear_all(self) -> None:
        while self._unclean:
            self._threads.append(threading.Thread(target=self._clear_one, args=(self._unclean.pop(),), daemon=True))
            self._threads[-1].start()

    def _clear_one(self, place: Place) -> None:
        assert place.account is not None
        folders = [place.area / HOME, place.area / RUN / TASKS, place.area / LEFT]
        for each in (place.area / RUN / GIVEN).iterdir():
            remove(each.parent, each.name)
        is_clean = self._clear(place.account, folders)
        self._cleared.append((place, is_clean))
        if is_clean:
            self._wake()


def _made(area: Path, account: Account) -> Place:
    """Make the folder of an account, which only it can enter. Raises OSError."""
    folder = area / account.name
    for name in ("", HOME, RUN, f"{RUN}/{TASKS}", f"{RUN}/{GIVEN}"):
        (folder / name).mkdir(mode=0o700)
    mine = replace(account, home=str(folder / HOME))
    mine.own(folder / HOME)
    mine.own(folder / RUN / TASKS)
    mine.let_pass(folder / RUN / GIVEN)
    mine.let_pass(folder / RUN)
    mine.let_pass(folder)
    return Place(folder, mine)


def _link(source: str, target: str) -> None:
    """Give a file a second name, or copy it where there can be none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def close_folder(folder: Path) -> None:
    """Let nobody but root enter root's ``folder``. It may be gone."""
    if sys.platform != "win32":
        with suppress(OSError):
            folder.chmod(0o700)
            os.chown(folder, 0, 0)


def clear_account(account: Account, folders: Sequence[Path]) -> bool:
    """End all that runs as a user, and remove what it has left; whether nothing is left."""
    argv = [sys.executable, "-P", "-m", "deskgrid.worker.run.clearing", str(account.uid), str(account.gid)]
    try:
        done = subprocess.run(
            [*argv, *map(str, folders)], timeout=CLEAR_S, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of tasks that run as the worker's own user."""
    return {name: value for name, value in given.items() if name not in HIDDEN and not name.startswith(LAUNCHERS)}
