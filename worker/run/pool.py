"""Which person has which account of this PC, and where that person's tasks run.

Rule 1: an account is one person's at a time. When that person has no process and no file here any more, all that runs
as this user is killed, what it left is removed, and only then does the next person get it.
Rule 2: each account has a folder that only it can enter, with all that its tasks are given. No account can enter the
folder of another, because they have different groups.
"""

import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from deskgrid.worker.run.accounts import UserAccount
from deskgrid.worker.run.beneath import remove

log = logging.getLogger("deskgrid.worker")

# Time limit of the removal of all that an account has left; and how long the end of a worker waits for it. It goes on
# afterwards, and the next worker does it again. Seconds.
CLEAR_S = 600.0
CLOSE_S = 5.0
# In the folder of an account: its home, what its processes use, where checkpointable tasks save, the modules that tasks
# were given, and what tasks leave.
HOME, RUN, TASKS, GIVEN, LEFT = "home", "run", "tasks", "given", "left"


class NoAccount(OSError):
    """All accounts of this PC are other people's now."""

    def __init__(self, count: int) -> None:
        which = "the account" if count == 1 else f"all {count} accounts"
        super().__init__(errno.EDQUOT, f"{which} for tasks on this PC (--run-as): in use by other people")

    def __str__(self) -> str:
        return str(self.strerror)


@dataclass(frozen=True, slots=True)
class AccountPlace:
    """Where one person's tasks run: in the folder ``area``, as ``account``; None: as the worker's own user."""

    area: Path
    account: UserAccount | None = None

    @property
    def uid(self) -> int | None:
        """Of the user; None: our own."""
        return None if self.account is None else self.account.uid


@dataclass(slots=True)
class _Held:
    """An account that a person has, how often it was taken, and the folders that it was let into."""

    place: AccountPlace
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
        accounts: Sequence[UserAccount] = (),
        wake: Callable[[], None] = lambda: None,
        clear: Callable[[UserAccount, Sequence[Path]], bool] | None = None,
    ) -> None:
        """Make the accounts' folders. Raises OSError."""
        self._wake = wake
        self._clear = clear or clear_account
        self._common = AccountPlace(area)
        self._held: dict[str, _Held] = {}
        self._free = deque[AccountPlace]()
        self._cleared = deque[tuple[AccountPlace, bool]]()
        self._unclean = list[AccountPlace]()
        self._threads = list[threading.Thread]()
        self.places = tuple([_made(area, account) for account in accounts]) or (self._common,)
        self.count = len(accounts)
        if accounts:
            area.chmod(0o711)
            # A worker that was killed may have left something.
            self._unclean += self.places
            self._clear_all()

    def renew(self) -> None:
        """Make the folders again, which somebody has removed. Raises OSError."""
        if self.count:
            self._common.area.chmod(0o711)
        for place in self.places:
            if place.account is not None:
                _made(self._common.area, place.account)

    def __bool__(self) -> bool:
        return bool(self.count)

    def may_be_free(self, keep: Collection[str]) -> bool:
        """Whether an account will be free soon if everybody but these people ends: or else nothing will change that."""
        return any(person not in keep for person in self._held) or any(thread.is_alive() for thread in self._threads)

    def take(self, person: str) -> AccountPlace | None:
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
        until = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

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

    def _clear_one(self, place: AccountPlace) -> None:
        assert place.account is not None
        folders = [place.area / HOME, place.area / RUN / TASKS, place.area / LEFT]
        with suppress(FileNotFoundError):  # somebody has removed all of it, and it is made again
            for each in (place.area / RUN / GIVEN).iterdir():
                remove(each.parent, each.name)
        is_clean = self._clear(place.account, folders)
        self._cleared.append((place, is_clean))
        if is_clean:
            self._wake()


def _made(area: Path, account: UserAccount) -> AccountPlace:
    """Make the folder of an account, which only it can enter, or what is missing of it. Raises OSError."""
    folder = area / account.name
    for name in ("", HOME, RUN, f"{RUN}/{TASKS}", f"{RUN}/{GIVEN}"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    mine = replace(account, home=str(folder / HOME))
    mine.own(folder / HOME)
    mine.own(folder / RUN / TASKS)
    mine.let_pass(folder / RUN / GIVEN)
    mine.let_pass(folder / RUN)
    mine.let_pass(folder)
    return AccountPlace(folder, mine)


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


def clear_account(account: UserAccount, folders: Sequence[Path]) -> bool:
    """End all that runs as a user, and remove what it has left; whether nothing is left."""
    argv = [sys.executable, "-P", "-m", "deskgrid.worker.run.clearing", str(account.uid), str(account.gid)]
    try:
        done = subprocess.run(
            [*argv, *map(str, folders)], timeout=CLEAR_S, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return False
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").splitlines()[-1:]
        log.warning("account-not-clean name=%r why=%r: nobody gets it", account.name, *(said or [""]))
    return done.returncode == 0
