"""By which address other PCs reach this one, the interface it belongs to, and free ports there."""

import secrets
import socket
import struct
import sys
from contextlib import closing, suppress
from pathlib import Path

LOCAL = "127.0.0.1"
MAC_BYTES = 6
# How often a port of a range is tried: others may have most of them.
TRIES = 200
_SIOCGIFADDR = {"linux": 0x8915, "darwin": 0xC0206921}


def address_towards(host: str, port: int) -> str | None:
    """Return the address of this PC from which it reaches a broker; None if there is no way.

    Nothing is sent: the system only chooses the way.
    """
    with suppress(OSError):
        for family, kind, protocol, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with closing(socket.socket(family, kind, protocol)) as probe, suppress(OSError):
                probe.connect(place)
                return str(probe.getsockname()[0])
    return None


def interface_of(address: str) -> str:
    """Return the name of the network interface with this address; empty if the system does not say."""
    if sys.platform == "win32" or sys.platform not in _SIOCGIFADDR:
        return ""
    else:
        import fcntl

        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
            for _, name in socket.if_nameindex():
                with suppress(OSError):  # it has no address
                    asked = struct.pack("256s", name.encode()[:15])
                    found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR[sys.platform], asked)
                    if socket.inet_ntoa(found[20:24]) == address:
                        return name
        return ""


def mac_of(address: str) -> str | None:
    """Return the address of the network card with this address of this PC; None if the system does not say."""
    if sys.platform == "win32":
        import ctypes

        found, size = ctypes.create_string_buffer(8), ctypes.c_ulong(8)
        with suppress(OSError, AttributeError):
            (number,) = struct.unpack("<I", socket.inet_aton(address))
            if not ctypes.windll.iphlpapi.SendARP(number, 0, found, ctypes.byref(size)) and size.value == MAC_BYTES:
                return _mac(found.raw[:MAC_BYTES].hex(":"))
        return None
    else:
        try:
            name = interface_of(address)
            return _mac(Path("/sys/class/net", name, "address").read_text("ascii").strip()) if name else None
        except (OSError, ValueError):
            return None


def _mac(text: str) -> str | None:
    """What is all zeros is no card, but this PC itself."""
    return text if len(text) == len("00:00:00:00:00:00") and text.strip("0:") else None


def free_port(address: str, ports: tuple[int, int] | None) -> int:
    """Return a port that is free at this address now, one of ``ports`` if there is a range; 0 if there is none."""
    for _ in range(1 if ports is None else TRIES):
        port = 0 if ports is None else ports[0] + secrets.randbelow(ports[1] - ports[0] + 1)
        with suppress(OSError):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
                probe.bind((address, port))
                return int(probe.getsockname()[1])
    return 0
