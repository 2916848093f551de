"""Templates: the data that all tasks of a bag share, in one blob. It is a msgpack map, and its limits are checked.

The broker reads only the kind of a template, its environment, which is the second entry if there is one, and which
trees it names; a worker reads the rest.
"""

from typing import Any, Literal, get_args

from deskgrid.wire.environments import Environment, read_environment
from deskgrid.wire.limits import ARGUMENTS_LIMIT, DIGEST_BYTES, ENVIRONMENT_BYTES, FILES_LIMIT, PATTERNS_LIMIT
from deskgrid.wire.payload import Payload
from deskgrid.wire.source import UNREADABLE, Source, Wrong, source_of
from deskgrid.wire.trees import read_digests, split_digests

# Kinds of template a worker can run.
Kind = Literal["python", "command"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# The largest exit code of a process.
EXIT_CODE_LIMIT = 255
# This many bytes of a template are enough to see its kind, which is its first entry; and those with its environment.
_BEGINNING = 32
_WITH_ENVIRONMENT = _BEGINNING + ENVIRONMENT_BYTES


class TemplateRefused(ValueError):
    """A blob is not a template; the message says why in one line."""


def template_kind(data: Payload) -> Kind | None:
    """Return the kind of a template, or None if ``data`` is not a template."""
    source = source_of(_first(data, _BEGINNING))
    try:
        kind = source.value() if source.map() and source.value() == "kind" else None
    except (Wrong, *UNREADABLE):
        return None
    return next((known for known in KINDS if known == kind), None)


def template_environment(data: Payload) -> Environment | None:
    """Return the environment of a template that has a kind; None if it has none. Raises `TemplateRefused`."""
    source = source_of(_first(data, _WITH_ENVIRONMENT))
    try:
        if source.map() < 2 or not source.values(2) or source.value() != "environment":
            return None
        return read_environment(source)
    except (Wrong, *UNREADABLE) as error:
        raise TemplateRefused(f"{error!s:.80}") from error


def template_trees(data: Payload) -> tuple[bytes, ...]:
    """Return the digests of all trees that a template names; none of one that `read_template` refuses anyway."""
    source, found = source_of(data if isinstance(data, bytes) else bytes(data)), list[bytes]()
    try:
        for _ in range(source.map()):
            match source.value():
                case "environment":
                    found += [build.tree for build in read_environment(source).builds]
                case "source" | "inputs":
                    found += split_digests(read_digests(source))
                case _:
                    source.skip()
        source.finish()
    except (Wrong, *UNREADABLE):
        return ()
    return tuple(found)


def _first(data: Payload, count: int) -> bytes:
    return bytes((data if isinstance(data, bytes) else data.frames()[0])[:count])


def read_template(data: bytes) -> dict[str, Any]:
    """Return the entries of a template; checks their types. Raises `TemplateRefused`."""
    source = source_of(data)
    try:
        count = source.map()
        if count > len(_ENTRIES):
            raise Wrong(f"{count} entries")
        table: dict[str, Any] = {}
        for _ in range(count):
            key = source.value()
            if type(key) is not str or key not in _ENTRIES:
                raise Wrong("an entry that no template has")
            if key == "environment" and [*table] != ["kind"]:
                raise Wrong("its environment is not where the broker looks for it")
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


def _words(source: Source) -> list[str | bytes]:
    """Words of a command: bytes if they are not UTF-8."""
    return [value if isinstance(value, bytes) else str(_of_type(value, str)) for value in source.many(ARGUMENTS_LIMIT)]


def _files(source: Source) -> dict[str, bytes]:
    count = source.map()
    if count > FILES_LIMIT:
        raise Wrong(f"{count:,} files where there are at most {FILES_LIMIT:,}")
    return {_text(source): _bytes(source) for _ in range(count)}


def _digest(source: Source) -> bytes:
    digest = read_digests(source)
    if len(digest) != DIGEST_BYTES:
        raise Wrong("not the digest of one tree")
    return digest


def _of_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Wrong(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _exit_code(source: Source) -> int:
    code = int(_of_type(source.value(), int))
    if not 1 <= code <= EXIT_CODE_LIMIT:
        raise Wrong(f"an exit code of {code}")
    return code


def _patterns(source: Source) -> list[str]:
    return [str(_of_type(value, str)) for value in source.many(PATTERNS_LIMIT)]


# ``classes``: of the script, to which arguments refer. ``lines``: of files that are only on the user's machine, for
# tracebacks. ``source``: the tree of modules that are too much for ``bundle``. ``inputs``: the trees that every task of
# the bag needs; a command gets them unpacked in its folder. ``outputs``: the patterns of what it leaves there.
_ENTRIES = {
    "kind": _text,
    "environment": read_environment,
    "python": _text,
    "function": _bytes,
    "classes": _bytes,
    "lines": _files,
    "bundle": _files,
    "source": _digest,
    "argv": _words,
    "checkpoint": _texts,
    "signal": _text,
    "exit": _exit_code,
    "inputs": read_digests,
    "outputs": _patterns,
}
