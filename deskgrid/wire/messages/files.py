"""The messages that move stored files: the same for workers and clients.

Whoever has a file offers the digests of its parts, sends those that the broker lacks, and each is confirmed when it is
in the journal. Whoever needs one asks for its parts. So a file that the broker has does not travel again, and a
transfer that was cut goes on where it stopped.
"""

from dataclasses import dataclass
from typing import Annotated

from deskgrid.wire.fields import Count, Digests, Id, PartData, PartDigest
from deskgrid.wire.limits import OFFER_PARTS

Parts = Annotated[bytes, Digests(OFFER_PARTS)]


# --- to the broker ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """Says that ``holder`` needs these parts, and asks which of them the broker lacks.

    ``holder``: from a client the id of a bag, which may be submitted later; from a worker TASK.NUMBER, an attempt.
    ``size``: the bytes of these parts. ``first``: the most bytes of files that a task of the bag needs on a PC that has
    none of them; ``each``: how many of these are new for each task, on average.
    """

    request: Count
    holder: Id
    parts: Parts
    size: Count
    first: Count
    each: Count


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a file for ``holder``, as in `Offer`; the broker's answer to a `Want`."""

    request: Count
    holder: Id
    digest: PartDigest
    data: PartData


@dataclass(frozen=True, slots=True)
class Want:
    """Asks for one part, which comes as a `Part`. ``holder``: as in `Offer`."""

    request: Count
    holder: Id
    digest: PartDigest


@dataclass(frozen=True, slots=True)
class Claim:
    """Asks, from a worker, which of these parts the owner of ``holder`` lacks: the PC has them, perhaps from others.

    The answer is a `Lacks`. ``holder``: as in `Want`.
    """

    request: Count
    holder: Id
    parts: Parts


# --- from the broker -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lacks:
    """Answer to `Offer`, which is in the journal, or to `Claim`: the parts that the owner has not sent."""

    request: Count
    parts: Parts


@dataclass(frozen=True, slots=True)
class Kept:
    """The part is in the journal."""

    request: Count
