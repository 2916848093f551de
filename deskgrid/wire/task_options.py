"""A submitter's options for every task of a bag, except the runtime, which each task has for itself.

The options are one value all the way: the client checks it, `Submit` carries it, the journal stores it, and every
`Work` contains it. It is sent and stored as one packed map, by name, of the options that differ from their defaults.

To add an option, add a field here with its limit, a documented keyword and its check in `deskgrid.client.options`, a
documented option in `deskgrid.cli.submit`, its row in docs/reference/limits.md (``python -m deskgrid.wire`` prints the
table), and the code that uses it, in the scheduler or in `deskgrid.worker.run`. Bags in an older journal have its
default.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgpack

from deskgrid.wire.fields import AtMost, Data, Id, Integer, Plain, PythonVersion, Seconds, Word, fields_of
from deskgrid.wire.limits import (
    AFTER_LIMIT,
    BAG_LIMIT,
    LABELS_LIMIT,
    LICENCES_LIMIT,
    OPTIONS_BYTES,
    PRIORITY_LIMIT,
    PROBES_LIMIT,
    RANKS_LIMIT,
    RESOURCES_LIMIT,
    RETRIES_LIMIT,
    SLOTS_LIMIT,
)
from deskgrid.wire.needs import Label, LeastAndMost, Memory, PackedSpeedup, Resource, SpeedupField
from deskgrid.wire.records import Record
from deskgrid.wire.source import Wrong

# How many different values are cached: all tasks of a bag have the same options.
_REMEMBERED = 256


# The name of a licence, and how many of it a task needs.
LICENCE_NAME = r"[A-Za-z0-9._-]{1,64}"
LICENCE = LICENCE_NAME + "=[1-9][0-9]{0,3}"
Licence = Annotated[str, Word(re.compile(LICENCE), "a licence and a number, like matlab=1")]
# When a bag may begin: when all tasks of the bags before it are done, or when they have ended in any way.
When = Annotated[str, Word(re.compile("ok|ended"), '"ok" or "ended"')]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """``timeout``: seconds after which a task is stopped and counts as failed; None: never.

    ``retries``: how many times a failed task is tried again. ``copies``: whether an idle PC may run a second attempt of
    a task that takes long. ``priority``: bags of higher numbers come first among those of their owner. ``limit``: how
    many tasks of the bag may be on slots at once; None: as many as fit. ``licences``: what each task needs. ``after``:
    ids of bags that have to end first, as ``when`` says. ``checkpoint``: the task is checkpointable;
    ``min_piece``: then an attempt gets at least so many seconds. ``probes``: items that are started before the others.
    ``ranks``: the least and the most ranks of each task, which run at once on PCs of one site. ``gang``: its result is
    the list of its ranks' results, also for one rank. ``slots``: of one PC, for each rank. ``memory``: bytes for each
    rank. ``resources``: what else each rank needs, sorted, such as gpu=1. ``labels``: what its PCs must have, sorted.
    ``speedup``: how much faster it is on more ranks; empty: its runtime is that of the whole. ``mpi``: its ranks are
    MPI processes. ``program``: of calls that a program submits one by one, that program, whose other calls may run in
    the same processes; None: the bag has processes of its own.
    ``python``: the minor version that its PCs must have, which alone loads what the program pickled; None: any.
    ``keep``: such calls are kept as bags are; otherwise nobody needs them when their program has the results.
    """

    timeout: Seconds | None = None
    retries: Annotated[int, Integer(0, RETRIES_LIMIT)] = 0
    copies: bool = False
    checkpoint: bool = False
    min_piece: Seconds = 60.0
    priority: Annotated[int, Integer(-PRIORITY_LIMIT, PRIORITY_LIMIT)] = 0
    limit: Annotated[int, Integer(1, BAG_LIMIT)] | None = None
    licences: Annotated[tuple[Licence, ...], AtMost(LICENCES_LIMIT)] = ()
    after: Annotated[tuple[Id, ...], AtMost(AFTER_LIMIT)] = ()
    when: When = "ok"
    probes: Annotated[tuple[Annotated[int, Integer(0, BAG_LIMIT)], ...], AtMost(PROBES_LIMIT)] = ()
    ranks: Annotated[tuple[int, int], LeastAndMost(1, RANKS_LIMIT)] = (1, 1)
    gang: bool = False
    slots: Annotated[int, Integer(1, SLOTS_LIMIT)] = 1
    memory: Memory = 0
    resources: Annotated[tuple[Resource, ...], AtMost(RESOURCES_LIMIT)] = ()
    labels: Annotated[tuple[Label, ...], AtMost(LABELS_LIMIT)] = ()
    speedup: Annotated[PackedSpeedup, SpeedupField()] = ()
    mpi: bool = False
    program: Id | None = None
    python: PythonVersion | None = None
    keep: bool = False

    def licence_needs(self) -> tuple[tuple[str, int], ...]:
        """The licences of each task: name and number, by name."""
        pairs = [need.split("=") for need in self.licences]
        return tuple(sorted([(name, int(many)) for name, many in pairs]))

    def packed(self) -> bytes:
        """Return the packed form, which is sent and stored."""
        given = {name: value for name in _RECORD.fields if (value := getattr(self, name)) != getattr(_DEFAULT, name)}
        packed: bytes = msgpack.packb(given)
        return packed


_RECORD = Record(fields_of(TaskOptions))
_DEFAULT = TaskOptions()


@lru_cache(_REMEMBERED)
def read_task_options(data: bytes) -> TaskOptions:
    """Return the options packed in ``data``; raises ValueError, with the reason in one line."""
    return TaskOptions(**_RECORD.unpacked(data))


@dataclass(frozen=True, slots=True)
class PackedOptions(Plain):
    """The field of a message that contains packed options."""

    most: int

    def one(self, value: Any) -> Any:
        try:
            return read_task_options(Data(self.most).one(value))
        except ValueError as error:
            raise Wrong(str(error)) from error

    def __str__(self) -> str:
        return f"{Data(self.most)}, packed"


Options = Annotated[TaskOptions, PackedOptions(OPTIONS_BYTES)]
