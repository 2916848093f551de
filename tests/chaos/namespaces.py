"""PCs in network namespaces of their own, on a switch whose cables can be pulled: then packets vanish silently.

Only for root on Linux, in a process that already has a network namespace of its own: ``unshare --net``.

Rule: nothing here has a name that others could see. A namespace exists as long as the process that holds it, which ends
with its input. A cable ends with the namespaces at its ends. So nothing is left, however a test ends.
"""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

from deskgrid.wire.joinline import JoinLine
from tests.waiting import PATIENCE_S, eventually

_TOOLS = ("unshare", "nsenter", "ip")
# Addresses of the broker's end and of PCs; of no importance outside these namespaces.
_BROKER, _PC = "10.0.0.1", "10.0.0.{}"
_BRIDGE = "switch"


def missing() -> str:
    """Why cables cannot be pulled on this machine; empty when they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces are for root on Linux"
    if lacking := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"there is no {' and no '.join(lacking)}"
    trial = ["unshare", "--net", "--", "ip", "link", "add", _BRIDGE, "type", "bridge"]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return f"no switch can be made here: {done.stderr.strip()}" if done.returncode else ""


def _ip(*arguments: str, prefix: tuple[str, ...] = ()) -> None:
    subprocess.run([*prefix, "ip", *arguments], check=True)


class Switch:
    """The switch, and the broker's machine on it, in the namespace of this process."""

    listen = f"{_BROKER}:0"

    def __init__(self) -> None:
        self._numbers = itertools.count(2)
        _ip("link", "set", "lo", "up")
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("address", "add", f"{_BROKER}/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")

    def cable(self, line: JoinLine) -> "Wire":
        """A cable to a PC's own namespace."""
        return Wire(next(self._numbers))


class Wire:
    """A cable from the switch to a namespace, which is held by a process."""

    def __init__(self, number: int) -> None:
        self._port = f"port{number}"
        holder = ["unshare", "--net", "--", "cat"]
        self._holder = subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        namespace = f"/proc/{self._holder.pid}/ns/net"
        ours = os.readlink("/proc/self/ns/net")
        assert eventually(lambda: os.readlink(namespace) != ours, PATIENCE_S), "no namespace is made"
        # What a command begins with, to run at its end.
        self.prefix: tuple[str, ...] = ("nsenter", f"--net={namespace}", "--")
        _ip("link", "add", self._port, "type", "veth", "peer", "name", "lan", "netns", str(self._holder.pid))
        _ip("link", "set", self._port, "master", _BRIDGE, "up")
        _ip("address", "add", f"{_PC.format(number)}/24", "dev", "lan", prefix=self.prefix)
        _ip("link", "set", "lan", "up", prefix=self.prefix)

    def dialled(self, line: JoinLine) -> JoinLine:
        """``line`` as whoever is at its end has to dial it: as it is."""
        return line

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What can be done to it, until `mend`."""
        return {"pull": self.pull}

    def pull(self) -> None:
        """Out of the switch: whatever is sent to the PC is lost, and its own network is down."""
        _ip("link", "set", self._port, "down")

    def mend(self) -> None:
        """Into the switch again."""
        _ip("link", "set", self._port, "up")

    def close(self) -> None:
        """The namespace ends, and with it the cable."""
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait(PATIENCE_S)
