"""What a submitter says of every task of a bag, apart from the runtime, which each task has of its own.

This is one value on its whole way: the client checks it, `Submit` carries it, the journal keeps it, and every `Work`
has it. It travels, and is kept, as one packed map of the options that are not at their defaults, by name.

So a new option is a field here, with its limit; what `deskgrid.client.submission.checked_options` says of it; its
parameter in `deskgrid.client.grid` and its option in `deskgrid.cli.bags`, where users read of it; and the code that
uses it. Bags in an older journal have its default.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import msgpack

from deskgrid.wire.fields import Data, Integer, Plain, Seconds, fields_of
from deskgrid.wire.limits import OPTIONS_BYTES, RETRIES_LIMIT
from deskgrid.wire.source import UNREADABLE, Wrong, source_of

# Values that are read again and again are read once: all tasks of a bag have the same.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """``timeout``: seconds after which a task is stopped and has failed; None: never.

    ``retries``: how often a task that has failed is tried again.
    """

    timeout: Seconds | None = None
    retries: Annotated[int, Integer(0, RETRIES_LIMIT)] = 0

    def packed(self) -> bytes:
        """As they travel, and as they are kept."""
        given = {name: value for name in _FIELDS if (value := getattr(self, name)) != getattr(_DEFAULT, name)}
        packed: bytes = msgpack.packb(given)
        return packed


_FIELDS = fields_of(TaskOptions)
_DEFAULT = TaskOptions()


@lru_cache(_REMEMBERED)
def read_task_options(data: bytes) -> TaskOptions:
    """The options that were packed into ``data``; raises ValueError, with the reason in one line."""
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
    """The field of a message that has them."""

    most: int

    def one(self, value: Any) -> Any:
        try:
            return read_task_options(Data(self.most).one(value))
        except ValueError as error:
            raise Wrong(str(error)) from error

    def __str__(self) -> str:
        return f"{Data(self.most)}, packed"


Options = Annotated[TaskOptions, PackedOptions(OPTIONS_BYTES)]
