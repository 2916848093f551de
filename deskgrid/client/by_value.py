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
from contextlib import suppress
from functools import cache
from types import FunctionType
from typing import Any

from deskgrid.client.generators import hidden_generator
from deskgrid.client.only_here import only_here
from deskgrid.files import note_function
from deskgrid.rebuilt import MAIN, PLAIN_OBJECT, find_by_name, may_be_of_one_process, pickler
from deskgrid.rebuilt_types import Done, tracker


def has_to_travel_by_value(pickled: bytes | bytearray) -> bool:
    """Whether a pickle refers to the user's program, or to a module that is only here: a worker cannot import these.

    Or whether it has a method of an object: that may be ``random.random``, whose object is not to bring its state; or
    a plain object, which may be a sentinel of the program. Or whether it may have something that must not travel.
    """
    if b"__main__" in pickled or b"getattr" in pickled or PLAIN_OBJECT in pickled or may_be_of_one_process(pickled):
        return True
    names = only_here()
    return names is not None and names.search(pickled) is not None


def pickle_by_value(value: object, apart: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle ``value`` with cloudpickle, which may raise anything. ``apart``: takes large buffers out of the pickle."""
    only_here()  # it tells cloudpickle
    buffer = io.BytesIO()
    _pickler()(buffer, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=apart).dump(value)
    return buffer.getvalue()


# What the state of a function has that is only to be loaded.
_LOADED = "_cloudpickle_submodules"
# What is pickled by its name.
_NAMED: Any = (type, FunctionType, type(functools.cache(len)))


def _of_hand_made(function: FunctionType, used: Mapping[str, object]) -> dict[str, object]:
    """Return what has a name of a function and of what it ``used``, if no module that can be imported has its globals.

    So it is with what `exec`, `runpy` or `types.ModuleType` makes.
    """
    module: Any
    module, space = function.__module__, function.__globals__
    if not isinstance(module or MAIN, str):
        return {}  # nobody can look for it by such a name
    loaded = sys.modules.get(module or MAIN)
    if loaded is not None and vars(loaded) is space and module not in tracker().list_registry_pickle_by_value():
        return {}
    named: dict[str, Any] = {**used, function.__name__: space.get(function.__name__)}
    return {
        name: each
        for name, each in named.items()
        if issubclass(type(each), _NAMED) and each.__module__ == module and getattr(each, "__name__", "") == name
    }


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


@cache
def _pickler() -> Any:
    class Noting(pickler()):  # type: ignore[misc]  # cloudpickle has no types
        renews = True

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._main = vars(sys.modules[MAIN])
            self._globals = _Globals(self._main)

        def reducer_override(self, value: Any) -> Any:
            if type(value) is FunctionType:
                note_function(value)  # what it imports is not among the names in a pickle
            reduced = super().reducer_override(value)
            return (hidden_generator(value) or reduced) if reduced is NotImplemented else reduced

        def _function_getnewargs(self, function: FunctionType) -> Any:
            """Have functions of the script share the globals of `__main__`, whichever pickle they are in."""
            code, space, *rest = super()._function_getnewargs(function)
            return code, self._globals if self._is_main(function.__globals__) else space, *rest

        def _is_main(self, space: dict[str, Any]) -> bool:
            """Whether globals are those of `__main__`, or those that it has a copy of: `multiprocessing` made it."""
            return space is self._main or space.get("__name__") == "__mp_main__"

        def _dynamic_function_reduce(self, function: FunctionType) -> Any:
            """Have a function of the script, or of a module made by hand, be found there by its name."""
            reduced = super()._dynamic_function_reduce(function)
            state, space = reduced[2][1], function.__globals__
            if not self._is_main(space):
                if found := _of_hand_made(function, state["__globals__"]):
                    state[_LOADED].append(Done(find_by_name, function.__module__ or MAIN, found))
            elif self._main.get(function.__name__) is function:
                state["__globals__"][function.__name__] = function
            return reduced

        def _named(self, kind: type) -> list[Done]:
            """Have a class of the script be found there by its name, or within another class."""
            if self._main.get(kind.__name__) is kind:
                return [Done(operator.setitem, self._globals, kind.__name__, kind)]
            outer, *path = kind.__qualname__.split(".")
            with suppress(AttributeError, KeyError):
                if functools.reduce(getattr, path, self._main[outer]) is kind:
                    return [Done(operator.setitem, self._globals, outer, self._main[outer])]
            return []

    return Noting
