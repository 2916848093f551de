"""The result of a gang: the results of its ranks, one after the other, as one payload.

Rule: it begins with a mark that no other payload begins with: no pickle, no UTF-8 text, no account of a failure, and no
payload that needs trees. So whoever reads a result sees whether it is a gang's.
"""

from collections.abc import Sequence

from deskgrid.wire.limits import LARGE_BYTES
from deskgrid.wire.payload import Chunks, Payload, slice_of

# What the result of a gang begins with: the mark, and how many ranks follow. Then comes the length of each rank's
# result, and then the results.
RANKS_MARK = b"\xc0"
_HEAD_BYTES = 5
_LENGTH_BYTES = 8


class RanksRefused(ValueError):
    """This is not the result of a gang; the message says why in one line."""


def join_ranks(payloads: Sequence[Payload]) -> Payload:
    """Return the results of all ranks, by rank, as one payload. Large results are not copied."""
    lengths = [len(payload).to_bytes(_LENGTH_BYTES, "big") for payload in payloads]
    small = [RANKS_MARK + len(payloads).to_bytes(_HEAD_BYTES - 1, "big"), *lengths]
    pieces = list[memoryview]()
    for payload in payloads:
        if isinstance(payload, bytes):
            small.append(payload)
        else:  # small results between two large ones are one piece
            pieces += [memoryview(b"".join(small)), *payload.frames()]
            small = []
    pieces.append(memoryview(b"".join(small)))
    whole = Chunks([piece for piece in pieces if len(piece)])
    return whole if len(whole) >= LARGE_BYTES else bytes(whole)


def split_ranks(payload: Payload) -> list[Payload] | None:
    """Return the results of the ranks, by rank; None if this is not the result of a gang. Raises `RanksRefused`."""
    head = bytes(slice_of(payload, 0, _HEAD_BYTES))
    if head[:1] != RANKS_MARK:
        return None
    count = int.from_bytes(head[1:], "big")
    at = _HEAD_BYTES + count * _LENGTH_BYTES
    if len(head) < _HEAD_BYTES or not count or at > len(payload):
        raise RanksRefused("the result of a gang whose list of ranks makes no sense")
    table = bytes(slice_of(payload, _HEAD_BYTES, count * _LENGTH_BYTES))
    starts = range(0, len(table), _LENGTH_BYTES)
    lengths = [int.from_bytes(table[start : start + _LENGTH_BYTES], "big") for start in starts]
    if at + sum(lengths) != len(payload):
        raise RanksRefused("the result of a gang whose ranks' results are not as long as it says")
    found = list[Payload]()
    for length in lengths:
        found.append(slice_of(payload, at, length))
        at += length
    return found
