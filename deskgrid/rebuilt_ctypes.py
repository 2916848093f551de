"""Structures, unions, arrays and the like of `ctypes` that a script defines, by value: see `deskgrid.rebuilt`.

Their metaclasses work out what C sees of them, so these have to make them again: first without fields, which may point
to the structure itself. Of a script's code, only an `__init_subclass__` of a base runs again.

Rule: this file imports nothing of ours, because the process that runs tasks loads it, too. It
loads `ctypes` only for scripts that use it.
"""

import importlib
import operator
import sys
from typing import Any

FIELDS = "_fields_"
# What the metaclasses read when they make a class, or when it gets its fields.
AT_ONCE = frozenset(
    {"_type_", "_length_", "_flags_", "_argtypes_", "_restype_", "_pack_", "_align_", "_layout_", "_anonymous_"}
)
_SWAPPED = "__ctype_be__" if sys.byteorder == "little" else "__ctype_le__"
_NATIVE = "__ctype_le__" if sys.byteorder == "little" else "__ctype_be__"
_MADE_BY_CTYPES = frozenset({_SWAPPED, _NATIVE, "__pointer_type__"})


def is_of_c(kind: type) -> bool:
    """Whether C sees the objects of a class."""
    inner: Any = sys.modules.get("_ctypes")
    return inner is not None and issubclass(kind, inner.Structure.__base__)


def is_made_by_ctypes(kind: type, name: str, value: object) -> bool:
    """Whether a member of a class came with its fields, or with the class."""
    return is_of_c(kind) and (name in _MADE_BY_CTYPES or type(value).__name__ == "CField")


def set_on(kind: type, name: str, value: object) -> None:
    """Set a member; its fields only once, because they cannot change."""
    if name != FIELDS or FIELDS not in vars(kind):
        setattr(kind, name, value)


def derived(kind: Any) -> tuple[Any, ...] | None:
    """Return how to get a class from another one: an array, a pointer, another order of bytes, or a metaclass."""
    inner: Any = sys.modules.get("_ctypes")
    if inner is None:
        return None
    if issubclass(kind, type):  # no module has it by its name
        bases = inner.Structure, inner.Union, inner.Array, inner._Pointer, inner._SimpleCData, inner.CFuncPtr
        return next(((type, (base,)) for base in bases if type(base) is kind), None)
    return _made_from_another(kind) if is_of_c(kind) else None


def _made_from_another(kind: Any) -> tuple[Any, ...] | None:
    ctypes: Any = importlib.import_module("ctypes")
    if issubclass(kind, ctypes.Array) and kind._type_ * kind._length_ is kind:
        return operator.mul, (kind._type_, kind._length_)
    if issubclass(kind, ctypes._Pointer) and ctypes.POINTER(kind._type_) is kind:
        return ctypes.POINTER, (kind._type_,)
    native = getattr(kind, _NATIVE, kind)
    return (getattr, (native, _SWAPPED)) if native is not kind and getattr(native, _SWAPPED) is kind else None
