"""Type variables, new types and type aliases of a script, by value: see `deskgrid.rebuilt`.

Rule: this file imports nothing of ours, because the process that runs tasks loads it, too.
"""

import operator
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any


class Done:
    """Stands for a call that is made when it is loaded."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self.call = function, args


@cache
def tracker() -> Any:
    """Return what knows the classes that were pickled or loaded, by keys."""
    from cloudpickle import cloudpickle  # here, because a program that only reads results may not need it

    return cloudpickle


# --- made again -------------------------------------------------------------------------------------------------------


def _typing(key: str, module: str, make: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Return the type variable, or the like, that has this key."""
    known = tracker()._DYNAMIC_CLASS_TRACKER_BY_ID.get(key)
    if known is None:
        made = make(*args, **options)
        made.__module__ = module
        known = tracker()._lookup_class_or_track(key, made)
    return known


def _alias(module: str, name: str, parameters: str, space: dict[str, Any]) -> Any:
    """Return a new type alias. ``space``: gets its value, and those of its parameters."""
    space["__name__"] = module
    exec(f"type {name}{parameters} = {_VALUE}", space)
    return space.pop(name)


def _parameter(alias: Any, place: int) -> Any:
    return alias.__type_params__[place]


def _done(made: object, steps: list[None]) -> None:
    """All is done when this is called."""


# --- taken apart ------------------------------------------------------------------------------------------------------

# From Python 3.12 on.
_ALIAS: Any = getattr(typing, "TypeAliasType", None)
_VARIABLES = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)
_KINDS = (*_VARIABLES, typing.NewType, _ALIAS)
_OPTIONS = {
    "bound": "__bound__",
    "covariant": "__covariant__",
    "contravariant": "__contravariant__",
    "infer_variance": "__infer_variance__",
}


def _variable_taken_apart(value: Any) -> tuple[Any, ...]:
    """Return how to make a type variable."""
    options = {}
    for option, name in _OPTIONS.items():
        with suppress(Exception):  # what has a name that is not there cannot be made
            options[option] = getattr(value, name)
    options = {option: each for option, each in options.items() if each is not None and each is not False}
    if getattr(value, "has_default", bool)():
        options["default"] = value.__default__
    args = (value.__name__, *getattr(value, "__constraints__", ()))
    return _typing_taken_apart(value, args, options)


def _typing_taken_apart(value: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Any, ...]:
    key = tracker()._get_or_create_tracker_id(value)
    return _typing, (key, value.__module__, type(value), args, options)


def _alias_taken_apart(alias: Any) -> tuple[Any, ...]:
    """Return how to make a type alias, which may refer to itself: its value is asked for by name, as in the script."""
    space: dict[str, Any] = {}
    known, parameters = {_VALUE: (alias, "__value__")}, []
    for place, each in enumerate(alias.__type_params__):
        parameter = _STARS.get(type(each), "") + each.__name__
        if type(each) is typing.TypeVar:
            bound = f"{_VALUE}_bound{place}"
            parameter += f": (*{bound},)" if each.__constraints__ else f": {bound}"
            known[bound] = each, "__constraints__" if each.__constraints__ else "__bound__"
        if getattr(each, "has_default", bool)():
            parameter += f" = {_VALUE}_default{place}"
            known[f"{_VALUE}_default{place}"] = each, "__default__"
        parameters.append(parameter)
    steps = []
    for name, (owner, attribute) in known.items():
        with suppress(Exception):  # it has a name that is not there, as in the script
            steps.append(Done(operator.setitem, space, name, getattr(owner, attribute)))
    made = alias.__module__, alias.__name__, f"[{', '.join(parameters)}]" if parameters else "", space
    return _alias, made, steps, None, None, _done


_VALUE = "_deskgrid_value"
_STARS = {typing.ParamSpec: "**", typing.TypeVarTuple: "*"}


class Types:
    """Takes them apart for one pickle."""

    def __init__(self) -> None:
        # How to find the parameters of type aliases, by their ids.
        self._parameters: dict[int, tuple[Any, ...]] = {}

    def taken_apart(self, value: Any, kind: type) -> tuple[Any, ...] | None:
        """Return how to make a value; None if it is none of these, or if a module has it."""
        if kind in (typing.ParamSpecArgs, typing.ParamSpecKwargs):
            return getattr, (value.__origin__, "args" if kind is typing.ParamSpecArgs else "kwargs")
        if id(value) in self._parameters:
            return self._parameters[id(value)]
        if kind not in _KINDS or tracker()._lookup_module_and_qualname(value, name=value.__name__) is not None:
            return None
        if kind in _VARIABLES:
            return _variable_taken_apart(value)
        if kind is typing.NewType:
            return _typing_taken_apart(value, (value.__qualname__, value.__supertype__), {})
        of_alias = enumerate(value.__type_params__)
        self._parameters |= {id(each): (_parameter, (value, place)) for place, each in of_alias}
        return _alias_taken_apart(value)
