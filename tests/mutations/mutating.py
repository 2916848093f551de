"""Put a fault into a loaded function by changing its source, and take it out again.

Rule: a mutation says exactly which text it replaces. If the text does not occur exactly once, that is an error, so that
no test reports a fault as found that was never made.
"""

import ast
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any


class NoSuchPlace(Exception):
    """The code is not as the mutation expects it: the mutation has to be brought up to date."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """``old`` becomes ``new`` in the function ``where`` ("module:Class.function" or "module:function").

    ``weather``: that of `tests.grid.sweep` in which it has to be found, or a script of `tests.mutations.scripts`.
    ``first``: the seed to begin with, so that it takes little time; after the last one it is begun from 0.
    """

    name: str
    where: str
    old: str
    new: str
    weather: str = "storm"
    first: int = 0


def mutated_source(mutation: Mutation) -> str:
    """The source of the function with the fault in it; raises `NoSuchPlace`."""
    owner, name = _place(mutation)
    source = textwrap.dedent(inspect.getsource(owner.__dict__[name]))
    found = source.count(mutation.old)
    if found != 1:
        raise NoSuchPlace(f"{mutation.name}: in {mutation.where} there is {found} times: {mutation.old}")
    changed = source.replace(mutation.old, mutation.new)
    try:
        same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source))
    except SyntaxError as error:
        raise NoSuchPlace(f"{mutation.name}: what becomes of {mutation.where} is no Python: {error}") from error
    if same:
        raise NoSuchPlace(f"{mutation.name}: changes nothing in {mutation.where}")
    return changed


def _place(mutation: Mutation) -> tuple[Any, str]:
    """What has the function as an attribute, and its name there."""
    module, _, path = mutation.where.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for part in parents:
        owner = getattr(owner, part, None)
    if name not in getattr(owner, "__dict__", {}):
        raise NoSuchPlace(f"{mutation.name}: there is no {mutation.where}")
    return owner, name


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """The fault is in the code of this process; raises `NoSuchPlace`."""
    source = mutated_source(mutation)
    owner, name = _place(mutation)
    function = _function(owner.__dict__[name])
    made: dict[str, Any] = {}
    module = sys.modules[mutation.where.partition(":")[0]]
    exec(compile(source, f"<{mutation.name}>", "exec"), vars(module), made)
    # In its place: whoever has imported the function by its name has the fault, too.
    right, function.__code__ = function.__code__, _function(made[name]).__code__
    try:
        yield
    finally:
        function.__code__ = right


def _function(attribute: Any) -> FunctionType:
    inner = attribute.fget if isinstance(attribute, property) else getattr(attribute, "__func__", attribute)
    assert isinstance(inner, FunctionType)
    return inner
