"""The classes of the script that arguments refer to: they travel once, with the function, and arguments name them.

A class of the script travels by value, which takes about 3,000 bytes and 2 ms: too much for each of many items.
Rule: an argument may name a class only if that is as it was when it was seen first. A class that has changed since
then, or one that is met too late, travels with the argument.
"""

import io
import operator
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

from deskgrid.client.by_value import pickle_by_value
from deskgrid.client.generators import names_in
from deskgrid.client.only_here import only_here
from deskgrid.rebuilt import MAIN, sentinel

# How functions that unpickle are called; and the bytes of a class for them. More is data.
_LOADING = frozenset({"load", "loads", "Unpickler", "read_pickle", "unpickle", "shelve"})
_CLASS_BYTES = 64 * 2**10


class ScriptClasses:
    """Those that the template of a bag brings. ``known``: with those of an earlier template."""

    def __init__(self, known: "ScriptClasses | None" = None) -> None:
        self._all: dict[str, _Seen] = {} if known is None else known._unchanged()
        self._open = True

    def naming(self, value: object) -> bytes:
        """Pickle ``value``, if the template brings all that it refers to in the script; until it is made, it will.

        Otherwise, return nothing.
        """
        packed, found = _named_in(value)
        for name, kind in found.items():
            seen = self._all.get(name)
            if seen is None and self._open and (seen := _seen(kind)) is not None:
                self._all[name] = seen
            if seen is None or not seen.is_still(kind):
                return b""
        return packed

    def has(self, others: "ScriptClasses") -> bool:
        """Whether these are among them, and have not changed."""
        return all(name in self._all and self._all[name].is_still(seen.kind) for name, seen in others._all.items())

    def pickled(self) -> bytes:
        """Return them for the template, which has no others from now on: one pickle after the other."""
        self._open = False
        return b"".join([seen.pickled for seen in self._all.values()])

    def _unchanged(self) -> "dict[str, _Seen]":
        return {name: seen for name, seen in self._all.items() if seen.is_still(seen.kind)}


class _Seen:
    """A class as it was when an argument referred to it first: its members, and the globals that its methods use."""

    def __init__(self, kind: type, pickled: bytes) -> None:
        self.kind = kind
        self.pickled = pickled
        self._names = sorted(
            {name for code in _codes_of(kind) for name in names_in(code)} & vars(sys.modules[MAIN]).keys()
        )
        self._was = self._looks()

    def is_still(self, kind: type) -> bool:
        """Whether ``kind`` is this class, and has not changed."""
        if kind is not self.kind:
            return False
        now = self._looks()
        return len(now) == len(self._was) and all(map(operator.is_, now, self._was))

    def _looks(self) -> list[object]:
        main = vars(sys.modules[MAIN])
        return [*vars(self.kind).values(), *[main.get(name) for name in self._names]]


def _seen(kind: type) -> _Seen | None:
    try:
        return _Seen(kind, pickle_by_value(kind))
    except Exception:  # the argument says what is wrong, which needs it by value then
        return None


def _codes_of(kind: type) -> Iterator[CodeType]:
    for member in vars(kind).values():
        for each in (member, getattr(member, "__func__", None), getattr(member, "fget", None)):
            if type(each) is FunctionType:
                yield each.__code__


def unnamed_classes(functions: Iterable[FunctionType], named: bytes) -> bytes:
    """Return the other classes of the script for functions that may unpickle what refers to them, such as a file.

    ``named``: those that travel anyway. A class that cannot travel is left out, and so is one that cannot be loaded.
    """
    if not any(not _LOADING.isdisjoint(names_in(function.__code__)) for function in functions):
        return b""
    found = []
    for value in list(vars(sys.modules[MAIN]).values()):
        if isinstance(value, type) and value.__module__ == MAIN:
            with suppress(Exception):
                if (pickled := pickle_by_value(value)) not in named and len(pickled) <= _CLASS_BYTES:
                    found.append(pickle.dumps(pickled))
    return b"".join(found)


class _Unnamed(Exception):
    """A value refers to something else of the script than classes that can be found by their names."""


class _Finder(pickle.Pickler):
    """Finds the classes of the script to which a value refers, and pickles it so that it names them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.found: dict[str, type] = {}

    def reducer_override(self, value: Any) -> Any:
        """Note a class; give up if something else of the script would have to be found by its name."""
        if getattr(value, "__module__", None) == MAIN:
            if isinstance(value, type):
                self.found[value.__qualname__] = value
                return NotImplemented
            if hasattr(value, "__name__") or hasattr(value, "__qualname__"):
                raise _Unnamed
        return sentinel(value, stays=True) or NotImplemented


def _named_in(value: object) -> tuple[bytes, Mapping[str, type]]:
    """Pickle a value, and return the classes of the script that it names; nothing, if it names more of the script."""
    finder = _Finder(file := io.BytesIO())
    try:
        finder.dump(value)
    except Exception:  # code of the value runs
        return b"", {}
    others = only_here()
    return (b"", {}) if others and others.search(file.getvalue()) else (file.getvalue(), finder.found)
