"""The snapshot: what the broker says of the whole grid at one moment, as ``deskgrid status --json`` prints it.

This file is the documentation of schema 2: what makes a snapshot and what reads one is checked against it. Rules:

1. Durations in seconds, never dates; counts are integers. A key that may be null says when.
2. A field may be added within a schema. One that changes or goes makes it the next schema.
"""

from typing import Any, Literal, TypedDict

from deskgrid.wire.template import Kind

SCHEMA = 2

# The document is bounded, however large the grid is: so many rows of bags, of workers, of all slots together (but one
# for each worker), and of windows of each worker. What has no row is counted in `Totals`.
BAG_ROWS = 200
WORKER_ROWS = 2_000
SLOT_ROWS = 4_000
WINDOW_ROWS = 8

# Seconds: (starts in, lasts). An array of two numbers in JSON.
ComingWindow = tuple[float, float]


class BrokerFacts(TypedDict):
    """The broker itself."""

    id: str
    version: str
    python: str  # "3.11"
    address: str  # where workers and clients reach it
    policy: str
    options: dict[str, Any]  # of the policy
    age_s: float  # since it was started
    encrypted: bool
    clients: int  # connected now
    disk: Literal["ok", "low", "full"]  # low: no submissions are taken; full: nothing can be written down
    disk_note: str  # for people: why no submissions are taken; empty when they are


class RunningTask(TypedDict):
    """The attempt that a slot runs."""

    bag: str
    item: int  # its index in the bag, from 0
    runtime_s: float  # predicted
    elapsed_s: float


class SlotState(TypedDict):
    """One slot of a worker."""

    slot: int  # its number on the worker, from 0
    running: RunningTask | None
    ahead: int  # tasks handed to the worker ahead of need
    ahead_s: float
    queued: int  # tasks in the slot's queue, held by the broker
    queued_s: float
    left_s: float | None  # tl: what is left of the window for new work; null when open-ended


# Of a worker. Away: between its windows, as announced; lost: it vanished.
Presence = Literal["up", "away", "lost"]


class WorkerState(TypedDict):
    """One worker, also one that is away or was lost."""

    name: str
    host: str
    site: str
    state: Presence
    kind: str  # of its plan: "open-ended", "windows", "until" or "cycle", as it says
    plan: str  # one line for people
    uptime_s: float | None  # what is left of the window; null when open-ended, 0 when not up
    opened_s: float  # since this window opened
    windows: list[ComingWindow]  # the next ones of the coming week, at most 8, without the current one
    silent_s: float  # since it was last heard
    ended: int  # tasks, done or failed
    quarantine_s: float | None  # until one task is tried there; null: it is not in quarantine
    note: str  # for people: what is wrong with it; may be empty
    slot_count: int
    busy: int  # of them, those that run something
    slots: list[SlotState]  # the first of them: all in a grid of at most 4,000 slots, at least one


class BagState(TypedDict):
    """One bag. A task is exactly one of done, failed, cancelled, running and waiting."""

    bag: str  # its id
    name: str
    owner: str  # the credential that submitted it
    kind: Kind
    total: int
    done: int
    failed: int
    cancelled: int
    running: int  # on its slot, not sent ahead to wait there
    waiting: int
    closed: bool  # no more tasks will be added
    age_s: float
    left_s: float  # predicted seconds of work that are left
    eta_s: float | None  # until it should have ended; null when unknown, or never as things are
    longest_s: float  # the longest predicted runtime among its tasks
    note: str  # for people; may be empty


class Totals(TypedDict):
    """All that there are, whether they have a row in this document or not."""

    bags_under_way: int
    bags_ended: int
    workers_up: int
    workers_lost: int
    workers_away: int
    slots: int  # of workers that are up
    busy: int  # of these, those that run something


class Queues(TypedDict):
    """Tasks that are bound to no slot."""

    regular: int
    priority: int
    longest_s: float  # the longest predicted runtime among them


class CounterValues(TypedDict):
    """Since the broker was started. An attempt that ends badly is exactly one of these."""

    submitted: int
    attempts: int
    done: int
    errors: int  # the task raised, or its command failed
    timeouts: int
    crashes: int  # the task's process died
    cancelled: int
    departures: int  # planned or announced ends of a window
    losses: int  # workers that vanished
    kills: int  # attempts that ran when their worker went
    planned_kills: int  # those of them whose worker went as planned
    stale: int  # answers of old attempts, ignored
    unfit: int  # placements that no longer fitted when their turn came
    adopted: int  # attempts whose worker came back with them
    overdue: int  # attempts taken back from workers that did not answer in time
    wasted_s: float
    window_s: float
    busy_s: float


class Throughput(TypedDict):
    """How fast."""

    per_s: float  # tasks ended per second, over the last 10 s


class GridState(TypedDict):
    """The grid as a whole."""

    schema: int
    broker: BrokerFacts
    totals: Totals
    queues: Queues
    counters: CounterValues
    throughput: Throughput


class StatusDocument(GridState):
    """The grid with its workers and bags."""

    workers: list[WorkerState]  # those that are up first, then the lost ones; at most 2,000
    bags: list[BagState]  # those under way, the oldest first; then those that ended, the newest first; at most 200
