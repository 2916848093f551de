"""Jobs and their ends: the values that a worker's session and its executor exchange."""

from typing import NamedTuple

from deskgrid.wire import Outcome, Payload, TaskOptions


class TemplateError(ValueError):
    """A template is malformed or cannot be unpacked here."""


class NoRoomError(TemplateError):
    """A template cannot be unpacked now: this PC's disk is at fault, and the bag is not."""


class Job(NamedTuple):
    """One attempt to make."""

    task: int
    number: int
    template: str
    payload: Payload
    options: TaskOptions


class JobEnded(NamedTuple):
    """One attempt that ended; ``elapsed`` in seconds.

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
