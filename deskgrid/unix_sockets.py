"""Sockets between the processes of one machine."""

import socket
import sys


def unix_socket(kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Make one. Raises OSError; always on Windows, whose Python has none."""
    if sys.platform == "win32":
        raise OSError("this system has no such sockets")
    else:
        return socket.socket(socket.AF_UNIX, kind)
