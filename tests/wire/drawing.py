"""What may be in a message, said twice over its type hints: as a Hypothesis strategy, and as a plain judgement.

`conforms` is written from the rules in `deskgrid.wire.fields`, not from its checks: the tests hold one against the
other.
"""

import math
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import msgpack
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire import fields, needs
from deskgrid.wire.task_options import PackedOptions

# Sizes that are drawn; limits themselves are tried one by one, in `test_limits`.
TEXT, BYTES, ROWS = 20, 40, 4

# Speed-ups as they travel.
SPEEDUPS: tuple[wire.PackedSpeedup, ...] = (
    ("amdahl", 0.0),
    ("amdahl", 1.0),
    ("downey", 1.0, 0.0),
    ("downey", 64.0, 1.5),
    ("table", 1, 1.0, 2, 1.9, 1024, 30.0),
    ("table", 4, 0.5),
)

_PRINTABLE = st.characters(exclude_categories=("C", "Z"))


def plain(limit: Any) -> st.SearchStrategy[Any]:
    """Values of a plain field, within its limits."""
    match limit:
        case fields.Integer(least=least, most=most):
            return st.integers(least, most)
        case fields.Real(most=most):
            return st.floats(0.0, most)
        case fields.Line() | fields.Document():
            return st.text(_PRINTABLE, max_size=TEXT)
        case PackedOptions():
            return _built(wire.TaskOptions)
        case fields.Data(most=most) | fields.Digests(most=most):
            each = 32 if isinstance(limit, fields.Digests) else 1
            return st.binary(max_size=min(most, BYTES)).map(lambda data: data * each)
    return _of_need(limit)


def _of_need(limit: Any) -> st.SearchStrategy[Any]:
    """Values of a field that says what a task needs, or what a PC has."""
    match limit:
        case fields.Word(pattern=pattern):
            return st.from_regex(pattern, fullmatch=True)
        case fields.Ratio(least=least, most=most):
            return st.floats(least, most)
        case needs.LeastAndMost(least=least, most=most):
            return st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted).map(tuple)
        case needs.SpeedupField():
            return st.sampled_from([(), *SPEEDUPS])
    raise AssertionError(limit)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values that are of the declared type."""
    if hint is bool:
        return st.booleans()
    if typing.get_origin(hint) is not Annotated:
        if inner := _inner(hint):
            return st.none() | of_type(inner)
        return _built(hint)
    limit = hint.__metadata__[0]
    if isinstance(limit, fields.AtMost):
        return st.lists(of_type(typing.get_args(hint.__origin__)[0]), max_size=min(ROWS, limit.count)).map(tuple)
    return plain(limit)


def _inner(hint: Any) -> Any:
    """What a declared type is besides None; None when it is always something."""
    return next((each for each in typing.get_args(hint) if each is not types.NoneType), None)


def messages_of(kind: type[wire.Message]) -> st.SearchStrategy[wire.Message]:
    """Messages of one kind."""
    return _built(kind)


accounts = st.builds(
    wire.Failure, st.text(max_size=TEXT), st.text(max_size=TEXT), st.text(max_size=TEXT), st.binary(max_size=BYTES)
).map(wire.Failure.packed)


def _built(kind: Any) -> st.SearchStrategy[Any]:
    drawn = st.tuples(*[of_type(hint) for hint in _hints(kind)]).map(lambda values: kind(*values))
    return st.builds(_with_account, drawn, accounts) if kind in (wire.Result, wire.RankResult) else drawn


def _with_account(result: Any, account: bytes) -> Any:
    """A result as a worker would make it: what did not succeed has an account of that, if anybody asks for one."""
    if result.outcome == wire.Outcome.DONE:
        return result
    explained = result.outcome <= wire.Outcome.TIMEOUT or result.outcome >= wire.Outcome.NO_ROOM
    return result._replace(payload=account if explained else b"")


def _hints(kind: Any) -> list[Any]:
    return list(typing.get_type_hints(kind, include_extras=True).values())


messages = st.one_of([messages_of(kind) for kind in wire.MESSAGES])

# One of everything that msgpack can carry, and the values on either side of every limit.
ODD: tuple[Any, ...] = (
    *(True, False, None),
    *(-(2**63), -1, 0, 1, 5, 6, 1023, 1024, 1025, 10**6, 10**6 + 1, 10**7, 10**7 + 1, 2**63 - 1, 2**63, 2**64 - 1),
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
    *("", "text", "two words", "a" * 64, "a" * 65, "é" * 127, "é" * 128, "3.12", b"", b"bytes"),
    *map(msgpack.packb, ({}, {"retries": 1}, {"retries": -1}, {"timeout": 1}, {"color": 1}, [])),
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
    if hint is bool:
        return type(value) is bool
    if typing.get_origin(hint) is not Annotated:
        return value is None or conforms(value, _inner(hint))
    limit = hint.__metadata__[0]
    if isinstance(limit, fields.AtMost):
        return type(value) is list and _are_all(value, typing.get_args(hint.__origin__)[0], limit.count)
    return _is_plain(value, limit)


def _is_plain(value: Any, limit: Any) -> bool:
    match limit:
        case fields.Integer(least=least, most=most):
            return type(value) is int and least <= value <= most
        case fields.Real(most=most):
            return type(value) is float and value >= 0 and value <= most
        case fields.Line(most=most, shorten=shorten):
            return type(value) is str and (shorten or len(value.encode()) <= most)
        case fields.Document(most=most):
            return type(value) is str and len(value.encode()) <= most
        case fields.Data(most=most) | PackedOptions(most=most) | fields.Digests(most=most):
            is_one = not isinstance(limit, PackedOptions) or _are_options(value)
            each = 32 if isinstance(limit, fields.Digests) else 1
            return type(value) is bytes and len(value) <= each * most and len(value) % each == 0 and is_one
    return _is_need(value, limit)


def _is_need(value: Any, limit: Any) -> bool:
    match limit:
        case fields.Word(pattern=pattern):
            return type(value) is str and bool(pattern.fullmatch(value))
        case fields.Ratio(least=least, most=most):
            return type(value) is float and bool(least <= value <= most)
        case needs.LeastAndMost(least=least, most=most):
            return type(value) is list and [*map(type, value)] == [int, int] and least <= value[0] <= value[1] <= most
        case needs.SpeedupField():
            return value == [] or (type(value) is list and tuple(value) in SPEEDUPS)
    raise AssertionError(limit)


def _are_options(data: Any) -> bool:
    """Whether ``data`` has the form of packed options and each is of its type."""
    try:
        given = msgpack.unpackb(data)
    except (TypeError, ValueError, msgpack.UnpackException):
        return False
    hints = typing.get_type_hints(wire.TaskOptions, include_extras=True)
    return type(given) is dict and all(name in hints and conforms(each, hints[name]) for name, each in given.items())


def _are_all(values: list[Any], hint: Any, most: int) -> bool:
    """Whether ``values`` are all of a plain type, or the columns of rows, or none."""
    if typing.get_origin(hint) is Annotated:
        return len(values) <= most and all(conforms(value, hint) for value in values)
    return not values or _are_columns(values, hint, most)


def _are_columns(columns: list[Any], kind: Any, most: int) -> bool:
    """Whether ``columns`` are those of one or more rows of ``kind``."""
    hints = _hints(kind)
    if len(columns) != len(hints) or not all(type(column) is list and column for column in columns):
        return False
    return len(columns[0]) <= most and all(
        len(column) in (1, len(columns[0])) and all(conforms(value, hint) for value in column)
        for column, hint in zip(columns, hints, strict=True)
    )


def fits(values: list[Any], kind: Any) -> bool:
    """Whether ``values`` are the fields of a message of ``kind``."""
    hints = _hints(kind)
    return len(values) == len(hints) and all(map(conforms, values, hints))
