"""What is said of a task that is given up because it crashes: to its last words, all the PCs on which it did."""

from collections.abc import Sequence

import msgpack

from broker.protocol import pack_failure


def with_places(payload: bytes, places: Sequence[str]) -> bytes:
    """The ``payload`` of a crash with the workers named; as it is when it makes no sense, for a worker made it."""
    try:
        kind, message, trace, pickled = msgpack.unpackb(payload)
    except (ValueError, TypeError, msgpack.UnpackException):
        return payload
    return pack_failure(kind, f"{message} (crashed {len(places)} times, on {', '.join(places)})", trace, pickled)
