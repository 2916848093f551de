"""Classes of a program's script, as results refer to them: the script that reads a result has classes of its own.

A class of `__main__` cannot be imported elsewhere, so a result brings its code. But a script that attaches to its bag
later, or runs again, means its own class: ``== Status.OK``, ``isinstance`` and ``except MyError`` compare with that.
So the code is used only where the script has no such class.

Rule: this file imports nothing of ours, because the process that runs tasks loads it, too.
"""

import enum
import pickle
import re
import sys
from functools import reduce
from typing import Any

# Where an object is, as in `<function twice at 0x7f0e5c0a4c20>`.
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")


def class_of(name: str, members: tuple[Any, ...], pickled: bytes) -> Any:
    """Return the class of `__main__` with this qualified name, if its members agree; else the one in ``pickled``."""
    try:
        found: Any = reduce(getattr, name.split("."), sys.modules["__main__"])
    except (AttributeError, KeyError):
        found = None
    if isinstance(found, type) and _agree(members_of(found), members):
        return found
    return pickle.loads(pickled)


def members_of(kind: type) -> tuple[Any, ...]:
    """Return what two versions of a class need to have in common: its bases, its data, and the names of its members.

    Without fields, the data is what makes an object: the parameters of ``__init__``.
    """
    values: list[tuple[str, str]] = []
    fields: list[Any] = [*getattr(kind, "__dataclass_fields__", ()), *getattr(kind, "_fields", ())]
    if isinstance(kind, enum.EnumMeta):
        members: dict[str, Any] = dict(kind.__members__)
        values = [(name, _ADDRESS.sub("", repr(member.value))) for name, member in members.items()]
    if any(base.__module__ == "_ctypes" for base in kind.__mro__):
        fields += [(name, of.__name__, *bits) for name, of, *bits in getattr(kind, "_fields_", ())]
    fields = fields or _parameters(getattr(kind, "__init__", None))
    slots = vars(kind).get("__slots__", ())
    return (
        [base.__qualname__ for base in kind.__mro__[1:]],
        values,
        fields,
        [slots] if isinstance(slots, str) else sorted(slots),
        sorted([name for name in vars(kind) if not _is_special(name)]),
    )


def _parameters(function: object) -> list[str]:
    code = getattr(function, "__code__", None)
    return [] if code is None else list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


def _agree(here: tuple[Any, ...], sent: tuple[Any, ...]) -> bool:
    """Whether what was sent fits the class that is here, which may have more members."""
    return here[:-1] == sent[:-1] and set(here[-1]) >= set(sent[-1])


def _is_special(name: str) -> bool:
    """Whether Python, or a library, has made it."""
    return name.startswith("_") and name.endswith("_")
