"""Questions about a connection by its file descriptor, and ending it. ZeroMQ keeps owning the connections."""

import socket
import struct
import sys
from contextlib import suppress

# The offset of `tcpi_bytes_received`, eight bytes, in the `tcp_info` of <linux/tcp.h>, and how much to ask for.
_RECEIVED_AT = 128
_INFO_BYTES = _RECEIVED_AT + 8


def files_allowed(wanted: int) -> int:
    """Raise the limit on open files as far as possible, up to ``wanted``, and return how many are allowed."""
    allowed = wanted
    if sys.platform != "win32":  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY:
            allowed = min(hard, allowed)
        if soft != resource.RLIM_INFINITY:
            if soft < allowed:
                resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            allowed = max(soft, allowed)
    return allowed


# A host and a port; of the local socket of a private grid, its path and 0.
Address = tuple[str, int]


def address(fd: int) -> Address:
    """The address at the other end of a connection; empty when the connection has ended."""
    with suppress(OSError):
        line = socket.socket(fileno=fd)
        try:
            return _other_end(line)
        finally:
            line.detach()
    return "", 0


def cut(fd: int, other_end: Address) -> None:
    """End the connection to ``other_end``, if ``fd`` is still its descriptor. ZeroMQ's monitor reports the end."""
    with suppress(OSError):  # it has ended already
        line = socket.socket(fileno=fd)
        try:
            if _other_end(line) == other_end:
                line.shutdown(socket.SHUT_RDWR)
        finally:
            line.detach()


def _other_end(line: socket.socket) -> Address:
    if line.family not in (socket.AF_INET, socket.AF_INET6):
        # The listening end of a local socket has a name, and no other socket that may have its descriptor by now.
        if not (name := line.getsockname()):
            raise OSError("the connection has ended, and its descriptor is that of another kind of socket")
        return str(name), 0
    host, port = line.getpeername()[:2]
    return str(host), int(port)


def received(fd: int) -> int:
    """Bytes that have arrived on a connection since it began, as Linux counts them; 0 on other systems."""
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended already
            # Without family and type, Python would look them up. For this call, an IPv6 connection may pass as IPv4. A
            # local one fails: it has no such count.
            line = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
            try:
                info = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            finally:
                line.detach()
            if len(info) == _INFO_BYTES:  # Linux 4.1 and later
                return int(struct.unpack_from("=Q", info, _RECEIVED_AT)[0])
    return 0
