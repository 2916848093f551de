"""A submitter's options for every task of a bag, except the runtime, which each task has for itself.

The options are one value all the way: the client checks it, `Submit` carries it, the journal stores it, and every
`Work` contains it. It is sent and stored as one packed map, by name, of the options that differ from their defaults.

To add an option, add a field here with its limit, a check in `deskgrid.client.submission.checked_options`, a documented
parameter of `task`, `bag` and `command` in `deskgrid.client.grid`, a documented option in `deskgrid.cli.bags`, its row
in SECURITY.md (``python -m deskgrid.wire`` prints the table), and the code that uses it, in the scheduler or in
`deskgrid.worker.run`. Bags in an older journal have its default.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgpack

from deskgrid.wire.fields import Data, Integer, Plain, Seconds, fields_of
from deskgrid.wire.limits import OPTIONS_BYTES, RETRIES_LIMIT
from deskgrid.wire.source import UNREADABLE, Wrong, source_of

# How many different values are cached: all tasks of a bag have the same options.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """``timeout``: seconds after which a task is stopped and counts as failed; None: never.

    ``retries``: how many times a failed task is tried again. ``copies``: whether an idle PC may run a second attempt of
    a task that takes long.
    """

    timeout: Seconds | None = None
    retries: Annotated[int, Integer(0, RETRIES_LIMIT)] = 0
    copies: bool = False

    def packed(self) -> bytes:
        """Return the packed form, which is sent and stored."""
        given = {name: value for name in _FIELDS if (value := getattr(self, name)) != getattr(_DEFAULT, name)}
        packed: bytes = msgpack.packb(given)
        return packed


_FIELDS = fields_of(TaskOptions)
_DEFAULT = TaskOptions()


@lru_cache(_REMEMBERED)
def read_task_options(data: bytes) -> TaskOptions:
    """Return the options packed in ``data``; raises ValueError, with the reason in one line."""
    source = source_of(data)
    given: dict[str, Any] = {}
    where = ""
    try:
        for _ in range(source.map()):
            name = source.value()
            if type(name) is not str or name not in _FIELDS:
                raise Wrong("an option that no task has")
            where = f"{name}: "
            given[name] = _FIELDS[name].read(source)
            where = ""
        source.finish()
    except Wrong as error:
        raise ValueError(f"{where}{error}") from error
    except UNREADABLE as error:
        raise ValueError(f"not options of a task: {error!s:.80}") from error
    return TaskOptions(**given)


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
