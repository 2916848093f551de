"""The messages between clients and the broker."""

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
from deskgrid.wire.records import pack_record
from deskgrid.wire.task_options import Options

# The index of a task in its bag, or the number of tasks in a bag.
Item = Annotated[int, Integer(0, BAG_LIMIT)]
# Results as the broker stores them.
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
    session: Id
    user: Name


@dataclass(frozen=True, slots=True)
class Submit:
    """One batch of a bag. If the same batch is sent again, it is accepted again but counted once.

    ``first`` is the index in the bag of the first payload. ``runtimes`` is empty if all tasks have the same
    ``runtime``, which is None if unknown. ``last`` closes the bag. ``watch``: if not 0 and the batch is accepted, the
    message is also a `Watch` with this request number and with ``after``.
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
    """Asks for the tasks of a bag that ended after ``after`` (0 for all); the answer waits until there is one."""

    request: Count
    bag: Id
    after: Count


@dataclass(frozen=True, slots=True)
class Ask:
    """Any other question or order, of `deskgrid.wire.questions`; ``args``: its packed arguments.

    ``again``: it was sent before, and perhaps carried out, but no answer came. So it is no error if what it asks for is
    so already.
    """

    request: Count
    what: Name
    args: Annotated[bytes, Data(QUESTION_BYTES)] = pack_record({})
    again: bool = False


# --- broker to client ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Greeting:
    """The client is let in."""

    version: Version
    broker: Id


@dataclass(frozen=True, slots=True)
class Accepted:
    """The batch is in the journal. ``note``: a line for people who should know something now, or empty."""

    request: Count
    bag: Id
    note: Sentence


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Answer to `Watch`: results in the order they were recorded; ask again with ``after``.

    ``settled`` of ``total`` tasks have ended; ``closed``: no more tasks will be submitted. ``results``: pieces as the
    broker stores them, each the packed columns of `BagResult`s (`pack_columns`). A nil payload stands for the next
    payload in ``large``. `results_in` converts the pieces to rows. ``receipts``: `Submit` requests that this message
    also answers, like an `Accepted` without a note.
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
