"""What has arrived from peers and waits in ZeroMQ's memory, and whom to cut off when that is too much. Pure.

ZeroMQ bounds it by the number of messages, but each may be large, have any number of parts, and be there only in part.
So the bytes that arrived on each connection, as the kernel counts them, are compared with the bytes that were read.

Rule 1: the credential that has most goes first, so that a flood harms nobody else. One credential may have less than
all of them together.
Rule 2: within a credential, the address that has more than one PC needs goes first. All PCs may share a key.
Rule 3: within an address, and where there are simply many, the connections that began last go first. They come again,
and the others finish. If the largest went, a thousand PCs with large results would cut each other off for ever.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from deskgrid.wire import MESSAGE_LIMIT

# Bytes from all peers that have arrived and were not read: more than a dozen of the largest messages. Any machine that
# a broker runs on has this much memory. Between two checks, more can arrive: what the network carries in that time.
BACKLOG_LIMIT = 2**30
# Of these, from one credential: two of the largest messages. As much again may wait for its turn after being read
# (`deskgrid.broker.port.fair_queue`).
CREDENTIAL_LIMIT = 2 * MESSAGE_LIMIT
# What waits is brought down to this part of the limit, so that it is not reached again at once.
RELIEF = 0.5
# How often this is checked. A check of a thousand connections takes four milliseconds. It is skipped while the memory
# of the process, which holds all that waits, has not grown. Seconds.
LOOK_S = 0.1
# Less than this on a connection does not count: the handshake, and what arrives during the check.
SMALL = 64 * 1024
# ZeroMQ's own heartbeats are not read as messages: at most two of some forty bytes in each side's interval. Bytes per
# second.
CHATTER = 20.0
# Up to this much, an address counts like any other: the message that arrives, and the one before it.
ONE_PC = 2 * MESSAGE_LIMIT
# What CURVE adds to each frame (a name, a number, a signature, flags), and the frame's header, short and long.
CURVE_BYTES = 33
_SHORT_HEADER, _LONG_HEADER, _SHORT = 2, 9, 255


class ReceiveBudget(NamedTuple):
    """``size`` bytes wait on a connection; all arrived after ``since``. ``key`` is empty for strangers."""

    fd: int
    key: bytes
    address: str
    since: float
    size: int


def on_wire(size: int, encrypted: bool) -> int:
    """The bytes that a frame of ``size`` bytes takes on a TCP connection."""
    size += CURVE_BYTES if encrypted else 0
    return size + (_SHORT_HEADER if size <= _SHORT else _LONG_HEADER)


def surplus(waiting: Sequence[ReceiveBudget]) -> list[ReceiveBudget]:
    """Whom to cut off; nobody while everything is within its limits."""
    total = sum(backlog.size for backlog in waiting)
    of_key: Counter[bytes] = Counter()
    of_place: Counter[tuple[bytes, str]] = Counter()
    for backlog in waiting:
        of_key[backlog.key] += backlog.size
        of_place[backlog.key, backlog.address] += backlog.size
    # The empty key is that of strangers, or of everybody without encryption: only the limit for all counts.
    most = {key: math.inf if size <= CREDENTIAL_LIMIT or not key else CREDENTIAL_LIMIT for key, size in of_key.items()}
    most_of_all = math.inf if total <= BACKLOG_LIMIT else BACKLOG_LIMIT

    def worst(backlog: ReceiveBudget) -> tuple[int, bytes, int, float]:
        place = max(of_place[backlog.key, backlog.address], ONE_PC)
        return size_before[backlog.key], backlog.key, place, backlog.since

    size_before = Counter(of_key)
    found = []
    for backlog in sorted(waiting, key=worst, reverse=True):
        if total > most_of_all * RELIEF or of_key[backlog.key] > most[backlog.key] * RELIEF:
            found.append(backlog)
            total -= backlog.size
            of_key[backlog.key] -= backlog.size
    return found
