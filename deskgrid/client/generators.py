"""Warns of random number generators that a function brings along: every process would draw the same numbers from them.

A function is looked at once. What it refers to is followed as far as it is the program's own.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakSet

from deskgrid.client.bundle import is_local
from deskgrid.rebuilt_types import tracker

log = logging.getLogger("deskgrid.client")

# At most so many objects are looked at: a program's data may be large, and its generators are near its functions.
_OBJECTS = 1_000
_KINDS = (
    ("random", ("Random",)),
    ("numpy.random", ("Generator", "RandomState", "BitGenerator")),
    ("torch", ("Generator",)),
)
_ADVICE = (
    "every process that runs tasks draws the same numbers from it. Make one in the task, seeded by its item, such as "
    "random.Random(item) or numpy.random.default_rng([seed, item])"
)
_looked_at: WeakSet[FunctionType] = WeakSet()


def hidden_generator(value: object) -> tuple[Callable[..., object], tuple[object, ...]] | None:
    """Return how to pickle by reference the generator behind ``random.random`` or ``numpy.random.rand``.

    None for any other object. ``from random import random`` refers to it: pickled by value, it would bring its state.
    """
    for name, attribute in (("random", "_inst"), ("numpy.random.mtrand", "_rand")):
        module = sys.modules.get(name)
        if module is not None and value is getattr(module, attribute, None):
            return getattr, (module, attribute)
    return None


def warn_of_generators(value: object, what: str) -> None:
    """Name the generators that ``value`` brings, a function or a shared object; ``what``: its name."""
    if isinstance(value, FunctionType):
        if value in _looked_at:
            return
        _looked_at.add(value)
    for name, imported in _found(value, what):
        how = "of a module of yours: if it has a seed," if imported else "that travels as it is now:"
        log.warning("%s: %s is a random number generator %s %s", what, name, how, _ADVICE)


def _found(value: object, what: str) -> Iterator[tuple[str, bool]]:
    """Yield the names of generators, and whether each process makes them when it imports a module."""
    # By id, and kept: a method is made anew each time that it is looked at.
    seen: dict[int, object] = {}
    ahead = deque([(value, what, False)])
    while ahead:
        value, name, imported = ahead.popleft()
        if id(value) not in seen:
            seen[id(value)] = value
            if _is_generator(value):
                yield name, imported
                continue
            imported = imported or importable(value)
            room = _OBJECTS - len(seen) - len(ahead)
            ahead += [(each, called, imported) for each, called in islice(within(value, name), max(0, room))]


def importable(value: object) -> bool:
    """Whether ``value`` is a function that a worker imports."""
    return type(value) is FunctionType and bool(tracker()._should_pickle_by_reference(value))


def _is_generator(value: object) -> bool:
    for module, names in _KINDS:
        for name in names:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and issubclass(type(value), kind):
                return type(value).__name__ != "SystemRandom" and hidden_generator(value) is None
    return False


def within(value: Any, name: str) -> Iterator[tuple[object, str]]:
    """Yield what a value refers to, with names. Its type counts: a stand-in may say that it is of another class."""
    kind = type(value)
    if kind is FunctionType:
        if not importable(value) or is_local(Path(value.__code__.co_filename)):
            yield from _of_function(value)
    elif issubclass(kind, (MethodType, BuiltinMethodType)):
        yield value.__self__, type(value.__self__).__name__
        yield getattr(value, "__func__", None), name
    elif issubclass(kind, partial):
        yield from ((value.func, name), (value.args, name), (value.keywords, name))
    elif issubclass(kind, dict):
        yield from ((each, f"{name}[{key!r:.40}]") for key, each in value.items())
    elif issubclass(kind, (list, tuple, set, frozenset)):
        yield from ((each, f"{name}[{place}]") for place, each in enumerate(value))
    elif issubclass(kind, type):
        if _is_mine(value.__module__, getattr(sys.modules.get(value.__module__), "__file__", None)):
            yield from ((getattr(each, "__func__", each), f"{name}.{key}") for key, each in vars(value).items())
    elif not issubclass(kind, ModuleType) and kind.__module__ != "builtins":
        yield from ((each, f"{name}.{key}") for key, each in getattr(value, "__dict__", {}).items())
        yield kind, kind.__name__


def _of_function(function: FunctionType) -> Iterator[tuple[object, str]]:
    code, names = function.__code__, set(names_in(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        yield value, name
        if issubclass(type(value), ModuleType) and _is_mine(value.__name__, getattr(value, "__file__", None)):
            yield from ((vars(value)[each], f"{name}.{each}") for each in sorted(names & vars(value).keys()))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # it is not bound yet
            yield cell.cell_contents, name
    defaults = function.__defaults__ or ()
    last = code.co_argcount
    yield from zip(defaults, code.co_varnames[last - len(defaults) : last], strict=False)
    yield from ((value, name) for name, value in (function.__kwdefaults__ or {}).items())


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of all functions in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_in(inner)


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes in the code of a function; see `codes_in`."""
    return (name for each in codes_in(code) for name in each.co_names)


def _is_mine(module: str | None, file: str | None) -> bool:
    """Whether code is the program's own."""
    return module == "__main__" or (isinstance(file, str) and is_local(Path(file)))
