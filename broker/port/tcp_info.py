"""What is asked of a connection, and done to it, by its file descriptor. The connections stay ZeroMQ's."""

import socket
import struct
import sys
from contextlib import suppress

# Where `tcpi_bytes_received`, eight bytes, is in the `tcp_info` of <linux/tcp.h>, and what is asked for to have it.
_RECEIVED_AT = 128
_INFO_BYTES = _RECEIVED_AT + 8


def files_allowed(wanted: int) -> int:
    """How many files this process may have open, ``wanted`` at most, after it asked for as many as it can have."""
    allowed = wanted
    if sys.platform != "win32":  # which has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY:
            allowed = min(hard, allowed)
        if soft != resource.RLIM_INFINITY:
            if soft < allowed:
                resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            allowed = max(soft, allowed)
    return allowed


def address(fd: int) -> str:
    """The address at the other end of a connection; empty when it has ended already."""
    with suppress(OSError):
        line = socket.socket(fileno=fd)
        try:
            return str(line.getpeername()[0])
        finally:
            line.detach()
    return ""


def cut(fd: int) -> None:
    """End a connection; ZeroMQ notices, and says so by the monitor."""
    with suppress(OSError):  # it has ended already
        line = socket.socket(fileno=fd)
        try:
            line.shutdown(socket.SHUT_RDWR)
        finally:
            line.detach()


def received(fd: int) -> int:
    """Bytes that arrived over a connection since it began, as Linux counts them; 0 where nobody does."""
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended already
            # All is told, or Python asks for it; that one which is of IPv6 is called IPv4 here does not matter.
            line = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
            try:
                info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            finally:
                line.detach()
            if len(info) == _INFO_BYTES:  # Linux 4.1 and later
                return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0])
    return 0
