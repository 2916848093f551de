"""Templates: the data that all tasks of a bag share, in one blob. It is a msgpack map, and its limits are checked.

The broker reads only the kind of a template; a worker reads the rest.
"""

from typing import Any, Literal, get_args

from deskgrid.wire.limits import ARGUMENTS_LIMIT, FILES_LIMIT, PATTERNS_LIMIT
from deskgrid.wire.payload import Payload
from deskgrid.wire.source import UNREADABLE, Source, Wrong, source_of
from deskgrid.wire.trees import read_digests

# Kinds of template a worker can run.
Kind = Literal["python", "command"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# This many bytes of a template are enough to see its kind, which is its first entry.
_BEGINNING = 32


class TemplateRefused(ValueError):
    """A blob is not a template; the message says why in one line."""


def template_kind(data: Payload) -> Kind | None:
    """Return the kind of a template, or None if ``data`` is not a template. The broker reads nothing else of it."""
    first = data if isinstance(data, bytes) else bytes(data.frames()[0][:_BEGINNING])
    source = source_of(first[:_BEGINNING])
    try:
        kind = source.value() if source.map() and source.value() == "kind" else None
    except (Wrong, *UNREADABLE):
        return None
    return next((known for known in KINDS if known == kind), None)


def read_template(data: bytes) -> dict[str, Any]:
    """Return the entries of a template; checks their types. Raises `TemplateRefused`."""
    source = source_of(data)
    try:
        count = source.map()
        if count > len(_ENTRIES):
            raise Wrong(f"{count} entries")
        table = {}
        for _ in range(count):
            key = source.value()
            if type(key) is not str or key not in _ENTRIES:
                raise Wrong("an entry that no template has")
            table[key] = _ENTRIES[key](source)
        source.finish()
    except (Wrong, *UNREADABLE) as error:
        raise TemplateRefused(f"{error!s:.80}") from error
    return table


def _text(source: Source) -> str:
    return str(_of_type(source.value(), str))


def _bytes(source: Source) -> bytes:
    return bytes(_of_type(source.value(), bytes))


def _texts(source: Source) -> list[str]:
    return [str(_of_type(value, str)) for value in source.many(ARGUMENTS_LIMIT)]


def _files(source: Source) -> dict[str, bytes]:
    count = source.map()
    if count > FILES_LIMIT:
        raise Wrong(f"{count:,} files where there are at most {FILES_LIMIT:,}")
    return {_text(source): _bytes(source) for _ in range(count)}


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Wrong(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _patterns(source: Source) -> list[str]:
    return [str(_of_type(value, str)) for value in source.many(PATTERNS_LIMIT)]


# ``inputs``: the trees that every task of the bag needs; a command gets them unpacked in its folder. ``outputs``: the
# patterns of the files that a command leaves there.
_ENTRIES = {
    "kind": _text,
    "python": _text,
    "function": _bytes,
    "bundle": _files,
    "argv": _texts,
    "inputs": read_digests,
    "outputs": _patterns,
}
