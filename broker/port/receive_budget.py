"""What has arrived from peers and waits to be read, in ZeroMQ's memory, and whom to cut off when it is too much. Pure.

ZeroMQ bounds what waits by messages, of which each may be large, may be in parts without end, and may be there by half.
So what has arrived over each connection, as the kernel counts it, is compared with what was read of it.

Rule 1: of too much, the credential goes first that has most: whoever floods harms nobody else. One credential alone
may have less than all of them together.
Rule 2: of one credential, the address goes first that has more than one of its kind needs. All PCs share a key.
Rule 3: of one address, and where there are just many, those go first that began last: they come again, and the others
get done. Were it the largest, a thousand PCs with large results would cut each other off for ever.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from deskgrid.wire import MESSAGE_LIMIT

# Bytes that have arrived and were not read, of all peers: more than a dozen of the largest messages at a time. Any
# machine that a broker runs on has it. More can come between two looks: what the network carries in that time.
BACKLOG_LIMIT = 2**30
# Of that, from one credential: two of the largest messages. As much again may have been read and wait for its turn
# (`deskgrid.broker.port.fair_queue`).
CREDENTIAL_LIMIT = 2 * MESSAGE_LIMIT
# To which part of it what waits is brought down, so that it is not there again at once.
RELIEF = 0.5
# How often it is looked at. Seconds. A look at a thousand connections takes four milliseconds; none is taken while
# the memory of the process, which has all that waits, has not grown.
LOOK_S = 0.1
# Less than this of a connection does not count: the handshake, and what arrives while one looks.
SMALL = 64 * 1024
# Signs of life are not read as messages: at most two of some forty bytes from each side's interval. Bytes in a second.
CHATTER = 20.0
# What one address may have waiting like any other: the message that arrives, and the one before it.
ONE_PC = 2 * MESSAGE_LIMIT
# What CURVE adds to each frame (a name, a number, a signature, flags), and the frame's header, short and long.
CURVE_BYTES = 33
_SHORT_HEADER, _LONG_HEADER, _SHORT = 2, 9, 255


class ReceiveBudget(NamedTuple):
    """``size`` bytes of a connection wait, all of them arrived after ``since``. ``key`` is empty for strangers."""

    fd: int
    key: bytes
    address: str
    since: float
    size: int


def on_wire(size: int, encrypted: bool) -> int:
    """The bytes that a frame of ``size`` bytes is on a TCP connection."""
    size += CURVE_BYTES if encrypted else 0
    return size + (_SHORT_HEADER if size <= _SHORT else _LONG_HEADER)


def surplus(waiting: Sequence[ReceiveBudget]) -> list[ReceiveBudget]:
    """Whom to cut off; nobody while what waits is within its limits."""
    total = sum(backlog.size for backlog in waiting)
    of_key: Counter[bytes] = Counter()
    of_place: Counter[tuple[bytes, str]] = Counter()
    for backlog in waiting:
        of_key[backlog.key] += backlog.size
        of_place[backlog.key, backlog.address] += backlog.size
    # Without a key there are only strangers, or there is no encryption: then only the limit for all counts.
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
