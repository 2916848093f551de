"""Wakes a PC: sends the packet for which the network card of a PC waits that is off (Wake on LAN)."""

import logging
import socket

log = logging.getLogger("deskgrid.broker")


def magic_packet(mac: str) -> bytes:
    """Return the packet for a network card."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16


def wake(mac: str, address: tuple[str, int]) -> None:
    """Send the packet to all of a network, or to one address. Whether it arrives cannot be known."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.setblocking(False)
            sender.sendto(magic_packet(mac), address)
    except OSError as error:
        log.warning("not-woken mac=%s address=%s:%d reason=%r", mac, *address, error.strerror or str(error))
