"""Values by name, packed as a map: the options of tasks, and the arguments of questions.

What was not given is not in the map, so a field that is added later needs only a default.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from deskgrid.wire.source import UNREADABLE, Source, Wrong, source_of


def pack_record(values: Mapping[str, Any]) -> bytes:
    """Return values by name in their packed form; raises TypeError, ValueError or OverflowError if there is none."""
    packed: bytes = msgpack.packb(values, unicode_errors="replace")
    return packed


@dataclass(frozen=True, slots=True)
class Record:
    """Values of some fields, by name; those that are ``required`` have to be there."""

    fields: Mapping[str, Any]
    required: Collection[str] = ()

    def read(self, source: Source) -> dict[str, Any]:
        """Read the next map; an error begins with the name of the field."""
        given: dict[str, Any] = {}
        for _ in range(source.map()):
            name = source.value()
            if type(name) is not str or name not in self.fields or name in given:
                raise Wrong(f"{str(name)[:40]!r} is not known here, or comes twice")
            try:
                given[name] = self.fields[name].read(source)
            except Wrong as error:
                raise Wrong(f"{name}: {error}") from error
            except UNREADABLE as error:
                raise Wrong(f"{name}: no plain value: {error!s:.80}") from error
        if missing := [name for name in self.required if name not in given]:
            raise Wrong(f"{missing[0]} is missing")
        return given

    def unpacked(self, data: bytes) -> dict[str, Any]:
        """Return the values packed in ``data``; raises ValueError, with the reason in one line."""
        source = source_of(data)
        try:
            given = self.read(source)
            source.finish()
        except Wrong as error:
            raise ValueError(str(error)) from error
        except UNREADABLE as error:
            raise ValueError(f"not a packed map: {error!s:.80}") from error
        return given


@dataclass(frozen=True, slots=True)
class Records:
    """An array of records."""

    record: Record
    most: int

    def read(self, source: Source) -> list[dict[str, Any]]:
        """Read the next array."""
        if (count := source.array()) > self.most:
            raise Wrong(f"{count:,} values where there are at most {self.most:,}")
        return [self.record.read(source) for _ in range(count)]
