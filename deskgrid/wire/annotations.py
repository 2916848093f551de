"""The fields of a message or a row, from the annotations of its class."""

import types
import typing
from typing import Annotated, Any

from deskgrid.wire.fields import AtMost, Flag, Many, Optional, Rows


def fields_of(kind: type) -> dict[str, Any]:
    """Return the fields of a message or a row, by name."""
    return {name: field_of(hint) for name, hint in typing.get_type_hints(kind, include_extras=True).items()}


def field_of(hint: Any) -> Any:
    """Return the field that a type hint stands for."""
    if hint is bool:
        return Flag()
    if typing.get_origin(hint) is not Annotated:
        inner = [each for each in typing.get_args(hint) if each is not types.NoneType]
        return Optional(field_of(inner[0]))
    limit = hint.__metadata__[0]
    if not isinstance(limit, AtMost):
        return limit
    inner_hint = typing.get_args(hint.__origin__)[0]
    if typing.get_origin(inner_hint) is Annotated:
        return Many(field_of(inner_hint), limit.count)
    return Rows(inner_hint, limit.count, tuple(fields_of(inner_hint).values()), limit.tidy)
