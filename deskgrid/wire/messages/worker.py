"""The messages between workers and the broker, including enrolment."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, NamedTuple

from deskgrid.wire.environments import Platform, VersionPart
from deskgrid.wire.failure import tidy_results
from deskgrid.wire.fields import (
    Argument,
    AtMost,
    CheckpointData,
    CheckpointSize,
    Count,
    Data,
    Digest,
    Document,
    Id,
    Integer,
    Name,
    PartDigest,
    PythonVersion,
    Seconds,
    Sentence,
    Share,
    Version,
)
from deskgrid.wire.limits import (
    BATCH_ROWS,
    ENVIRONMENTS_LIMIT,
    FINDINGS_LIMIT,
    HELD_ROWS,
    KEY_BYTES,
    LABELS_LIMIT,
    PRINTED_BYTES,
    PYTHONS_LIMIT,
    RESOURCES_LIMIT,
    RESULTS_ROWS,
    SHOWN_BYTES,
    SHOWN_ROWS,
    SLOTS_LIMIT,
    TABLE_BYTES,
    WINDOWS_LIMIT,
)
from deskgrid.wire.messages.common import Ending
from deskgrid.wire.needs import Address, Label, MacAddress, Memory, Processors, Rank, Resource, Speed
from deskgrid.wire.task_options import Options

# A slot of a worker.
SlotNumber = Annotated[int, Integer(0, SLOTS_LIMIT - 1)]
Printed = Annotated[bytes, Data(PRINTED_BYTES)]
PublicKey = Annotated[bytes, Data(KEY_BYTES)]
# The windows of one worker from the broker's windows.toml, as JSON.
Table = Annotated[str, Document(TABLE_BYTES)]


class Readiness(IntEnum):
    """What became of an environment on a PC."""

    READY = 0
    REFUSED = 1  # nothing can be made of these wheels, here or elsewhere
    TROUBLE = 2  # this PC cannot make it now: its disk is full, say
    GONE = 3  # it is not there any more, or nobody has told the worker of it


class Window(NamedTuple):
    """A planned window of a PC, relative to the moment of sending. Seconds."""

    starts_in: Seconds
    lasts: Seconds


class Running(NamedTuple):
    """An attempt that a worker holds, or one rank of it; ``elapsed`` is None when it has not started.

    ``slot``: the first that it has.
    """

    task: Count
    number: Count
    slot: SlotNumber
    elapsed: Seconds | None
    rank: Rank = 0


class Ref(NamedTuple):
    """A reference to one attempt."""

    task: Count
    number: Count


# Means of 1, 30 and 120 s.
Loads = Annotated[tuple[Annotated[float, Share()], ...], AtMost(3)]
Windows = Annotated[tuple[Window, ...], AtMost(WINDOWS_LIMIT)]
# Attempts that a worker holds, or held.
Held = Annotated[tuple[Running, ...], AtMost(HELD_ROWS)]
Attempts = Annotated[tuple[Ref, ...], AtMost(HELD_ROWS)]


class Finding(NamedTuple):
    """What is not well on a PC, as ``deskgrid doctor`` says it there.

    ``what``: what was checked. ``to_do``: ``said`` is what somebody has to do; else it is only good to know.
    """

    what: Name
    to_do: bool
    said: Sentence


class EnvironmentWanted(NamedTuple):
    """An environment that a worker is to have.

    ``key``: names it, and its submitter, who shares its folder with nobody. ``bag``: in whose name its files are asked
    for. ``tree``: its wheels. ``owner``: the submitter. ``python``: the version that it is for.
    """

    key: Id
    bag: Id
    tree: PartDigest
    owner: Name
    python: PythonVersion


class Work(NamedTuple):
    """One attempt to make. ``checkpoint``: the number of the checkpoint that it goes on from; 0: from the start.

    ``environment``: the key of the environment in which it runs, if any. ``owner``: whose task it is. ``program``: the
    run of a program that it belongs to, among those of its owner: a process serves only one.
    """

    task: Count
    number: Count
    slot: SlotNumber
    template: Digest
    runtime: Seconds
    options: Options
    checkpoint: Count
    payload: Argument
    environment: Id | None = None
    owner: Name = ""
    program: Id | None = None


class Shown(NamedTuple):
    """What a running attempt, or a rank of one, has printed since it was shown last, or the end of it.

    ``stdout_bytes``, ``stderr_bytes``: how much it has printed in all.
    """

    task: Count
    number: Count
    rank: Rank
    stdout_bytes: Count
    stdout: Annotated[bytes, Data(SHOWN_BYTES)]
    stderr_bytes: Count
    stderr: Annotated[bytes, Data(SHOWN_BYTES)]


class Result(NamedTuple):
    """One attempt that ended at a worker.

    ``waited``: it used a processor for less than half of ``elapsed``, so that this says nothing about the PC's speed.
    """

    task: Count
    number: Count
    outcome: Ending
    elapsed: Seconds
    payload: Argument
    stdout: Printed
    stderr: Printed
    waited: bool = False


# --- worker to broker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """A worker introduces itself, when it connects and whenever a window opens.

    ``uptime``: seconds left of the current window; None: open-ended; 0.0: away (no window is open now); at most
    `deskgrid.wire.saving.ENDING_S`: the window is over, and only tasks that run may end. ``kind`` and
    ``plan``: the sort of plan, and one line that describes it to people. ``opening`` grows with each introduction of a
    session. Work assigned in answer to an earlier introduction is void, because ``running`` does not include it.
    ``pythons``: the versions that its tasks can have, its own first.
    ``platform``, ``major``, ``minor``: what the PC is, as in `System`; None: it cannot have environments.
    ``address``: by which other PCs of its site reach it; None: they cannot. ``speed``: 1 for the fastest PC.
    ``processors``, ``memory``: of the PC, and bytes of it for tasks; 0: unknown. ``resources``: what else is counted of
    it, sorted, such as gpu=2. ``mpi``: it runs MPI processes.
    ``given``: its user has given the speed, which nobody corrects. ``paused``: why it has stopped its tasks and begins
    none, because the owner of its PC comes first; empty: it has not. ``mac``: the address of the network card that
    reaches the broker, by which the PC can be woken; None: unknown.
    """

    version: Version
    pythons: Annotated[tuple[PythonVersion, ...], AtMost(PYTHONS_LIMIT)]
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
    platform: Platform | None = None
    major: VersionPart = 0
    minor: VersionPart = 0
    address: Address | None = None
    speed: Speed = 1.0
    processors: Processors = 0
    memory: Memory = 0
    resources: Annotated[tuple[Resource, ...], AtMost(RESOURCES_LIMIT)] = ()
    labels: Annotated[tuple[Label, ...], AtMost(LABELS_LIMIT)] = ()
    mpi: bool = False
    given: bool = False
    paused: Sentence = ""
    mac: MacAddress | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker is still here. ``uptime`` is as in `Join`; ``windows`` None: unchanged since last announced.

    ``speed``, ``paused``: as in `Join`. ``loads``: how much of the processors others than our tasks used, as the means
    of the last 1, 30 and 120 s. Speed and loads are None if they have hardly changed since they were last said.
    ``findings``: what is not well on this PC; None: it is not known, or was said before.
    """

    uptime: Seconds | None
    windows: Windows | None
    speed: Speed | None = None
    loads: Loads | None = None
    paused: Sentence = ""
    findings: Annotated[tuple[Finding, ...], AtMost(FINDINGS_LIMIT)] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Attempts that ended. They are sent again after each reconnection until `Taken` names them."""

    results: Annotated[tuple[Result, ...], AtMost(RESULTS_ROWS, tidy_results)]


@dataclass(frozen=True, slots=True)
class Leave:
    """A departure; the attempts in ``held`` are handed back (elapsed None: not started).

    ``planned``: the window closes as announced; otherwise somebody stops the worker before that. ``stopping``: the
    worker's process ends too, so the worker will not return by itself.
    """

    reason: Sentence
    planned: bool
    stopping: bool
    windows: Windows
    held: Held


@dataclass(frozen=True, slots=True)
class Returned:
    """Attempts handed back: recalled before they started, or stopped without a result. They will not run any more."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of an attempt, or a part of it. The next part is sent when `CheckpointKept` asks for it.

    It is sent again, from its start, after each reconnection until `CheckpointKept` says that the broker has all of it.
    ``data``: what follows after the first ``start`` of its ``size`` bytes; all parts but the last have
    ``CHECKPOINT_BYTES``. ``progress``: how much of the task is done; None: the task does not say. ``elapsed``: how
    long the attempt had run. ``cost``: how long it took the last time to save and to send a checkpoint of this kind.
    """

    task: Count
    number: Count
    serial: Count
    progress: Annotated[float, Share()] | None
    elapsed: Seconds
    cost: Seconds
    start: CheckpointSize
    size: CheckpointSize
    data: CheckpointData


@dataclass(frozen=True, slots=True)
class Resume:
    """Asks for the checkpoint that an attempt goes on from; ``start``: the worker has so many bytes of it."""

    task: Count
    number: Count
    checkpoint: Count
    start: CheckpointSize


@dataclass(frozen=True, slots=True)
class Prepared:
    """How it went with an environment that the worker was told to have: see `Readiness`.

    ``package``, ``reason``: the wheel that cannot be used, if it is one, and why. ``size``: the bytes that were fetched
    and written to make it, in ``seconds``; 0 if everything was there.
    """

    key: Id
    readiness: Annotated[int, Integer(0, len(Readiness) - 1)]
    package: Name
    reason: Sentence
    seconds: Seconds
    size: Count


@dataclass(frozen=True, slots=True)
class OutputShown:
    """What attempts print of which the broker has asked to be shown the output. Nothing repeats it if it is lost."""

    rows: Annotated[tuple[Shown, ...], AtMost(SHOWN_ROWS)]


# --- broker to worker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """The worker is let in, as ``name``. ``windows``: the broker's plan for it as JSON, or None.

    ``loss``: how long a worker of this grid stays, on average, before it vanishes without a word. ``drained``: as in
    `Planned`.
    """

    version: Version
    broker: Id
    name: Name
    heartbeat: Seconds
    lease: Seconds
    windows: Table | None
    loss: Seconds
    drained: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """Attempts to make, in this order on each slot; ``opening`` is from the last introduction that the broker got.

    ``spread``: so many seconds earlier than necessary this worker should save checkpoints at the end of its window,
    because many windows close then.
    """

    opening: Count
    spread: Seconds
    work: Annotated[tuple[Work, ...], AtMost(BATCH_ROWS)]


@dataclass(frozen=True, slots=True)
class Recall:
    """Asks the worker to hand back attempts that have not started."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class Stop:
    """Orders the worker to kill attempts, whose results nobody needs. It confirms them with `Returned` or a result."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class ShowOutput:
    """Somebody watches what these attempts print: for so many ``seconds``, unless this is said again."""

    attempts: Annotated[tuple[Ref, ...], AtMost(SHOWN_ROWS)]
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Taken:
    """These results are in the journal, or nobody needs them: the worker can forget them."""

    attempts: Attempts


@dataclass(frozen=True, slots=True)
class Planned:
    """The broker's plan for this worker changed.

    ``drained``: its windows are closed for so many seconds, whatever its plan, because somebody drained its PC;
    `SECONDS_LIMIT`: until further notice; None: they are not.
    """

    windows: Table | None
    drained: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """The environments that the worker is to have, all of them, the most urgent first; it may let go of others."""

    environments: Annotated[tuple[EnvironmentWanted, ...], AtMost(ENVIRONMENTS_LIMIT)]


@dataclass(frozen=True, slots=True)
class CheckpointKept:
    """A checkpoint is in the journal under this number, or nobody needs it (0): the worker can forget it.

    But if ``taken`` is not 0, the broker has only so many bytes of it, and waits for the next.
    """

    task: Count
    serial: Count
    checkpoint: Count
    taken: CheckpointSize


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Answer to `Resume`: what follows after the first ``start`` of ``size`` bytes.

    All three are empty if the broker does not have that checkpoint any more.
    """

    task: Count
    number: Count
    checkpoint: Count
    start: CheckpointSize
    size: CheckpointSize
    data: CheckpointData


# --- enrolment -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Enrol:
    """A PC that connected with a lab's line asks the broker to register its own key under ``name``."""

    version: Version
    name: Name
    public: PublicKey


@dataclass(frozen=True, slots=True)
class Enrolled:
    """Answer to `Enrol` once it is on disk: the name and the public key that admit the PC from now on.

    ``clock``: the time at the broker, in POSIX seconds.
    """

    name: Name
    public: PublicKey
    clock: Seconds
