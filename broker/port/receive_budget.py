"""The bytes from peers that wait unread in ZeroMQ's memory, and the peers to cut off when there are too many. Pure.

ZeroMQ can limit only the number of messages, but a message may be large, have any number of parts, and have arrived
only in part. So the broker compares the bytes that arrived on each connection, as the kernel counts them, with the
bytes that it has read.

Rule 1: the credential with the most unread bytes is cut off first, so that a flood harms nobody else. The limit for one
credential is lower than the limit for all together.
Rule 2: within a credential, an address with more unread bytes than one PC needs is cut off first. All PCs may share a
key.
Rule 3: within an address, and if there are simply many connections, those that began to wait last are cut off first.
They connect again, and the others finish. If the largest were cut off first, a thousand PCs with large results would
cut each other off for ever.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from deskgrid.wire import MESSAGE_LIMIT

# Unread bytes from all peers: more than a dozen of the largest messages. Any machine that a broker runs on has this
# much memory. Between two checks more can arrive: as much as the network carries in that time.
BACKLOG_LIMIT = 2**30
# Unread bytes from one credential: two of the largest messages. As much again may wait for its turn after it was read
# (`deskgrid.broker.port.fair_queue`).
CREDENTIAL_LIMIT = 2 * MESSAGE_LIMIT
# The unread bytes are brought down to this part of the limit, so that the limit is not reached again at once.
RELIEF = 0.5
# How often this is checked. A check of a thousand connections takes four milliseconds. The check is skipped while the
# memory of the process, which holds all unread bytes, has not grown. Seconds.
LOOK_S = 0.1
# Less than this on a connection does not count: the handshake, and what arrives during the check.
SMALL = 64 * 1024
# ZeroMQ's own heartbeats are not read as messages: at most two of some forty bytes in each side's interval. Bytes per
# second.
CHATTER = 20.0
# Addresses with up to this many unread bytes count alike: the message that is arriving, and the one before it.
ONE_PC = 2 * MESSAGE_LIMIT
# The bytes that CURVE adds to each frame (a name, a number, a signature, flags), and those of a frame's header, short
# and long.
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
    """The connections to cut off; none while everything is within its limits."""
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
