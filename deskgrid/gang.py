"""Gangs: a task that runs on several slots at once asks here which rank of it this process is.

::

    from deskgrid import gang

    def solve(size):
        part = compute(size, gang.rank, gang.size)
        everyone = gang.gather(part)             # a list on every rank, by rank
        return sum(everyone) if gang.rank == 0 else None

Submit such a function with ``grid.bag(solve, sizes, runtime=600, gang=4)``. Outside of a gang there is one rank, 0 of
1, and `barrier` and `gather` do not wait, so you can run and test the function anywhere.

`barrier` and `gather` go through the broker: they are for small values, now and then. For more, let the ranks speak to
each other: with ``mpi=True``, or with what reads the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

This file stands alone: the process that runs a task loads it by its path if deskgrid is not installed there.
"""

import socket
from typing import Protocol, TypeVar

__all__ = ["barrier", "gather", "hosts", "rank", "size"]

ValueT = TypeVar("ValueT")

# Set by the process that runs tasks. The rank of this process, how many ranks there are, and the address of the PC of
# each rank.
rank: int = 0
size: int = 1
hosts: tuple[str, ...] = (socket.gethostname(),)


class _Meeting(Protocol):
    """What the process that runs tasks knows of the other ranks."""

    def gather(self, value: ValueT, timeout: float | None) -> list[ValueT]: ...
    def barrier(self, timeout: float | None) -> None: ...


_meeting: _Meeting | None = None


def barrier(timeout: float | None = None) -> None:
    """Wait until all ranks have called it.

    Raises `TimeoutError` after ``timeout`` seconds, with the ranks that have not come; None: wait as long as it takes.
    When one rank has lost patience, it is over for all that wait: `RuntimeError` for those without a ``timeout``. All
    ranks call `barrier` and `gather` in the same order.
    """
    if _meeting is not None:
        _meeting.barrier(timeout)


def gather(value: ValueT, timeout: float | None = None) -> list[ValueT]:
    """Return the values of all ranks, by rank, on every rank, once all have called it.

    ``value``: anything that can be pickled, up to 1 MiB. ``timeout``: as in `barrier`.
    """
    return [value] if _meeting is None else _meeting.gather(value, timeout)
