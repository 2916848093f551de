"""A peer that hangs up in the middle of a flood of messages ends only its own connection."""

import time

import zmq
from zmq.utils import z85

from deskgrid import wire
from deskgrid.wire.joinline import JoinLine
from tests.hostile.lab import Lab
from tests.waiting import eventually

# By chance: a broker that can be ended so is in about one of three runs. The siege of ``make soak`` does it, too.
# ZeroMQ stops reading a connection of which too many messages wait. If it then ends, and a sign of life is among what
# was not read yet, libzmq 4.3.5 ends the process ("Assertion failed: !_io_error"; its issues 4364 and 4841).
SIGN_OF_LIFE_MS = 1
MESSAGES, WAIT_S, AT_ONCE = 3_000, 0.03, 2
HANG_UPS, OTHERS = 3, 3
TRIES_S = 8.0


def saying(context: "zmq.Context[zmq.Socket[bytes]]", line: JoinLine) -> "zmq.Socket[bytes]":
    """Say far more than is read at once, signs of life between, and read nothing."""
    assert line.keys is not None
    its = context.socket(zmq.DEALER)
    for option, value in (
        (zmq.LINGER, 200),
        (zmq.RCVHWM, 1),
        (zmq.SNDHWM, 0),
        (zmq.HEARTBEAT_IVL, SIGN_OF_LIFE_MS),
        (zmq.HEARTBEAT_TIMEOUT, 10_000),
        (zmq.CURVE_SERVERKEY, z85.encode(line.keys.server)),
        (zmq.CURVE_PUBLICKEY, z85.encode(line.keys.public)),
        (zmq.CURVE_SECRETKEY, z85.encode(line.keys.secret)),
    ):
        its.setsockopt(option, value)
    its.connect(line.endpoint)
    its.send(wire.encode(wire.Hello(wire.VERSION, "s", "mallory")))
    question = wire.encode(wire.Ask(1, "status"))
    for _ in range(MESSAGES):
        its.send(question)
    return its


def test_a_peer_that_hangs_up_while_it_says_more_than_is_read_ends_neither_the_broker_nor_the_next_connection(
    place: Lab,
) -> None:
    line, until = place.key("submitter", "mallory"), time.monotonic() + TRIES_S
    while time.monotonic() < until:
        with zmq.Context() as context:
            for _ in range(HANG_UPS):
                peers = [saying(context, line) for _ in range(AT_ONCE)]
                eventually(lambda: False, WAIT_S)
                for peer in peers:  # in the middle of it
                    peer.close()
                place.check()
        # Who comes now has the file descriptor of one of them, while what that one said is still being read.
        for _ in range(OTHERS):
            client = place.client()
            assert client.ask("ping") == {}
            client.close()
