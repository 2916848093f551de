"""The snapshot: the state of the whole grid at one moment, as ``deskgrid status --json`` prints it.

This file is the documentation of schema 2: the code that makes or reads snapshots is checked against it. Rules:

1. Durations in seconds, never dates; counts are integers. A key that may be null says when.
2. A field may be added within a schema. Changing or removing a field makes a new schema.
"""

from typing import Any, Literal, TypedDict

from deskgrid.wire.template import Kind

SCHEMA = 2

# The size of the document is bounded, however large the grid is. These are the maximum numbers of rows of bags, of
# workers, of slots of all workers together (but at least one for each worker), and of windows of each worker. `Totals`
# also counts bags and workers without a row.
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
    disk: Literal["ok", "low", "full"]  # low: the broker accepts no submissions; full: it cannot write to its journal
    disk_note: str  # for people: why the broker accepts no submissions; empty if it does
    problems: list[str]  # for people: what is wrong with files in its home, or probably a mistake in them


class RunningTask(TypedDict):
    """The attempt that a slot runs."""

    bag: str
    item: int  # its index in the bag, from 0
    runtime_s: float  # predicted
    elapsed_s: float
    rank: int | None  # of a gang: which of its ranks; null if the task is no gang
    ranks: int  # how many ranks the attempt has; 1 if the task is no gang
    saves: bool  # it is checkpointable: what it has not done when the window closes is done later


class SlotState(TypedDict):
    """One slot of a worker."""

    slot: int  # its number on the worker, from 0
    running: RunningTask | None
    copy: bool  # what it runs is a copy, which stops when other work needs the slot
    ahead: int  # tasks handed to the worker ahead of need
    ahead_s: float
    queued: int  # tasks in the slot's queue, held by the broker
    queued_s: float
    left_s: float | None  # tl: the time left in the window for new tasks; null when open-ended


class LearnedHours(TypedDict):
    """How a worker has kept its hours; where its windows close otherwise than announced, the scheduler goes by this."""

    seen: int  # its last windows that have closed, at most 16
    lasts_s: list[float] | None  # it goes by habit: how long its windows last, at least and at most; else null
    early_s: float | None  # else: how long before its plan it closes, the median; negative: after; null: as planned
    goes_s: list[float] | None  # between what times from now this window should close; null: as announced, or not up


# The state of a worker. Away: between its windows, as announced; lost: it vanished.
Presence = Literal["up", "away", "lost"]


class WorkerState(TypedDict):
    """One worker, including workers that are away or lost."""

    name: str
    pc: str  # the name of its PC; a second worker there has another name
    version: str  # of deskgrid there
    host: str
    site: str
    labels: list[str]  # what it says that it has, sorted
    pythons: list[str]  # the versions that its tasks can have, its own first
    processors: int
    memory: int | None  # bytes; null when unknown
    resources: list[str]  # what else is counted of it, sorted, such as gpu=2
    speed: float  # relative computing power: 1 for the fastest PC; corrected by what tasks took there
    stated_speed: float  # as the PC measured it, or as its user gave it
    load: float  # how much of its processors others than our tasks use, from 0 to 1
    reachable: bool  # whether other PCs of its site can reach it, so that ranks of a gang may run there
    state: Presence
    kind: str  # of its plan, as the worker reports it: "open-ended", "windows", "until" or "cycle"
    plan: str  # one line for people
    uptime_s: float | None  # the time left in the window; null when open-ended, 0 when not up
    opened_s: float  # since this window opened
    windows: list[ComingWindow]  # the next windows of the coming week, at most 8, without the current one
    hours: LearnedHours | None  # null: nothing is known of how it keeps its hours, so it is taken at its word
    silent_s: float  # since its last message
    ended: int  # tasks, done or failed
    quarantine_s: float | None  # until one task is tried there; null when not in quarantine
    drained_by: str | None  # who drained its PC, so that it gets nothing new; null when nobody did
    drained_s: float | None  # for how long; null until somebody undoes it, or when not drained
    paused: str  # why its tasks are stopped, and it gets none: the owner of the PC comes first; empty: they are not
    note: str  # for people: what is wrong with the worker; may be empty
    slot_count: int
    busy: int  # slots that run a task; copies do not count
    slots: list[SlotState]  # the first slots: at most 4,000 divided by the number of workers here, but at least one


class BagState(TypedDict):
    """One bag. A task is exactly one of done, failed, cancelled, running and waiting."""

    bag: str  # its id
    name: str
    owner: str  # the credential that submitted it
    kind: Kind
    gang: bool  # its tasks are gangs, so each result is a list of ranks' results
    ranks: list[int]  # how many ranks each of its tasks has, at least and at most; [1, 1] if it is no gang
    slots: int  # that each rank of its tasks needs, of one PC
    total: int
    done: int
    failed: int
    cancelled: int
    running: int  # on slots; tasks that were sent ahead and wait there do not count
    copies: int  # running tasks of which a copy runs, too
    waiting: int
    closed: bool  # no more tasks will be added
    paused: bool  # it was paused, and has not ended: no more tasks of it are started
    age_s: float
    left_s: float  # predicted seconds of work left
    eta_s: float | None  # until the bag should end, the median; null when unknown, or if it cannot end as things are
    eta_low_s: float | None  # with a confidence of 0.9, the bag ends between this time from now ...
    eta_high_s: float | None  # ... and this; null when unknown
    longest_s: float  # the longest predicted runtime among its tasks
    note: str  # for people; may be empty


class Totals(TypedDict):
    """All bags and workers, including those without a row in this document."""

    bags_under_way: int
    bags_ended: int
    workers_up: int
    workers_lost: int
    workers_away: int
    pcs_absent: int  # they should be there and are not, also those without a row
    slots: int  # of workers that are up
    busy: int  # slots of these workers that run a task


class Queues(TypedDict):
    """Tasks that are not assigned to a slot."""

    regular: int
    priority: int
    longest_s: float  # the longest predicted runtime among them


class CounterValues(TypedDict):
    """Counts since the broker was started. An attempt that ends badly counts in exactly one of them."""

    submitted: int
    attempts: int
    done: int
    errors: int  # the task raised, or its command failed
    timeouts: int
    crashes: int  # the task's process died
    cancelled: int
    departures: int  # planned or announced ends of a window
    losses: int  # workers that vanished
    kills: int  # attempts that were running when their worker departed or was lost
    planned_kills: int  # kills by departures at their planned time
    stale: int  # results of old attempts, ignored
    unfit: int  # placements that no longer fitted when their turn came
    adopted: int  # attempts that their worker still held when it came back
    pieces: int  # attempts of checkpointable tasks that ended with progress
    no_room: int  # attempts whose worker could not store what they need
    no_start: int  # attempts for which their worker could start no process
    overdue: int  # attempts taken back from workers that did not answer in time
    copies: int  # second attempts of running tasks, which do not count as attempts
    wasted_s: float
    window_s: float
    busy_s: float


class Throughput(TypedDict):
    """The speed of the grid."""

    per_s: float  # tasks ended per second, over the last 10 s


class AbsentPC(TypedDict):
    """A PC that should be there by the broker's windows.toml, and is not."""

    pc: str
    plan: str  # its windows, for people
    since_s: float  # for how long it has been missed: since its window opened, or since it was there in this window
    seen_s: float | None  # since it was there last; null: never, as far as the broker knows


class GridState(TypedDict):
    """The grid as a whole."""

    schema: int
    broker: BrokerFacts
    totals: Totals
    queues: Queues
    counters: CounterValues
    throughput: Throughput
    absent: list[AbsentPC]  # those that are missed longest first; at most 200


class StatusDocument(GridState):
    """The grid with its workers and bags."""

    workers: list[WorkerState]  # workers that are up first, then lost ones, then others; at most 2,000
    bags: list[BagState]  # bags under way, oldest first, then ended bags, newest first; at most 200
