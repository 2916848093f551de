"""What is made of the ends of all ranks of an attempt: one result, or one account of the first failure."""

from collections.abc import Callable
from dataclasses import replace

from deskgrid import wire
from deskgrid.broker.gangs.gang import GangAttempt, RankFailure
from deskgrid.broker.store.large_values import OF_RANK, OF_RANKS

# Bytes that joining the results of ranks adds to each of them, and to all, at most.
HEAD_BYTES = 16


class StoredRankResults(wire.Chunks):
    """Stands for the results of the ranks of a task, which stay in the journal one by one."""

    __slots__ = ("_length",)

    def __init__(self, cell: str, length: int) -> None:
        super().__init__((), cell)
        self._length = length

    def __len__(self) -> int:
        return self._length


def result_of(gang: GangAttempt, payloads: Callable[[int], list[wire.Payload]]) -> wire.Payload | wire.Failure:
    """The result of an attempt whose ranks have all succeeded. ``payloads``: their results, of a task."""
    task, joins = gang.attempt.task, gang.bag.row.options.gang
    size = gang.size + HEAD_BYTES * (1 + len(gang.ranks))
    if joins and size > wire.PAYLOAD_LIMIT:
        return wire.Failure(
            "ResultTooLarge",
            f"its {len(gang.ranks)} ranks return {gang.size:,} bytes together; the limit is {wire.PAYLOAD_LIMIT:,}",
        )
    if gang.size >= wire.LARGE_BYTES:
        return StoredRankResults(f"{OF_RANKS if joins else OF_RANK}{task}", size)
    its = payloads(task)
    return wire.join_ranks(its) if joins else its[0]


def account_of(gang: GangAttempt, failure: RankFailure) -> bytes:
    """The account of a failure, with the rank that failed and its PC."""
    told = wire.read_failure(failure.result.payload)
    place = gang.place(failure.rank)
    message = f"{place}: {told.message}" if told.message else place
    trace = f"{place}:\n{told.trace}" if told.trace else ""
    return replace(told, message=message, trace=trace, rank=failure.rank).packed()
