"""The home folder of this account, which may be missing, and which several machines may share.

Rule 1: what only one machine may use lies below a folder with the name of its host (`this_host`).
Rule 2: nothing there depends on locks or process ids of other machines: a network disk may have no locks, and process
ids repeat.
"""

import hashlib
import os
import socket
from pathlib import Path

from deskgrid.wire.names import NAME

# Number of hexadecimal digits that stand for a host name which cannot be the name of a folder.
_DIGITS = 16


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
