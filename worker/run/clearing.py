"""Ends all that runs as an account of tasks, and removes what they left: a program of its own, which root runs.

Rule 1: root itself kills and removes nothing here. A copy of this process becomes that user first, so it can do only
what the tasks could do themselves. What they still run may kill the copy, but not this process: it makes another.
The copy imports nothing, because that user may not be able to read what root runs.
Rule 2: it succeeds only if nothing is left. Until then, nobody else gets the account.
"""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from deskgrid.worker.run import beneath
from deskgrid.worker.run.scope import mounts, unmount_below

# Where every user may leave something, beside local disks that everybody can write to.
COMMON = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")
# How often it is tried, and seconds between: processes that hang in a system call end when that returns.
ROUNDS = 50
PAUSE_S = 0.1
# What keeps keys for each user, beside those of processes: see keyctl(2). These are what it has for itself, and for its
# sessions; a third outlives both. The calls: clear, and get the third, into what this process has.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
_OF_USER, _OF_SESSIONS, _OF_PROCESS = -4, -5, -2
_CLEAR_KEYS, _GET_PERSISTENT, _MINE = 7, 22, -1
# How long a program may take that tells what a user has run later, or takes it back. Seconds.
_LATER_S = 10.0
# System V's shared memory, its semaphores and its queues: in which file the kernel lists them, in which column their
# numbers are, and what removes one; IPC_RMID of each, everywhere.
_REMOVE = 0
_KINDS = (("shm", "shmid", "shmctl"), ("sem", "semid", "semctl"), ("msg", "msqid", "msgctl"))


def main() -> None:
    """``python -m deskgrid.worker.run.clearing UID GID FOLDER...``: folders in which tasks of this user could write."""
    uid, gid, *folders = sys.argv[1:]
    sys.exit(0 if clear(int(uid), int(gid), folders) else 1)


def clear(uid: int, gid: int, folders: list[str]) -> bool:
    """End and remove everything of a user; whether nothing is left."""
    places = [Path(folder) for folder in (*folders, *COMMON, *_open_disks())]
    for _ in range(ROUNDS if uid else 0):
        _as(uid, gid, _kill_all)
        # At last, nothing runs: what was to run later may have begun before it was taken back.
        if not _runs(uid, gid) and _as(uid, gid, lambda: _tidy(uid, places)) and not _runs(uid, gid):
            return True
        time.sleep(PAUSE_S)
    return False


def _open_disks(table: str = "/proc/self/mounts") -> Iterator[str]:
    """Yield where local disks are mounted that everybody can write to. Of others, a server may not answer."""
    with suppress(OSError):
        for device, place, kind in mounts(table):
            with suppress(OSError):
                if (device.startswith(b"/dev/") or kind == b"tmpfs") and os.stat(place).st_mode & stat.S_IWOTH:
                    yield os.fsdecode(place)


def _kill_all() -> None:
    if sys.platform != "win32":
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)


def _as(uid: int, gid: int, action: Callable[[], object]) -> bool:
    """Do something in a copy of this process that has become this user; whether it was done."""
    if sys.platform == "win32":
        return False
    else:
        if child := os.fork():
            return os.waitpid(child, 0)[1] == 0
        code = 1
        try:
            os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
            if os.getuid() == os.geteuid() == uid != 0:
                action()
                code = 0
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)  # which the worker's log repeats
        finally:
            os._exit(code)


def _runs(uid: int, gid: int) -> bool:
    """Whether a process of this user runs, other than those whose parents have not noticed yet that they ended."""
    if not Path("/proc/self/stat").exists():
        return not _as(uid, gid, _nothing_runs)
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            about = (path / "stat").read_bytes()
            if path.stat().st_uid == uid and about.rpartition(b")")[2].split()[:1] != [b"Z"]:
                return True
    return False


def _nothing_runs() -> None:
    with suppress(ProcessLookupError):
        os.kill(-1, 0)
        raise ValueError("a process runs")


def _tidy(uid: int, places: list[Path]) -> None:
    """Remove what this user, who we are now, has in these places. Raises ValueError if something stays."""
    _cancel_later()
    _remove_keys()
    for place in places:
        unmount_below(str(place))
        for folder, name in list(_left(uid, place)):
            beneath.remove(folder, name)
    _remove_ipc(uid)
    if any(True for place in places for _ in _left(uid, place)):
        raise ValueError("something stays")


def _cancel_later() -> None:
    """Take back what this user has run later, where there are programs for that. Raises ValueError if something stays.

    Raises OSError and `subprocess.TimeoutExpired` if nobody knows.
    """
    _said("crontab", "-r")
    for job in _jobs_of_at():
        _said("atrm", job)
    if _said("crontab", "-l") or _jobs_of_at():
        raise ValueError("something is to run later")


def _jobs_of_at() -> list[str]:
    return [line.split()[0] for line in _said("atq").splitlines() if line.strip()]


def _said(program: str, *arguments: str) -> str:
    """What a program says; nothing if it is not there, this user cannot run it, or it refuses. Raises OSError."""
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "cwd": "/"}
    with suppress(FileNotFoundError, PermissionError, subprocess.CalledProcessError):
        done = subprocess.run([program, *arguments], timeout=_LATER_S, check=True, **how)
        return str(done.stdout, "utf-8", "replace")
    return ""


def _remove_keys() -> None:
    """Remove the keys that the kernel keeps for this user although nothing of it runs."""
    if sys.platform == "linux" and (keyctl := _KEYCTL.get(os.uname().machine)) is not None:
        call = partial(ctypes.CDLL(None).syscall, keyctl)
        persistent = call(_GET_PERSISTENT, _MINE, _OF_PROCESS)
        for keyring in (_OF_USER, _OF_SESSIONS, *([persistent] if persistent > 0 else [])):
            call(_CLEAR_KEYS, keyring)


def _left(uid: int, place: Path) -> Iterator[tuple[Path, str]]:
    """Yield what this user has in a place: the folder and the name of each; also in folders of others there."""
    folders = [place]
    while folders:
        folder = folders.pop()
        with suppress(OSError), os.scandir(folder) as names:
            for each in names:
                with suppress(OSError):
                    if each.stat(follow_symlinks=False).st_uid == uid:
                        yield folder, each.name
                    elif each.is_dir(follow_symlinks=False) and os.access(each.path, os.W_OK):
                        folders.append(folder / each.name)


def _remove_ipc(uid: int) -> None:
    """Remove what System V keeps of this user, which has no names in any folder."""
    for kind, column, call in _KINDS:
        with suppress(FileNotFoundError):  # a kernel without these
            names, *rows = [line.decode().split() for line in Path(f"/proc/sysvipc/{kind}").read_bytes().splitlines()]
            control = getattr(ctypes.CDLL(None), call)
            for row in (dict(zip(names, row, strict=False)) for row in rows):
                if str(uid) in (row["uid"], row["cuid"]):
                    number = int(row[column])
                    control(number, 0, _REMOVE) if kind == "sem" else control(number, _REMOVE, None)


if __name__ == "__main__":
    main()
