"""The home folder of this account, which may be missing, and which several machines may share.

Rule 1: what only one machine may use lies below a folder with the name of its host (`this_host`).
Rule 2: nothing there depends on locks or process ids of other machines: a network disk may have no locks, and process
ids repeat.
"""

import hashlib
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from deskgrid.wire.text import NAME

# Number of hexadecimal digits that stand for a host name which cannot be the name of a folder, or for a machine.
_DIGITS = 16
# How long a program of macOS may take to say which machine this is. Seconds.
_PATIENCE_S = 5.0


class NoHome(Exception):
    """This account has no home folder that can be used; the message says why, and ends without a stop."""


def user_home() -> Path:
    """Return this user's home folder, which is there. Raises `NoHome`.

    An account may have none: in a container it may not even have a name, and accounts of services often have / or a
    folder that nobody made.
    """
    try:
        home = Path.home()
    except RuntimeError as error:
        raise NoHome("this account has no home folder") from error
    if home == Path(home.anchor):
        raise NoHome(f"this account has no home folder of its own (it is {home})")
    if not home.is_dir():
        raise NoHome(f"the home folder of this account, {home}, is not there")
    return home


def deskgrid_home() -> Path:
    """Return $DESKGRID_HOME, or ~/.deskgrid. Raises `NoHome`."""
    given = os.environ.get("DESKGRID_HOME")
    return Path(given) if given else user_home() / ".deskgrid"


def this_host() -> str:
    """Return the name of the folder for what belongs to this machine: its host name, if that can be one."""
    name = socket.gethostname()
    return name if NAME.fullmatch(name) else hashlib.sha256(os.fsencode(name)).hexdigest()[:_DIGITS]


def this_machine() -> str:
    """Return what stands for this machine, whatever its name: a copy of its disk in another one is another one.

    Empty if it has no id, or another one after each start. Nobody else is to know the id itself.
    """
    if sys.platform == "win32":
        found = _of_windows()
    elif sys.platform == "darwin":
        found = _of_macos()
    else:
        found = _of_linux()
    return hashlib.sha256(b"deskgrid " + found.encode()).hexdigest()[:_DIGITS] if found else ""


def _of_linux(file: Path = Path("/etc/machine-id"), run: Path = Path("/run")) -> str:
    """A machine that cannot keep its id has it in memory, below ``run``; one that is new may have some word there."""
    with suppress(OSError):
        if file.stat().st_dev != run.stat().st_dev:
            found = file.read_text(encoding="ascii", errors="replace").strip()
            return found if len(found) == 32 else ""
    return ""


def _of_macos() -> str:
    import subprocess

    with suppress(OSError, subprocess.SubprocessError):
        argv = ["ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
        return done.stdout.partition('"IOPlatformUUID" = "')[2].partition('"')[0]
    return ""


def _of_windows() -> str:
    if sys.platform == "win32":
        import winreg

        with (
            suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography") as key,
        ):
            return str(winreg.QueryValueEx(key, "MachineGuid")[0])
    return ""
