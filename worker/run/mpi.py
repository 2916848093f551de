"""How MPI programs start in the ranks of a gang: without mpiexec, ssh, or a port of ours.

An MPI library (MPICH and its relatives) asks its process manager by PMI-1, over a descriptor that it inherits, who and
where the other ranks are. Here the descriptor is one end of a socket pair; what comes out of the other end goes to the
broker, which is the process manager, and its answers come back the same way.

Rule 1: one thread per rank reads its end and touches nothing else.
Rule 2: the ranks themselves speak to each other over ports of their own, which MPI neither encrypts nor authenticates.
So a worker runs them only if it was told to.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

# Bytes that are read at once, and that a rank may say before it has an answer: PMI-1 is one line, then its answer.
CHUNK = 16 * 1024
UNANSWERED_BYTES = 64 * 1024


class Mpi(NamedTuple):
    """``interface``: of the network by which other PCs are reached; empty: MPI chooses. ``ports``: None for any."""

    interface: str = ""
    ports: tuple[int, int] | None = None

    def variables(self, rank: int, size: int) -> dict[str, str]:
        """Return what an MPI program finds in its environment, beside PMI_FD, which only its process knows."""
        found = {
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(size),
            "PMI_SPAWNED": "0",
            # MPICH's other way to speak to other PCs, UCX, does not work over the loopback interface.
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            "FI_PROVIDER": "tcp",
        }
        if self.interface:
            found["FI_TCP_IFACE"] = self.interface
        if self.ports is not None:
            found |= {"FI_TCP_PORT_LOW_RANGE": str(self.ports[0]), "FI_TCP_PORT_HIGH_RANGE": str(self.ports[1])}
        return found


class PmiEnd:
    """The worker's end of a rank's connection to its process manager. ``hear`` is called by a thread.

    ``descriptor``: of the rank's end, which its process inherits; `begin` closes it here.
    """

    def __init__(self, hear: Callable[[bytes], None]) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.descriptor = self._theirs.fileno()
        self._hear = hear
        self.unanswered = 0
        self._thread = threading.Thread(target=self._listen, name="deskgrid-pmi", daemon=True)

    def begin(self) -> None:
        """The rank's process has inherited its end, or never will."""
        self._theirs.close()
        self._thread.start()

    def _listen(self) -> None:
        with suppress(OSError):  # closed
            while data := self._ours.recv(CHUNK):
                self._hear(data)

    def say(self, data: bytes) -> bool:
        """Give the rank an answer; False if there is no room, because it has not read those before."""
        self.unanswered = 0
        try:
            return self._ours.send(data, getattr(socket, "MSG_DONTWAIT", 0)) == len(data)
        except BlockingIOError:
            return False
        except OSError:  # it has closed its end: it has ended MPI, or is about to end
            return True

    def close(self) -> None:
        """End the thread. May be called again."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()
        self._ours.close()
        self._theirs.close()
