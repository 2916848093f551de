"""What the broker tells besides the status document, for the screen of `deskgrid status`: events, and tasks of a bag.

Durations are in seconds, as in `deskgrid.wire.status`.
"""

from typing import TypedDict


class EventRow(TypedDict):
    """Something that happened on the grid: a worker joined, left or was lost, a task crashed, a peer was refused."""

    number: int  # grows with each event, also across restarts of the broker
    age_s: float
    event: str  # "worker-joined"; broker/model/event_log.py lists all
    facts: dict[str, str]  # "name": the worker; the others depend on the event


class OutputRow(TypedDict):
    """What a task that has ended printed, and how it failed. Long texts are cut in the middle."""

    item: int
    state: str  # "done", "error", "timeout" or "crash"
    worker: str
    elapsed_s: float
    rank: int | None  # of a gang, the rank whose output this is: that which failed, else 0; null if it is no gang
    stdout: str
    stderr: str
    error: str | None  # null if it is done


class PrintedRow(TypedDict):
    """What a running task has printed since the last time.

    ``stdout_bytes``: how much it had printed by then in all. If that is more than what was known and ``stdout``
    together, what is between was left out. Likewise for stderr.
    """

    item: int
    attempt: int
    rank: int | None  # null if it is no gang
    worker: str
    stdout_bytes: int
    stdout: str
    stderr_bytes: int
    stderr: str


class RankRow(TypedDict):
    """What one rank of a gang printed, in the newest attempt of its task."""

    rank: int
    worker: str
    state: str  # "done", "error", "timeout" or "crash"; "running"; "stopped": it ran when the gang ended
    elapsed_s: float
    stdout: str
    stderr: str


class PlannedRow(TypedDict):
    """Work that the policy intends for a slot of a worker."""

    worker: str
    starts_in: float
    lasts: float


class TaskRow(TypedDict):
    """One task of a bag."""

    item: int  # its index in the bag, from 0
    state: str  # "running": on a slot; "next": handed to its worker ahead of need; or a state of the scheduler
    worker: str | None  # where it runs or will run next; of a gang, its rank 0; null when it is nowhere
    workers: list[str]  # of a gang that runs, the worker of each rank, by rank; empty otherwise
    runtime_s: float  # predicted; at the speed of the PC, or of the gang, that it is bound to
    elapsed_s: float | None  # null unless it runs
