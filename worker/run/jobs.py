"""Jobs and their ends: the values that a worker's session and its executor exchange."""

from typing import NamedTuple

from deskgrid.wire import Outcome, Payload, TaskOptions


class TemplateError(ValueError):
    """A template is malformed or cannot be unpacked here."""


class NoRoomError(TemplateError):
    """A template cannot be unpacked now: this PC's disk is at fault, and the bag is not."""


class Job(NamedTuple):
    """One attempt to make. ``checkpoint``: what it goes on from, empty: its start; None: it is not checkpointable.

    ``environment``: the key of the environment in which it runs; empty: that of the worker.
    """

    task: int
    number: int
    template: str
    payload: Payload
    options: TaskOptions
    checkpoint: Payload | None = None
    environment: str = ""


class JobEnded(NamedTuple):
    """One attempt that ended; ``elapsed`` in seconds. DEPARTED: it could not begin here, and counts for nothing.

    ``payload`` is the pickled value if ``outcome`` is DONE, else msgpack of [type, message, traceback, pickled
    exception or b""].
    """

    slot: int
    task: int
    number: int
    outcome: Outcome
    elapsed: float
    payload: Payload
    stdout: bytes
    stderr: bytes


class JobSaved(NamedTuple):
    """A checkpoint of a running attempt. ``progress``: as in `deskgrid.checkpoint.save`.

    ``elapsed``: how long the attempt had run; ``cost``: how long saving took. Seconds.
    """

    slot: int
    task: int
    number: int
    progress: float | None
    elapsed: float
    cost: float
    data: Payload
