"""The addresses of a broker: its host may have several, of IPv4 and IPv6, and it may listen on only one of them."""

import selectors
import socket
import time

from deskgrid.wire.joinline import JoinLine, endpoint_of

# How long addresses may take to answer when there are several. Seconds.
ANSWER_S = 1.0


def addresses(join: JoinLine) -> list[tuple[str, int]]:
    """Return each address of the broker's host, as `socket.create_connection` takes it. Raises OSError."""
    found = socket.getaddrinfo(join.host.strip("[]"), join.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys([(str(row[4][0]), int(row[4][1])) for row in found]))


def endpoints(join: JoinLine, seconds: float = ANSWER_S) -> list[str]:
    """Return the ZeroMQ address for each address of the broker's host; if there are several, first those that answer.

    The host itself, if it has no address now.
    """
    if join.is_local:
        return [join.endpoint]
    try:
        found = addresses(join)
    except (OSError, UnicodeError):
        return [join.endpoint]
    if len(found) > 1:
        answering = _answering(found, seconds)
        found.sort(key=lambda address: address not in answering)
    return [endpoint_of(f"[{host}]" if ":" in host else host, port) for host, port in found]


def _answering(found: list[tuple[str, int]], seconds: float) -> set[tuple[str, int]]:
    """Return the addresses that take a connection, all asked at once; waits only until one does."""
    answering, end = set[tuple[str, int]](), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        lines = [socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) for host, _ in found]
        try:
            for line, address in zip(lines, found, strict=True):
                line.setblocking(False)
                line.connect_ex(address)
                selector.register(line, selectors.EVENT_WRITE, address)
            while selector.get_map() and not answering and (left := end - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    selector.unregister(key.fileobj)
                    assert isinstance(key.fileobj, socket.socket)
                    if not key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        answering.add(key.data)
        finally:
            for line in lines:
                line.close()
    return answering
