"""What workers and the broker say to each other, and how a PC enrols."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from deskgrid.wire.failure import tidy_results
from deskgrid.wire.fields import (
    Argument,
    AtMost,
    Count,
    Data,
    Digest,
    Document,
    Id,
    Integer,
    Name,
    PythonVersion,
    Seconds,
    Sentence,
    Version,
)
from deskgrid.wire.limits import (
    BATCH_ROWS,
    HELD_ROWS,
    KEY_BYTES,
    PRINTED_BYTES,
    SLOTS_LIMIT,
    TABLE_BYTES,
    WINDOWS_LIMIT,
)
from deskgrid.wire.messages.common import Ending
from deskgrid.wire.task_options import Options

# A slot of a worker.
SlotNumber = Annotated[int, Integer(0, SLOTS_LIMIT - 1)]
Printed = Annotated[bytes, Data(PRINTED_BYTES)]
PublicKey = Annotated[bytes, Data(KEY_BYTES)]
# Windows of one worker, as the broker's file has them.
Table = Annotated[str, Document(TABLE_BYTES)]


class Window(NamedTuple):
    """A planned time a PC is available, relative to the moment of sending. Seconds."""

    starts_in: Seconds
    lasts: Seconds


class Running(NamedTuple):
    """An attempt that a worker holds; ``elapsed`` is None when it has not started."""

    task: Count
    number: Count
    slot: SlotNumber
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
    slot: SlotNumber
    template: Digest
    runtime: Seconds
    options: Options
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
    """The worker is still here. ``uptime`` is as in `Join`; ``windows`` None: they are as last announced."""

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
    """The worker is let in, as ``name``. ``windows``: the broker's plan for it as JSON, or None."""

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
