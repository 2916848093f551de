"""What may be in a message, said twice over its type hints: as a Hypothesis strategy, and as a plain judgement.

`conforms` is written from the rules at the top of `broker.protocol`, not from its checks: the tests hold one against
the other.
"""

import math
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
from hypothesis import strategies as st

from broker import protocol as wire

Plain = Mapping[object, st.SearchStrategy[Any]]

PLAIN: Plain = {
    int: st.integers(0, 2**63 - 1),
    float: st.floats(0.0, wire.SECONDS_LIMIT),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=40),
    bool: st.booleans(),
    wire.Payload: st.binary(max_size=40),
}


def of_type(hint: Any, plain: Plain = PLAIN) -> st.SearchStrategy[Any]:
    """Values that are of the declared type, made of those in ``plain``."""
    if hint in plain:
        return plain[hint]
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return st.none() | of_type(arguments[0], plain)
    if arguments:
        return st.lists(of_type(arguments[0], plain), max_size=4).map(tuple)
    return _built(hint, plain)


def messages_of(kind: type[wire.Message], plain: Plain = PLAIN) -> st.SearchStrategy[wire.Message]:
    """Messages of one kind."""
    return _built(kind, plain)


def _built(kind: Any, plain: Plain) -> st.SearchStrategy[Any]:
    fields = [of_type(hint, plain) for hint in _hints(kind)]
    return st.tuples(*fields).map(lambda values: kind(*values))


def _hints(kind: Any) -> list[Any]:
    return list(typing.get_type_hints(kind).values())


messages = st.one_of([messages_of(kind) for kind in wire.MESSAGES])

# One of everything that msgpack can carry, and the values on either side of every limit.
ODD: tuple[Any, ...] = (
    *(True, False, None),
    *(-(2**63), -1, 0, 1, 2**63 - 1, 2**63, 2**64 - 1),
    *(
        -math.inf,
        -1.0,
        -1e-300,
        -0.0,
        0.0,
        1.0,
        wire.SECONDS_LIMIT,
        math.nextafter(wire.SECONDS_LIMIT, math.inf),
        math.inf,
        math.nan,
    ),
    *("", "text", b"", b"bytes"),
    *([], [1], [0.5], [[]], [[1, 2]], [[0.5, 0.5]], [None], [b""]),
    *({}, {"a": 1}),
    *(msgpack.ExtType(5, b"ext"), msgpack.Timestamp(1, 2)),
)


def harmed(values: list[Any]) -> Iterator[list[Any]]:
    """``values`` with each of `ODD` in each place, at any depth, one after the other; then without or with one more."""
    for place, unharmed in enumerate(values):
        for odd in ODD:
            values[place] = odd
            yield values
        values[place] = unharmed
        if isinstance(unharmed, list):
            for _ in harmed(unharmed):
                yield values
    yield from (values[:-1], [*values, 0])


def conforms(value: Any, hint: Any) -> bool:
    """Whether ``value``, out of msgpack, is of the declared type."""
    if hint is int:
        return type(value) is int and 0 <= value <= 2**63 - 1
    if hint is float:
        return type(value) is float and value >= 0 and value <= wire.SECONDS_LIMIT
    if hint in (str, bytes, bool, wire.Payload):
        return type(value) is (bytes if hint == wire.Payload else hint)
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return value is None or conforms(value, arguments[0])
    return type(value) is list and _are_all(value, arguments[0])


def _are_all(values: list[Any], hint: Any) -> bool:
    """Whether ``values`` are all of a plain type, or the columns of rows, or none."""
    if hint in PLAIN:
        return all(conforms(value, hint) for value in values)
    return not values or _are_columns(values, hint)


def _are_columns(columns: list[Any], kind: Any) -> bool:
    """Whether ``columns`` are those of one or more rows of ``kind``."""
    hints = _hints(kind)
    if len(columns) != len(hints) or not all(type(column) is list and column for column in columns):
        return False
    return all(
        len(column) in (1, len(columns[0])) and all(conforms(value, hint) for value in column)
        for column, hint in zip(columns, hints, strict=True)
    )


def fits(values: list[Any], kind: Any) -> bool:
    """Whether ``values`` are the fields of a message of ``kind``."""
    hints = _hints(kind)
    return len(values) == len(hints) and all(map(conforms, values, hints))
