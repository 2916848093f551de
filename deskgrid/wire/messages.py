"""Every message, and every row in one. What each field may be stands beside it, and is checked while it is decoded.

A message is a frozen dataclass. A row (one of many in a message) is a named tuple, because a busy grid makes thousands
of them a second and a named tuple costs a third of a frozen dataclass.

Rule 1: durations in seconds, never dates: the clocks of lab PCs are wrong.
Rule 2: an honest peer keeps to the limits by itself: it refuses what is over one before it sends anything.
"""

import typing
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, NamedTuple

from deskgrid.wire.failure import tidy_results
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
    CONTROL_BYTES,
    HELD_ROWS,
    KEY_BYTES,
    MESSAGE_LIMIT,
    NAME_BYTES,
    PRINTED_BYTES,
    QUESTION_BYTES,
    RETRIES_LIMIT,
    SAID_BYTES,
    SLOTS_LIMIT,
    TABLE_BYTES,
    WINDOWS_LIMIT,
)


class Outcome(IntEnum):
    """How one attempt ended."""

    DONE = 0
    ERROR = 1  # the task raised, or its command exited with a code other than 0
    CRASH = 2  # the task's process died
    TIMEOUT = 3  # the task ran longer than its own limit
    CANCELLED = 4  # somebody cancelled it
    DEPARTED = 5  # stopped because its PC goes away; never counts against the task


Ending = Annotated[int, Integer(Outcome.DONE, Outcome.DEPARTED)]
# The place of a task in its bag; how many there are.
Item = Annotated[int, Integer(0, BAG_LIMIT)]
# A slot of a worker.
Lane = Annotated[int, Integer(0, SLOTS_LIMIT - 1)]
Printed = Annotated[bytes, Data(PRINTED_BYTES)]
PublicKey = Annotated[bytes, Data(KEY_BYTES)]
# Windows of one worker, as the broker's file has them.
Table = Annotated[str, Document(TABLE_BYTES)]
# Results as the broker keeps them.
Piece = Annotated[bytes, Data(MESSAGE_LIMIT)]


class Window(NamedTuple):
    """A planned time a PC is available, relative to the moment of sending. Seconds."""

    starts_in: Seconds
    lasts: Seconds


class Running(NamedTuple):
    """An attempt that a worker holds; ``elapsed`` is None when it has not started."""

    task: Count
    number: Count
    slot: Lane
    elapsed: Seconds | None


class Ref(NamedTuple):
    """One attempt, by name."""

    task: Count
    number: Count


Windows = Annotated[tuple[Window, ...], AtMost(WINDOWS_LIMIT)]
# What a worker has, or had.
Held = Annotated[tuple[Running, ...], AtMost(HELD_ROWS)]
Attempts = Annotated[tuple[Ref, ...], AtMost(HELD_ROWS)]


class Work(NamedTuple):
    """One attempt to make."""

    task: Count
    number: Count
    slot: Lane
    template: Digest
    runtime: Seconds
    timeout: Seconds | None
    payload: Argument


class Result(NamedTuple):
    """One attempt that ended at a worker."""

    task: Count
    number: Count
    outcome: Ending
    elapsed: Seconds
    payload: Argument
    stdout: Printed
    stderr: Printed


class BagResult(NamedTuple):
    """The end of task ``item`` of a bag (0 for its first), as its submitter sees it."""

    item: Item
    outcome: Ending
    elapsed: Seconds
    worker: Annotated[str, Line(NAME_BYTES, shorten=True)]
    payload: Argument


# --- worker to broker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A worker introduces itself, at connecting and whenever a window opens.

    ``uptime``: seconds left of the current window; None open-ended; 0.0 away (no window is open now).
    ``kind`` and ``plan``: which sort of plan and one line that describes it to people. ``opening`` grows with each
    introduction of a session; work assigned in answer to an earlier one is void, for ``running`` does not have it.
    """

    version: Version
    python: PythonVersion
    name: Name
    session: Id
    opening: Count
    host: Name
    site: Name
    slots: Annotated[int, Integer(1, SLOTS_LIMIT)]
    kind: Id
    plan: Sentence
    uptime: Seconds | None
    windows: Windows
    running: Held


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Still here; remaining seconds as in `Join`. ``windows`` None: those to come are the ones last announced."""

    uptime: Seconds | None
    windows: Windows | None


@dataclass(frozen=True, slots=True)
class Finished:
    """Attempts that ended. Sent again after a reconnection until `Taken` names them."""

    results: Annotated[tuple[Result, ...], AtMost(BATCH_ROWS, tidy_results)]


@dataclass(frozen=True, slots=True)
class Leave:
    """A departure; ``held`` is handed back (elapsed None: it had not started).

    ``planned``: the window closes, as announced; otherwise somebody stops the worker before that. ``stopping``: its
    process ends too, so it will not be back by itself.
    """

    reason: Sentence
    planned: bool
    stopping: bool
    windows: Windows
    held: Held


@dataclass(frozen=True, slots=True)
class Returned:
    """Recalled attempts that had not started; they never will."""

    attempts: Attempts


# --- broker to worker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """A worker is in, under ``name``. ``windows``: the broker's plan for it as JSON, or None."""

    version: Version
    broker: Id
    name: Name
    heartbeat: Seconds
    lease: Seconds
    windows: Table | None


@dataclass(frozen=True, slots=True)
class Assign:
    """Attempts to make, in this order on each slot; ``opening`` is that of the introduction the broker knows."""

    opening: Count
    work: Annotated[tuple[Work, ...], AtMost(BATCH_ROWS)]


@dataclass(frozen=True, slots=True)
class Recall:
    """Hand these back if they have not started."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill these; nobody waits for an answer."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class Taken:
    """These results are in the journal (or nobody wants them): forget them."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class Planned:
    """The broker's plan for this worker changed."""

    windows: Table | None


# --- both ways -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send me this template."""

    digest: Digest


@dataclass(frozen=True, slots=True)
class Blob:
    """A template, by the SHA-256 of its bytes in hexadecimal."""

    digest: Digest
    data: Argument


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender ends on purpose."""

    reason: Sentence


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not have this peer; trying again as it is would not help."""

    reason: Sentence


@dataclass(frozen=True, slots=True)
class Rejoin:
    """The broker does not know this connection (it was restarted, or the lease ran out): introduce yourself."""


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
    timeout: Seconds | None
    retries: Annotated[int, Integer(0, RETRIES_LIMIT)]
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
    """A client is in."""

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


# --- enrolment -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Enrol:
    """A worker that came with a lab's line asks to be known by a key of its own, under ``name``."""

    version: Version
    name: Name
    public: PublicKey


@dataclass(frozen=True, slots=True)
class Enrolled:
    """Answer to `Enrol`, when it is on the disk: the name and the public key by which the PC is let in from now on."""

    name: Name
    public: PublicKey


Message = (
    Join
    | Heartbeat
    | Finished
    | Leave
    | Returned
    | Welcome
    | Assign
    | Recall
    | Stop
    | Taken
    | Planned
    | Fetch
    | Blob
    | Goodbye
    | Refused
    | Rejoin
    | Hello
    | Submit
    | Watch
    | Ask
    | Greeting
    | Accepted
    | Outcomes
    | Answer
    | Failed
    | Enrol
    | Enrolled
)

# The tag of a message is its place here, so a new one goes to the end.
MESSAGES: tuple[type[Message], ...] = typing.get_args(Message)

FROM_LAB = (Enrol,)
FROM_WORKER = (Join, Heartbeat, Finished, Leave, Returned, Fetch)
FROM_CLIENT = (Hello, Submit, Watch, Ask, Blob, Goodbye)

# Bytes of a message at most, not counting the large payloads behind it. Those that are not named are control messages.
MOST: dict[type[Message], int] = dict.fromkeys(MESSAGES, CONTROL_BYTES)
MOST |= dict.fromkeys((Finished, Submit, Blob), SAID_BYTES)
MOST |= dict.fromkeys((Assign, Outcomes, Answer), MESSAGE_LIMIT)
