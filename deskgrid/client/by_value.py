"""Pickles by value what a worker cannot import, and tells which functions are among it.

What belongs to the program's script has the globals of the module `__main__` where it is loaded, which is another one
for each bag: see `worker/run/script.py`. A function or class of the script is there by its name once it is loaded.
"""

import functools
import importlib
import io
import operator
import pickle
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from deskgrid.client.generators import hidden_generator
from deskgrid.files import note_function

MAIN = "__main__"
# What cloudpickle writes for the file of any function, from 3.1.3 on.
_NO_FILE = "<dynamic-code>"


def has_to_travel_by_value(pickled: bytes | bytearray) -> bool:
    """Whether a pickle refers to the user's program, which a worker cannot import.

    Or whether it has a method of an object: that may be ``random.random``, whose object is not to bring its state.
    """
    return b"__main__" in pickled or b"getattr" in pickled


def pickle_by_value(value: object, apart: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle ``value`` with cloudpickle, which may raise anything. ``apart``: takes large buffers out of the pickle."""
    buffer = io.BytesIO()
    _pickler()(buffer, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=apart).dump(value)
    return buffer.getvalue()


class _Module:
    """Stands for the module `__main__`, wherever it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (MAIN,)


class _Globals:
    """Stands for the globals of `__main__`. ``here``: those of this program."""

    def __init__(self, here: dict[str, Any]) -> None:
        self._here = here

    def __reduce__(self) -> tuple[Any, ...]:
        kept = [(name, self._here[name]) for name in ("__package__", "__file__") if name in self._here]
        return vars, (_Module(),), None, None, iter(kept)


class _Done:
    """Stands for a call that is made when it is loaded."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self._call = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


# The wrapper that `functools.lru_cache` makes, and a function as `functools.singledispatch` makes them: with this code.
_CACHED: Any = type(functools.lru_cache(len))
_DISPATCHER: Any = functools.singledispatch(len)
# Where what a dispatcher has registered is kept: any name will do.
_REGISTERED = "__registered__"


def _cached(value: Any) -> tuple[Any, ...]:
    parameters = value.cache_parameters()
    info = functools._CacheInfo
    return _CACHED, (value.__wrapped__, parameters["maxsize"], parameters["typed"], info), vars(value)


def _dispatching(value: Any, make: Any, function: object, registry: Mapping[type, object]) -> tuple[Any, ...]:
    """Return how to make a dispatcher: from the function for everything, with those for other types."""
    others = [(kind, each) for kind, each in registry.items() if kind is not object]
    calls = [_Done(operator.call, operator.methodcaller("register", kind, each), value) for kind, each in others]
    return make, (function,), {_REGISTERED: calls}


def _of_functools(value: Any, kind: type, is_by_value: Callable[[object], bool]) -> tuple[Any, ...] | None:
    """Return how to make what a decorator of `functools` has made, which only brings locks and weak references."""
    if kind is FunctionType and value.__code__ is _DISPATCHER.__code__ and is_by_value(value):
        registry = vars(value)["registry"]
        return _dispatching(value, functools.singledispatch, registry[object], registry)
    if kind is _CACHED and is_by_value(value):
        return _cached(value)
    if kind is functools.cached_property:  # has a lock in Python 3.11
        return kind, (value.func,), {"attrname": value.attrname, "__doc__": value.__doc__}
    if kind is functools.singledispatchmethod:
        return _dispatching(value, kind, value.func, value.dispatcher.registry)
    return None


def _with_its_file(code: CodeType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Have code keep the name of its file, which a traceback needs."""
    make, args, *rest = reduced
    named = [code.co_filename if isinstance(each, str) and each == _NO_FILE else each for each in args]
    return make, tuple(named), *rest


@cache
def _pickler() -> Any:
    # Here, because opening a Grid or attaching to a bag does not need it.
    import cloudpickle
    from cloudpickle import cloudpickle as inner

    base: Any = cloudpickle.CloudPickler

    class Noting(base):  # type: ignore[misc]  # cloudpickle has no types
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._main = vars(sys.modules[MAIN])
            self._globals = _Globals(self._main)

        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if kind is FunctionType:
                note_function(value)  # what it imports is not among the names in a pickle
            elif issubclass(kind, type):
                return self._named(value, super().reducer_override(value))
            elif kind is CodeType:
                return _with_its_file(value, inner._code_reduce(value))
            reduced = _of_functools(value, kind, _is_by_value) or hidden_generator(value)
            return super().reducer_override(value) if reduced is None else reduced

        def _function_getnewargs(self, function: FunctionType) -> Any:
            """Have functions of the script share the globals of `__main__`, whichever pickle they are in."""
            code, space, *rest = super()._function_getnewargs(function)
            return code, self._globals if function.__globals__ is self._main else space, *rest

        def _dynamic_function_reduce(self, function: FunctionType) -> Any:
            """Have a function of the script be found there by its name."""
            reduced = super()._dynamic_function_reduce(function)
            if self._main.get(function.__name__) is function and function.__globals__ is self._main:
                reduced[2][1]["__globals__"][function.__name__] = function
            return reduced

        def _named(self, kind: type, reduced: Any) -> Any:
            """Have a class of the script be found there by its name."""
            if not isinstance(reduced, tuple) or self._main.get(kind.__name__) is not kind:
                return reduced
            make, args, (members, slots), *rest = reduced
            named = _Done(operator.setitem, self._globals, kind.__name__, kind)
            return make, args, (members, slots | {"__named__": named}), *rest

    def _is_by_value(value: object) -> bool:
        return inner._lookup_module_and_qualname(value) is None

    return Noting
