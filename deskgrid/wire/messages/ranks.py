"""The messages about parallel tasks between workers and the broker.

An attempt of a parallel task has ranks on one or more workers. It begins in two steps: each worker prepares its ranks,
and when all are ready, all start them. `Stop` ends all ranks of the attempt at a worker, or gives up its slots; it is
confirmed with `Returned` when none of them runs any more.

Rule: whatever a rank says and has no answer to is sent again after each reconnection. The numbers of meetings and the
positions of bytes tell what was said before.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from deskgrid.wire.failure import tidy_results
from deskgrid.wire.fields import Argument, AtMost, Count, Data, Integer, Seconds, Sentence
from deskgrid.wire.limits import (
    PMI_BYTES,
    RANKS_LIMIT,
    RESULTS_ROWS,
    SAID_AT_MEETING_BYTES,
    SLOTS_LIMIT,
)
from deskgrid.wire.messages.common import Ending
from deskgrid.wire.messages.worker import Printed, SlotNumber, Work
from deskgrid.wire.needs import Address, Rank, Ranks

# A port of a PC, or 0.
Port = Annotated[int, Integer(0, 65_535)]


class RankSlot(NamedTuple):
    """A slot of a worker that a rank has: a rank with several slots is several of these."""

    rank: Rank
    slot: SlotNumber


class RankRef(NamedTuple):
    """A reference to one rank of an attempt."""

    task: Count
    number: Count
    rank: Rank


class RankResult(NamedTuple):
    """One rank that ended at a worker: as in `Result`."""

    task: Count
    number: Count
    outcome: Ending
    elapsed: Seconds
    payload: Argument
    stdout: Printed
    stderr: Printed
    rank: Rank


# --- broker to worker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrepareRanks:
    """Asks the worker to get ranks of one attempt ready, so that they can start at once, and to say when they are.

    ``opening``: as in `Assign`. ``lease``: if the worker hears neither `StartRanks` nor `Stop` for so many seconds, it
    gives the slots up by itself. ``size``: how many ranks the attempt has. ``ranks``: those of this worker, ascending.
    ``work``: one row, for all of them; its slot is that of the first.
    """

    opening: Count
    lease: Seconds
    size: Ranks
    ranks: Annotated[tuple[RankSlot, ...], AtMost(SLOTS_LIMIT)]
    work: Annotated[tuple[Work, ...], AtMost(1)]


@dataclass(frozen=True, slots=True)
class StartRanks:
    """All ranks are ready: start those of this worker.

    ``hosts``: the addresses of the PCs of all ranks, by rank. ``port``: what rank 0's worker said in `RanksReady`.
    """

    task: Count
    number: Count
    hosts: Annotated[tuple[Address, ...], AtMost(RANKS_LIMIT)]
    port: Port


@dataclass(frozen=True, slots=True)
class RanksTaken:
    """The results of these ranks are in the journal, or nobody needs them: the worker can forget them."""

    ranks: Annotated[tuple[RankRef, ...], AtMost(RESULTS_ROWS)]


@dataclass(frozen=True, slots=True)
class Met:
    """Answer to every `Meet` with this number of the worker's ranks of an attempt.

    ``reason``: why they do not meet, for people; empty: they met. ``values``: what the ranks said, by rank, as a packed
    array of bytes; empty if they only met.
    """

    task: Count
    number: Count
    serial: Count
    reason: Sentence
    values: Argument


# --- worker to broker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RanksReady:
    """Everything is there for the ranks of an attempt. ``port``: one that is free at rank 0's PC; elsewhere 0."""

    task: Count
    number: Count
    port: Port


@dataclass(frozen=True, slots=True)
class RanksUnready:
    """The ranks of an attempt cannot start here, and the worker has given up their slots; ``reason``: for people."""

    task: Count
    number: Count
    reason: Sentence


@dataclass(frozen=True, slots=True)
class RanksEnded:
    """Ranks that ended. They are sent again after each reconnection until `RanksTaken` names them."""

    results: Annotated[tuple[RankResult, ...], AtMost(RESULTS_ROWS, tidy_results)]


@dataclass(frozen=True, slots=True)
class Meet:
    """A rank has come to a meeting of its gang, the ``serial``-th of its life from 1, and waits there for the others.

    ``gathers``: it brings ``data``, and wants to know what the others bring. ``overdue``: it was said before, and the
    rank does not wait any longer; the answer says whom it waited for.
    """

    task: Count
    number: Count
    rank: Rank
    serial: Count
    gathers: bool
    overdue: bool
    data: Annotated[bytes, Data(SAID_AT_MEETING_BYTES)]


# --- both ways -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PmiBytes:
    """Bytes of PMI-1 from a rank or to it.

    ``start``: from a rank, how many of its bytes went before these; to a rank, how many of its bytes the broker had
    read when it answered. So both sides know what they have had already, also after a restart of the broker.
    """

    task: Count
    number: Count
    rank: Rank
    start: Count
    data: Annotated[bytes, Data(PMI_BYTES)]
