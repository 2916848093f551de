"""What clients and the broker say to each other."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from deskgrid.wire.fields import (
    Argument,
    Arguments,
    AtMost,
    Count,
    Data,
    Digest,
    Document,
    Id,
    Integer,
    Line,
    Name,
    PythonVersion,
    Seconds,
    Sentence,
    Version,
)
from deskgrid.wire.limits import (
    ANSWER_BYTES,
    BAG_LIMIT,
    BATCH_ROWS,
    MESSAGE_LIMIT,
    NAME_BYTES,
    QUESTION_BYTES,
)
from deskgrid.wire.messages.common import Ending
from deskgrid.wire.task_options import Options

# The place of a task in its bag; how many there are.
Item = Annotated[int, Integer(0, BAG_LIMIT)]
# Results as the broker keeps them.
Piece = Annotated[bytes, Data(MESSAGE_LIMIT)]


class BagResult(NamedTuple):
    """The end of task ``item`` of a bag (0 for its first), as its submitter sees it."""

    item: Item
    outcome: Ending
    elapsed: Seconds
    worker: Annotated[str, Line(NAME_BYTES, shorten=True)]
    payload: Argument


# --- client to broker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """A client introduces itself."""

    version: Version
    python: PythonVersion
    session: Id
    user: Name


@dataclass(frozen=True, slots=True)
class Submit:
    """One batch of a bag. The same batch sent again is accepted again and counted once.

    ``first`` is the index in the bag of the first payload. ``runtimes`` is empty when all have ``runtime``, which is
    None when nobody said. ``last`` closes the bag. ``watch``: if the batch is accepted, this is also a `Watch` of that
    number, with ``after``; 0: it is not.
    """

    request: Count
    bag: Id
    name: Name
    template: Digest
    first: Item
    payloads: Arguments
    runtime: Seconds | None
    runtimes: Annotated[tuple[Seconds, ...], AtMost(BATCH_ROWS)]
    options: Options
    last: bool
    watch: Count = 0
    after: Count = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """Tell me what ended in this bag after ``after`` (0 for all); the answer waits until there is something."""

    request: Count
    bag: Id
    after: Count


@dataclass(frozen=True, slots=True)
class Ask:
    """A question or an order other than the above; ``args`` is a JSON object."""

    request: Count
    what: Name
    args: Annotated[str, Document(QUESTION_BYTES)]


# --- broker to client ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greeting:
    """The client is let in."""

    version: Version
    broker: Id
    python: PythonVersion


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is in the journal. ``note`` is for people: empty, or what they should know now."""

    request: Count
    bag: Id
    note: Sentence


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Answer to `Watch`: results in the order they were recorded; ask again with ``after``.

    ``settled`` of ``total`` tasks have ended; ``closed`` when no more will be submitted.
    ``results``: pieces, each the packed columns of `BagResult`s (`pack_columns`), as the broker keeps them; nil stands
    for a payload in ``large``, where they are in order. `results_in` makes rows of them. ``receipts``: requests that
    are answered by this, too, as by an `Accepted` without a note.
    """

    request: Count
    bag: Id
    results: Annotated[tuple[Piece, ...], AtMost(BATCH_ROWS)]
    large: Arguments
    after: Count
    settled: Item
    total: Item
    closed: bool
    receipts: Annotated[tuple[Count, ...], AtMost(BATCH_ROWS)] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to `Ask`: a JSON document."""

    request: Count
    body: Annotated[str, Document(ANSWER_BYTES)]


@dataclass(frozen=True, slots=True)
class Failed:
    """The request was not carried out; ``reason`` is one line for people."""

    request: Count
    reason: Sentence
