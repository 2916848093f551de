"""How a worker and a client say and hear messages over their socket, a DEALER of ZeroMQ. It never waits."""

from typing import cast

import zmq

from deskgrid import wire

# Plain numbers: ZeroMQ's own are of an enumeration, of which each use costs as much as to hear that nothing waits.
_EVENTS, _NOBLOCK, _POLLIN = int(zmq.EVENTS), int(zmq.NOBLOCK), int(zmq.POLLIN)


def say(dealer: "zmq.Socket[bytes]", message: wire.Message) -> None:
    """Send ``message``; raises `zmq.Again` when there is no connection to take it."""
    first, *more = wire.frames_of(wire.parts_of(message))
    if more:
        dealer.send_multipart([first, *more], _NOBLOCK, copy=False)
    else:
        dealer.send(first, _NOBLOCK)


def hear(dealer: "zmq.Socket[bytes]") -> wire.Message | None:
    """The next message, or None when none waits; raises `ProtocolError` when it is none."""
    # Asked before, for to be told by an exception takes several times as long.
    if not cast(int, dealer.getsockopt(_EVENTS)) & _POLLIN:
        return None
    first = frame = dealer.recv(_NOBLOCK, copy=False)
    more: list[memoryview] = []
    while frame.more:
        frame = dealer.recv(_NOBLOCK, copy=False)
        more.append(frame.buffer)
    return wire.decode(first.bytes, more)
