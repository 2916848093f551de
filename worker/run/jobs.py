"""Jobs and their ends: the values that a worker's session and its executor exchange."""

from typing import NamedTuple

from deskgrid.wire import Outcome, Payload, TaskOptions


class TemplateError(ValueError):
    """A template is malformed or cannot be unpacked here."""


class NoRoomError(TemplateError):
    """A template cannot be unpacked now: this PC's disk is at fault, and the bag is not."""


class Program(NamedTuple):
    """One run of a program: a bag, or all calls of one `Grid`. A process serves only one, and only its ``owner``."""

    owner: str
    name: str


NOBODYS = Program("", "")


class Job(NamedTuple):
    """One attempt to make. ``checkpoint``: what it goes on from, empty: its start; None: it is not checkpointable.

    ``environment``: the key of the environment in which it runs; empty: that of the worker. ``program``: whose it is,
    and of which run of a program.
    """

    task: int
    number: int
    template: str
    payload: Payload
    options: TaskOptions
    checkpoint: Payload | None = None
    environment: str = ""
    program: Program = NOBODYS


class RankJob(NamedTuple):
    """One rank of a gang to make. ``slot``: the first that it occupies, of ``slots``. ``size``: ranks of the gang."""

    task: int
    number: int
    rank: int
    size: int
    slot: int
    slots: int
    template: str
    payload: Payload
    options: TaskOptions
    environment: str = ""
    program: Program = NOBODYS

    @property
    def key(self) -> "RankKey":
        """What it is known by."""
        return self.task, self.number, self.rank


# Task, number of the attempt, rank.
RankKey = tuple[int, int, int]


class RankReady(NamedTuple):
    """A rank can begin at once."""

    key: RankKey


class RankRefused(NamedTuple):
    """A rank cannot begin here; ``reason``: for people."""

    key: RankKey
    reason: str


class RankEnded(NamedTuple):
    """A rank that had begun ended."""

    key: RankKey
    ended: "JobEnded"


class RankStopped(NamedTuple):
    """What a rank printed that had begun, and was stopped after ``elapsed`` seconds."""

    key: RankKey
    elapsed: float
    stdout: bytes
    stderr: bytes


class RankMeets(NamedTuple):
    """A rank has come to a meeting of its gang: see `deskgrid.wire.Meet`."""

    task: int
    number: int
    serial: int
    gathers: bool
    overdue: bool
    value: bytes


class RankSaid(NamedTuple):
    """What a rank says: it has come to a meeting, or these bytes are for its process manager."""

    key: RankKey
    what: RankMeets | bytes


RankReport = RankReady | RankRefused | RankEnded | RankSaid


class GangStart(NamedTuple):
    """What a rank learns when its gang begins. ``hosts``: addresses, by rank; ``port``: of rank 0's PC.

    ``local``: the ranks that are on this PC, ascending.
    """

    hosts: tuple[str, ...]
    port: int
    local: tuple[int, ...]


class JobEnded(NamedTuple):
    """One attempt that ended; ``elapsed`` in seconds. DEPARTED: it could not begin here, and counts for nothing.

    ``waited``: it used a processor for less than half of this time, which was long enough to tell.
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
    waited: bool = False


class PrintedOutput(NamedTuple):
    """What a running attempt has printed since it was asked last, or the end of it; and how much it has in all."""

    stdout_bytes: int
    stdout: bytes
    stderr_bytes: int
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
