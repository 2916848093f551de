"""Messages that both workers and clients send or receive."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from deskgrid.wire.fields import (
    Argument,
    Digest,
    Integer,
    Sentence,
)


class Outcome(IntEnum):
    """How one attempt ended."""

    DONE = 0
    ERROR = 1  # the task raised, or its command exited with a code other than 0
    CRASH = 2  # the task's process died
    TIMEOUT = 3  # the task ran longer than its own limit
    CANCELLED = 4  # somebody cancelled it
    DEPARTED = 5  # stopped because its PC departed; never counts against the task
    PIECE = 6  # a checkpointable task ended this piece; its checkpoint was sent before
    UNREADABLE = 7  # a checkpointable task cannot read the checkpoint that it was to go on from
    NO_ROOM = 8  # this PC cannot store what the attempt needs, because its disk is full, say; never counts against it
    NO_START = 9  # this PC could start no process for the attempt; never counts against the task


Ending = Annotated[int, Integer(Outcome.DONE, Outcome.NO_START)]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for a template."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Blob:
    """A template, by the SHA-256 of its bytes in hexadecimal."""

    digest: Digest
    data: Argument


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender closes the connection on purpose."""

    reason: Sentence


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker does not let this peer in. Trying again would not help."""

    reason: Sentence


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The broker does not know this connection (it was restarted, or the lease ran out): introduce yourself."""
