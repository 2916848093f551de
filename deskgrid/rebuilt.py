"""What a script defines, by value: the pickler takes it apart, and it is made again where it is loaded.

cloudpickle calls the metaclass of a class again. That runs code of the script a second time, without the arguments that
it had, and some members come out differently. Here `type` makes the class, without members, and then it gets those as
they were. So members may refer to their class, and nothing of the script runs: no metaclass, no `__init_subclass__`, no
`__set_name__`, no `__new__` of an enum.

Rule: this file imports nothing of ours but its two parts, because the process that runs tasks loads it, too.
"""

import abc
import copyreg
import enum
import functools
import importlib
import io
import operator
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

from deskgrid.rebuilt_ctypes import AT_ONCE, FIELDS, derived, is_made_by_ctypes, is_of_c, set_on
from deskgrid.rebuilt_types import Done, Types, tracker

MAIN = "__main__"
# What cloudpickle writes for the file of any function, from 3.1.3 on.
_NO_FILE = "<dynamic-code>"
# A type that Python code has made, or could have.
_IS_HEAP_TYPE = 1 << 9
# What `ABCMeta` is made of, and how `object.__reduce_ex__` says that an object is made; neither has types.
_abc: Any = importlib.import_module("_abc")
_NEW_OBJECT = vars(copyreg)["__newobj__"]
# In a pickle: a plain `object()`, which may be a sentinel.
PLAIN_OBJECT = b"\x06object\x94"
# Pickle copies these. Elsewhere, a copy would name what is not there, or close or remove what belongs to somebody else.
_OF_ONE_PROCESS = frozenset(
    {
        ("tempfile", "TemporaryDirectory"),
        ("weakref", "finalize"),
        ("multiprocessing.connection", "_ConnectionBase"),
        ("multiprocessing.shared_memory", "SharedMemory"),
        ("multiprocessing.shared_memory", "ShareableList"),
        ("shelve", "Shelf"),
        ("dbm.dumb", "_Database"),
        ("ctypes", "CDLL"),
    }
)


def may_be_of_one_process(pickled: bytes | bytearray) -> bool:
    """Whether a pickle may have an object that belongs to the process which made it. `pickler` refuses these."""
    return b"finalize" in pickled or b"multiprocessing." in pickled or b"shelve" in pickled or b"dbm.dumb" in pickled


def _check_travels(kind: type) -> None:
    if any((each.__module__, each.__qualname__) in _OF_ONE_PROCESS for each in kind.__mro__):
        raise pickle.PicklingError(f"cannot pickle a {kind.__qualname__}: it belongs to the process that made it")


# --- made again -------------------------------------------------------------------------------------------------------

# The ids of classes that are getting their members.
_unfinished: set[int] = set()


class _Catcher:
    """A member that gets hold of a class which `type` makes, and stops that.

    Members are told their names when the class is whole, just before `__init_subclass__` of its bases would run.
    """

    kind: Any = None

    def __set_name__(self, owner: type, name: str) -> None:
        self.kind = owner
        raise RuntimeError


def _class(key: str, again: bool, make: tuple[type[type], str, tuple[type, ...]], members: Mapping[str, Any]) -> Any:
    """Return the class with this key, without members if it was not here. ``again``: it gets them in any case.

    ``make``: metaclass, name, bases.
    """
    known = tracker()._DYNAMIC_CLASS_TRACKER_BY_ID.get(key)
    if known is None:
        metaclass, name, bases = make
        of_c = any(map(is_of_c, bases))
        made = metaclass(name, bases, dict(members)) if of_c else _bare_class(metaclass, name, bases, members)
        known = tracker()._lookup_class_or_track(key, made)
        again = again or known is made
    if again:
        _unfinished.add(id(known))
    return known


def _bare_class(metaclass: type[type], name: str, bases: tuple[type, ...], members: Mapping[str, Any]) -> Any:
    whole = _Catcher()
    try:
        type.__new__(metaclass, name, bases, {"": whole, **members})
    except Exception:
        if whole.kind is None:
            raise
    type.__delattr__(whole.kind, "")
    if isinstance(whole.kind, abc.ABCMeta):
        _abc._abc_init(whole.kind)  # what `ABCMeta.__new__` does besides
    return whole.kind


def _set(kind: type, members: Mapping[str, object]) -> None:
    if id(kind) in _unfinished:
        put: Any = set_on if is_of_c(kind) else type.__setattr__
        for name, value in members.items():
            put(kind, name, value)


def _finish(kind: Any, state: tuple[list[None], list[type]]) -> None:
    if id(kind) in _unfinished:
        for each in state[1]:
            abc.ABCMeta.register(kind, each)
        _unfinished.discard(id(kind))


def _member(kind: Any, key: str | int) -> Any:
    """Return a member of an enum by its name, or by its value if it is a combination of flags."""
    if isinstance(key, str):
        return kind._member_map_[key]
    return kind(key)


def _bare_member(kind: Any, key: str | int, base: Any, args: tuple[Any, ...]) -> Any:
    """Return a member of an enum that is being made, or the one that is there."""
    table = vars(kind)["_member_map_" if isinstance(key, str) else "_value2member_map_"]
    return base.__new__(kind, *args) if table is None or key not in table else table[key]


def _fill_member(member: Any, state: Any) -> None:
    if id(type(member)) in _unfinished:
        _set_state(member, state)


# Those of scripts that are not the `__main__` here, by name and type.
_sentinels: dict[Any, object] = {}


def _sentinel(kind: type, name: str, stays: bool, base: Any = None, args: tuple[Any, ...] = ()) -> object:
    """Return the object of this type that `__main__` has by this name; if it has none, the one that stands for it.

    ``base``, ``args``: how to make one that gets state.
    """
    main = vars(sys.modules[MAIN])
    if type(main.get(name)) is kind:
        return main[name]
    space: dict[Any, object] = main if stays else _sentinels
    key = name if stays else (name, id(kind))
    if stays or key not in space:
        space[key] = (base or object).__new__(kind, *args)
        if base is not None:
            _unfinished.add(id(space[key]))
    return space[key]


def _fill_sentinel(value: Any, state: list[Any]) -> None:
    if id(value) in _unfinished:
        _unfinished.discard(id(value))
        _set_state(value, state[0])


def _set_state(value: object, state: Any) -> None:
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    if attributes:
        object.__getattribute__(value, "__dict__").update(attributes)
    for name, each in (slots or {}).items():
        object.__setattr__(value, name, each)


# What a script's globals have of modules that no PC can import, by their names; and the names of all of these.
MODULES = "__deskgrid_modules__"
_made_modules: set[str] = set()


def find_by_name(name: str, found: Mapping[str, object]) -> None:
    """Have what looks for functions and classes by name, such as a process pool, find those of a module made by hand.

    Each script has its own modules: see `worker/run/script.py`. What is there by a name stays.
    """
    main = vars(sys.modules[MAIN])
    space = main if name == MAIN else None
    if name in main.get(MODULES, ()):
        space = vars(main[MODULES][name])
    elif name not in _made_modules and space is None:
        with suppress(Exception):  # it is here after all, perhaps
            space = vars(importlib.import_module(name))
    if space is None:
        made = sys.modules[name] = types.ModuleType(name)
        main.setdefault(MODULES, {})[name] = made
        tracker().register_pickle_by_value(made)
        _made_modules.add(name)
        space = vars(made)
    for each, value in found.items():
        space.setdefault(each, value)


# --- taken apart ------------------------------------------------------------------------------------------------------


def _class_taken_apart(kind: Any, again: bool, more: list[Done]) -> tuple[Any, ...]:
    """Return how to make a class. ``more``: what is done when it is there."""
    members = {name: value for name, value in vars(kind).items() if not _is_made_by_type(kind, name, value)}
    slots = tuple([name for name, value in vars(kind).items() if _is_slot(kind, name, value)])
    # Where their order comes from, too. What the metaclass has a descriptor for is there: it could not be set.
    metaclass: Any = type(kind)
    taken = _names_taken(metaclass) | (AT_ONCE if is_of_c(kind) else set())
    names = [name for name in members if name != FIELDS or not is_of_c(kind)]
    first = {name: members.pop(name) if name in taken else None for name in names}
    first["__qualname__"] = kind.__qualname__
    if "__slots__" in members:
        first["__slots__"] = slots
    if sys.version_info >= (3, 14) and (annotations := _annotations(kind)):
        members["__annotations__"] = annotations
    turns: list[dict[str, Any]] = [{}, {}, {}, {}]
    for name, value in members.items():
        turns[_turn(name, value)][name] = value
    steps = [Done(_set, kind, each) for each in turns if each]
    made = tracker()._get_or_create_tracker_id(kind), again, (metaclass, kind.__name__, kind.__bases__), first
    return _class, made, (more + steps, _registered(kind)), None, None, _finish


def _registered(kind: Any) -> list[type]:
    """Return the classes that were registered with an abstract one."""
    if not isinstance(kind, abc.ABCMeta):
        return []
    return [found for each in _abc._get_dump(kind)[0] if (found := each()) is not None]


def _is_slot(kind: type, name: str, value: object) -> bool:
    if name in ("__dict__", "__weakref__"):
        return isinstance(value, types.GetSetDescriptorType)
    return isinstance(value, types.MemberDescriptorType) and value.__objclass__ is kind and value.__name__ == name


def _is_made_by_type(kind: type, name: str, value: object) -> bool:
    return name in _MADE_BY_TYPE or _is_slot(kind, name, value) or is_made_by_ctypes(kind, name, value)


_MADE_BY_TYPE = frozenset({"_abc_impl", "__annotate_func__", "__annotations_cache__", "__classdictcell__"})


# What `type` has descriptors for that may be set.
_SETTABLE = frozenset({"__doc__", "__annotations__", "__abstractmethods__", "__type_params__"})


@cache
def _names_taken(metaclass: type) -> frozenset[str]:
    """Return the names for which a metaclass has data descriptors: setting them would not set a member."""
    descriptors = {name: value for each in reversed(metaclass.__mro__) for name, value in vars(each).items()}
    return frozenset(name for name, value in descriptors.items() if hasattr(type(value), "__set__")) - _SETTABLE


_BEHAVIOUR = (FunctionType, staticmethod, classmethod, property)
_NEEDED_FIRST = ("__parameters__", "__type_params__", "__orig_bases__", FIELDS)


def _turn(name: str, value: object) -> int:
    """Return when a member is set: objects of the class may be among its members, and need its methods."""
    if name in _NEEDED_FIRST:
        return 0
    return 3 if not isinstance(value, _BEHAVIOUR) else 1 if name.startswith("__") else 2


def _annotations(value: Any) -> dict[str, Any]:
    """Return annotations, as text if some name in them is not there: Python 3.14 looks only when it is asked."""
    annotationlib = importlib.import_module("annotationlib")
    with suppress(Exception):
        return dict(annotationlib.get_annotations(value))
    return dict(annotationlib.get_annotations(value, format=annotationlib.Format.STRING))


def _member_taken_apart(member: Any) -> tuple[Any, ...]:
    """Return how to make a member of an enum that is being made."""
    kind = type(member)
    key = member._name_ if member._name_ in kind._member_map_ else member._value_
    made = kind, key, *_bare(member)
    return _bare_member, made, object.__getstate__(member), None, None, _fill_member


def _bare(value: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return how to make an object without its state: the class whose `__new__` does it, and more arguments of that."""
    base = _plain_base(type(value))
    if base is object:
        return base, ()
    if hasattr(base, "__getnewargs__"):
        return base, base.__getnewargs__(value)
    reduced: Any = object.__reduce_ex__(value, 2)
    return base, reduced[1][1:] if reduced[0] is _NEW_OBJECT else reduced[1]


def _plain_base(kind: type) -> Any:
    """Return the nearest base whose `__new__` is no Python code."""
    return next(each for each in kind.__mro__ if isinstance(vars(each).get("__new__"), types.BuiltinFunctionType))


def sentinel(value: object, *, stays: bool) -> tuple[Any, ...] | None:
    """Return how to find a sentinel by its name, because it is told by its identity.

    That is an object without state that has a name, or one that says itself that it is pickled by name.
    """
    kind = type(value)
    if kind is not object:
        if not kind.__flags__ & _IS_HEAP_TYPE:
            return None
        if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
            return _by_its_name(value, kind, stays)
        if _plain_base(kind) is not object or object.__getstate__(value) is not None:
            return None
    module = sys.modules.get(MAIN if kind is object else kind.__module__)
    names = list(vars(module).items()) if module is not None else []
    name = next((name for name, each in names if each is value), None)
    if name is None:
        return None
    return (_sentinel, (kind, name, stays)) if module is sys.modules[MAIN] else (getattr, (module, name))


def _by_its_name(value: object, kind: type, stays: bool) -> tuple[Any, ...] | None:
    """Return how to find an object of the script whose `__reduce__` returns a name. It has state where it is made."""
    if kind.__module__ != MAIN or not any(each is value for each in vars(sys.modules[MAIN]).values()):
        return None
    name: Any = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if not isinstance(name, str) or vars(sys.modules[MAIN]).get(name) is not value:
        return None
    return _sentinel, (kind, name, stays, *_bare(value)), [object.__getstate__(value)], None, None, _fill_sentinel


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
    calls = [Done(operator.call, operator.methodcaller("register", kind, each), value) for kind, each in others]
    return make, (function,), {_REGISTERED: calls}


# What makes members of classes, and the arguments of its constructor: its subclasses may have another one.
_DESCRIPTORS: dict[Any, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    classmethod: ("__func__",),
    staticmethod: ("__func__",),
    functools.cached_property: ("func",),
}
_ANY_DESCRIPTOR = tuple(_DESCRIPTORS)
_RLOCK = type(threading.RLock())  # `cached_property` has one in Python 3.11
_MADE_BY_CLOUDPICKLE = (property, classmethod, staticmethod)


def _descriptor(kind: Any, base: Any) -> Any:
    # From Python 3.15 on, these two want a function at once. `_fill_descriptor` brings it.
    return base.__new__(kind, None) if base in (classmethod, staticmethod) else base.__new__(kind)


def _fill_descriptor(made: Any, state: tuple[Any, tuple[Any, ...], Any]) -> None:
    base, args, rest = state
    base.__init__(made, *args)
    _set_state(made, rest)


def _descriptor_taken_apart(value: Any, kind: Any) -> tuple[Any, ...]:
    """Return how to make a descriptor of a type that is derived from one of Python's, which keeps its part hidden."""
    base, names = next((each, names) for each, names in _DESCRIPTORS.items() if issubclass(kind, each))
    state: Any = object.__getstate__(value)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    attributes = {name: each for name, each in (attributes or {}).items() if type(each) is not _RLOCK}
    args = tuple([vars(base)[name].__get__(value) if name in vars(base) else vars(value)[name] for name in names])
    return _descriptor, (kind, base), (base, args, (attributes, slots)), None, None, _fill_descriptor


def _of_python(value: Any, kind: type, is_by_value: Callable[[object], bool]) -> tuple[Any, ...] | None:
    """Return how to make what pickle cannot take apart of Python's own: what decorators make, and weak dictionaries."""
    _check_travels(kind)
    if kind is FunctionType and value.__code__ is _DISPATCHER.__code__ and is_by_value(value):
        registry = vars(value)["registry"]
        return _dispatching(value, functools.singledispatch, registry[object], registry)
    if kind is _CACHED and is_by_value(value):
        return _cached(value)
    if issubclass(kind, _ANY_DESCRIPTOR) and kind not in _MADE_BY_CLOUDPICKLE:
        return _descriptor_taken_apart(value, kind)
    if kind is functools.singledispatchmethod:
        return _dispatching(value, kind, value.func, value.dispatcher.registry)
    if issubclass(kind, io.TextIOWrapper) and value is not sys.stdout and value is not sys.stderr:
        raise pickle.PicklingError("cannot pickle an open file")  # cloudpickle would copy what is in it
    if kind is weakref.WeakValueDictionary or kind is weakref.WeakKeyDictionary:
        return kind, (), None, None, iter(list(value.items()))
    return None


def _content(cell: CellType) -> list[Any]:
    """Return what a variable of a function has, or nothing if it has none yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _with_its_file(code: CodeType, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Have code keep the name of its file, which a traceback needs."""
    make, args, *rest = reduced
    named = [code.co_filename if isinstance(each, str) and each == _NO_FILE else each for each in args]
    return make, tuple(named), *rest


def _with_annotations(function: FunctionType) -> FunctionType:
    """Return a function whose annotations can be asked for: itself, or a copy."""
    with suppress(Exception):
        _ = function.__annotations__
        return function
    args = function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copied = FunctionType(*args)
    functools.update_wrapper(copied, function, ("__module__", "__qualname__", "__doc__"))
    copied.__kwdefaults__, copied.__annotations__ = function.__kwdefaults__, _annotations(function)
    vars(copied).pop("__wrapped__")
    return copied


@cache
def pickler() -> Any:
    """Return the pickler, a class."""
    import cloudpickle  # here, because a program that only reads results may not need it
    from cloudpickle import cloudpickle as inner

    base: Any = cloudpickle.CloudPickler

    def is_by_value(value: object) -> bool:
        found = inner._lookup_module_and_qualname(value)
        return found is None or inner._is_registered_pickle_by_value(found[0])

    def is_made_here(kind: Any) -> bool:
        """Whether `type` or `ctypes` has made it, and no module has it by its name."""
        made = _plain_base(type(kind)) is type or is_of_c(kind)
        return made and not inner._should_pickle_by_reference(kind)

    class ByValue(base):  # type: ignore[misc]  # cloudpickle has no types
        # Whether a class that is there gets its members anew, and a sentinel is found by its name from then on.
        renews = False

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._types = Types()
            # The ids of enums that were begun, and of cells: variables of a function that functions in it share.
            self._begun: set[int] = set()
            self._cells: set[int] = set()

        def reducer_override(self, value: Any) -> Any:
            kind = type(value)
            if kind is Done:
                return value.call
            if issubclass(kind, type):
                return self._reduced_class(value)
            if kind is FunctionType:
                return _of_python(value, kind, is_by_value) or super().reducer_override(value)
            if kind is CodeType:
                return _with_its_file(value, inner._code_reduce(value))
            if isinstance(kind, enum.EnumType) and is_made_here(kind):
                return self._reduced_member(value)
            reduced = _of_python(value, kind, is_by_value) or self._types.taken_apart(value, kind)
            if kind is CellType and id(value) in self._cells:
                reduced = CellType, ()
            return reduced or sentinel(value, stays=self.renews) or NotImplemented

        def _reduced_class(self, kind: Any) -> Any:
            if not inner._should_pickle_by_reference(kind) and (reduced := derived(kind)):
                return reduced
            is_of_python = kind in inner._BUILTIN_TYPE_NAMES or inner._should_pickle_by_reference(kind)
            if not kind.__flags__ & _IS_HEAP_TYPE and not is_of_python:
                raise pickle.PicklingError(f"no module has the type {kind.__qualname__} by its name")
            if is_of_python or not is_made_here(kind):
                return super().reducer_override(kind)
            if isinstance(kind, enum.EnumType):
                self._begun.add(id(kind))
            return _class_taken_apart(kind, self.renews, self._named(kind))

        def _named(self, value: Any) -> list[Done]:
            """Return what is done so that a class is found by its name."""
            return []

        def _reduced_member(self, member: Any) -> Any:
            kind = type(member)
            if id(kind) in self._begun:
                return _member_taken_apart(member)
            if member._name_ in kind._member_map_:
                return _member, (kind, member._name_)
            return _member, (kind, member._value_)

        def _function_getnewargs(self, function: FunctionType) -> Any:
            """Have functions that share a variable share it where they are made again. It gets its value later."""
            *args, closure = super()._function_getnewargs(function)
            self._cells.update(map(id, function.__closure__ or ()))
            return *args, closure and function.__closure__

        def _dynamic_function_reduce(self, function: FunctionType) -> Any:
            asked = _with_annotations(function) if sys.version_info >= (3, 14) else function
            reduced = super()._dynamic_function_reduce(asked)
            if function.__closure__:
                reduced[2][1]["__closure__"] = [Done(CellType, *_content(cell)) for cell in function.__closure__]
            if parameters := getattr(function, "__type_params__", ()):
                reduced[2][1]["__type_params__"] = parameters
            return reduced

    return ByValue


def dumps(value: object, make: Any = None) -> bytes:
    """Pickle ``value``, which may raise anything. ``make``: makes the pickler."""
    file = io.BytesIO()
    (make or pickler())(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()
