"""The socket of workers and clients, a ZeroMQ DEALER; sending and receiving on it never waits.

And the CURVE key pairs with which ZeroMQ encrypts connections and identifies peers.
"""

from collections.abc import Mapping
from typing import cast

import zmq
from zmq.utils import z85

from deskgrid import wire
from deskgrid.wire.joinline import JoinLine

# Plain integers, because each use of ZeroMQ's enumeration costs as much as the check whether a message has arrived.
_EVENTS, _NOBLOCK, _POLLIN = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)
# A public key and its secret key, 32 bytes each.
KeyPair = tuple[bytes, bytes]


def dealer_for(
    join: JoinLine, context: "zmq.Context[zmq.Socket[bytes]]", dead_link_s: float, options: Mapping[int, int]
) -> "zmq.Socket[bytes]":
    """Return a socket that `connect` connects to the broker of ``join``, encrypted if ``join`` has keys.

    ``dead_link_s``: seconds until ZeroMQ's own heartbeats notice a connection that died silently.
    """
    dealer = context.socket(zmq.DEALER)
    settings = {
        zmq.MAXMSGSIZE: wire.MESSAGE_LIMIT,
        zmq.HEARTBEAT_IVL: int(dead_link_s * 1000) // 3,
        zmq.HEARTBEAT_TIMEOUT: int(dead_link_s * 1000),
    }
    for option, value in (settings | dict(options)).items():
        dealer.setsockopt(option, value)
    if join.keys is not None:
        dealer.setsockopt(zmq.CURVE_SERVERKEY, z85.encode(join.keys.server))
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(join.keys.public))
        dealer.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(join.keys.secret))
    return dealer


def connect(dealer: "zmq.Socket[bytes]", endpoint: str) -> None:
    """Connect to one address of the broker."""
    dealer.setsockopt(zmq.IPV6, int("[" in endpoint))
    dealer.connect(endpoint)


def say(dealer: "zmq.Socket[bytes]", message: wire.Message) -> None:
    """Send ``message``; raises `zmq.Again` if there is no connection."""
    first, *more = wire.frames_of(wire.parts_of(message))
    if more:
        dealer.send_multipart([first, *more], _NOBLOCK, copy=False)
    else:
        dealer.send(first, _NOBLOCK)


def hear(dealer: "zmq.Socket[bytes]") -> wire.Message | None:
    """Return the next message, or None if nothing has arrived; raises `ProtocolError` if it is not a message."""
    # Check first: an exception for "nothing has arrived" takes several times as long.
    if not cast(int, dealer.getsockopt(_EVENTS)) & _POLLIN:
        return None
    first = frame = dealer.recv(_NOBLOCK, copy=False)
    more: list[memoryview] = []
    while frame.more:
        frame = dealer.recv(_NOBLOCK, copy=False)
        more.append(frame.buffer)
    return wire.decode(first.bytes, more)


def new_pair() -> KeyPair:
    """A new key pair."""
    public, secret = zmq.curve_keypair()
    return z85.decode(public), z85.decode(secret)
