"""An exception on its way from a task to the program: taken apart there, and put together here.

Pickle calls the constructor again, with ``args``. So exceptions with a constructor of their own come back with another
text, or not at all. Here no constructor is called: an exception gets the type, ``args``, attributes, notes, cause,
context and members that it had. What cannot travel is text.

Rule: this file imports nothing of ours, because the process that runs tasks loads it, too.
"""

import copyreg
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce
from itertools import chain
from typing import Any

Dumps = Callable[[object], bytes]

# How many exceptions travel with one: its causes, contexts and members, and those that its attributes have.
_TOGETHER = 100
# Maximum bytes of a part if the whole is too large: of each argument and attribute.
_PART_BYTES = 4 * 2**10
# What Python's own types keep outside of their attributes.
_KEPT_ELSEWHERE: tuple[tuple[type, tuple[str, ...]], ...] = (
    (OSError, ("errno", "strerror", "filename", "filename2")),
    (UnicodeEncodeError, ("encoding", "object", "start", "end", "reason")),
    (UnicodeDecodeError, ("encoding", "object", "start", "end", "reason")),
    (UnicodeTranslateError, ("object", "start", "end", "reason")),
    (SyntaxError, ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset")),
    (ImportError, ("msg", "name", "path")),
    (NameError, ("name",)),
    (AttributeError, ("name",)),
    (StopIteration, ("value",)),
)
# What every exception has, also where its type has something else of that name.
_EVERY: Any = vars(BaseException)
_OWN_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


# --- in the process of the task ---------------------------------------------------------------------------------------


def taken_apart(error: BaseException, dumps: Dumps, limit: int) -> bytes:
    """Return an exception as at most ``limit`` bytes. ``dumps``: pickles a value, and may raise anything."""
    for largest in (limit, _PART_BYTES, 0):
        tree = _Disassembler(dumps, largest).of(error, linked=largest > 0)
        packed = pickle.dumps(tree, pickle.HIGHEST_PROTOCOL)
        if len(packed) <= limit:
            return packed
    return likeness(error)


def likeness(error: BaseException) -> bytes:
    """Return what makes an exception that is caught as this one is, and has nothing else of it."""
    return pickle.dumps({"names": _names(type(error))}, pickle.HIGHEST_PROTOCOL)


def _names(kind: type) -> list[tuple[str, str]]:
    return [(each.__module__, each.__qualname__) for each in kind.__mro__ if issubclass(each, Exception)]


class _Disassembler:
    """Takes exceptions apart. ``largest``: bytes of a pickled value."""

    def __init__(self, dumps: Dumps, largest: int) -> None:
        self._dumps = dumps
        self._largest = largest
        # By the exception's id. Pickle keeps what is the same the same.
        self._trees: dict[int, dict[str, Any]] = {}

    def of(self, error: BaseException, *, linked: bool) -> dict[str, Any]:
        """Return what makes an exception: its type, or only the names of that, and what it had."""
        if id(error) in self._trees:
            return self._trees[id(error)]
        tree: dict[str, Any] = {"names": _names(type(error)), "said": f"{type(error).__qualname__}: {_said(error)}"}
        if len(self._trees) >= _TOGETHER:
            return tree
        self._trees[id(error)] = tree
        with suppress(Exception):
            tree["kind"] = self._dumps(type(error))
        tree["whole"] = self._as_its_type_pickles_it(error)
        if isinstance(error, BaseExceptionGroup):
            tree["group"] = str(error.message), [self.of(each, linked=linked) for each in error.exceptions]
        else:
            tree["args"] = [self._part(each) for each in _EVERY["args"].__get__(error)]
        tree["attributes"] = {name: self._part(value) for name, value in vars(error).items()}
        tree["elsewhere"] = {name: self._part(value) for name, value in _elsewhere(error)}
        if linked:
            links = {name: _EVERY[name].__get__(error) for name in ("__cause__", "__context__")}
            tree["links"] = {name: self.of(each, linked=True) for name, each in links.items() if each is not None}
        tree["suppress"] = _EVERY["__suppress_context__"].__get__(error)
        return tree

    def _as_its_type_pickles_it(self, error: BaseException) -> bytes | None:
        """Return the pickle of an exception whose type says how, if it can be loaded again."""
        if not any(_is_own(type(error), name) for name in _OWN_PICKLING):
            return None
        with suppress(Exception):
            pickled = self._dumps(error)
            again = pickle.loads(pickled)
            if type(again) is type(error) and str(again) == str(error) and len(pickled) <= self._largest:
                return pickled
        return None

    def _part(self, value: object) -> object:
        """Return a value as it travels: pickled, as a tree if it is an exception, or as text."""
        if isinstance(value, BaseException):
            return self.of(value, linked=False)
        if not (isinstance(value, str) and len(value) > self._largest):
            with suppress(Exception):
                if len(pickled := self._dumps(value)) <= self._largest:
                    return pickled
        return _text(value)


def _is_own(kind: type, name: str) -> bool:
    """Whether a type that is none of Python's defines this method."""
    return next((each for each in kind.__mro__ if name in vars(each)), object).__module__ != "builtins"


def _elsewhere(error: BaseException) -> Iterator[tuple[str, object]]:
    """Yield what is not among the attributes in the dictionary of an exception."""
    kept = [names for kind, names in _KEPT_ELSEWHERE if isinstance(error, kind)]
    for name in [*copyreg._slotnames(type(error)), *chain(*kept)]:  # type: ignore[attr-defined]  # only pickle and copy know it
        with suppress(Exception):  # a property may raise anything
            if (value := getattr(error, name, None)) is not None:
                yield name, value


def _said(error: BaseException) -> str:
    try:
        return _text(str(error))
    except Exception:
        return ""


def _text(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    half = _PART_BYTES // 2
    if len(text) <= 2 * half:
        return str(text)
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"


# --- in the program ---------------------------------------------------------------------------------------------------


def put_together(packed: bytes, remote: type[Exception], said: str) -> Exception | None:
    """Return the exception of a task, or one of ``remote`` that the ``except`` clauses for its types catch.

    None if it is no `Exception`: a task's SystemExit must not end the program. ``said``: the text of one of ``remote``.
    """
    tree = pickle.loads(packed)
    if isinstance(tree, BaseException):  # as workers of earlier versions sent it
        return tree if isinstance(tree, Exception) else None
    tree["said"] = said
    return _Maker(remote).made(tree) if tree["names"] else None


class _Maker:
    """Makes exceptions of what is left of them, which may be little."""

    def __init__(self, remote: type[Exception]) -> None:
        self._remote = remote
        # By the tree's id. None: it is being made.
        self._made: dict[int, Exception | None] = {}

    def made(self, tree: dict[str, Any]) -> Exception:
        """Return the exception of a tree: the same one each time."""
        if id(tree) in self._made:
            return self._made[id(tree)] or self._remote(tree["said"])
        self._made[id(tree)] = None
        try:
            error = self._same(tree)
        except Exception:
            error = None
        if not isinstance(error, Exception):
            error = _like(tree["names"], self._remote, tree["said"])
        self._made[id(tree)] = error
        for name, each in tree.get("links", {}).items():
            _EVERY[name].__set__(error, self.made(each))
        _EVERY["__suppress_context__"].__set__(error, tree.get("suppress", False))
        return error

    def _same(self, tree: dict[str, Any]) -> BaseException:
        kind: type[BaseException] = pickle.loads(tree["kind"])
        if tree["whole"] is not None:
            with suppress(Exception):
                error: BaseException = pickle.loads(tree["whole"])
                if isinstance(error, kind):
                    return error
        if "group" in tree:
            message, members = tree["group"]
            args: tuple[Any, ...] = message, [self.made(each) for each in members]
        else:
            args = tuple([self._value(part) for part in tree["args"]])
        error = _new(kind, args)
        if isinstance(error, Exception):
            self._made[id(tree)] = error
        for name, part in tree["elsewhere"].items():
            with suppress(AttributeError):  # its type computes it
                object.__setattr__(error, name, self._value(part))
        vars(error).update({name: self._value(part) for name, part in tree["attributes"].items()})
        return error

    def _value(self, part: Any) -> Any:
        if isinstance(part, dict):
            return self.made(part)
        return pickle.loads(part) if isinstance(part, bytes) else part


def _new(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """Make an exception without its constructor."""
    new: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins").__new__
    try:
        error: BaseException = new(kind, *args)
    except TypeError:
        error = new(kind)
    if not isinstance(error, BaseExceptionGroup):
        _EVERY["args"].__set__(error, args)
    return error


def _like(names: list[tuple[str, str]], remote: type[Exception], said: str) -> Exception:
    """Return an exception of ``remote`` that is also one of the first of these types that this program knows."""
    for module, name in names:
        with suppress(Exception):
            base: Any = reduce(getattr, name.split("."), sys.modules[module])
            if issubclass(base, Exception) and base is not Exception and not issubclass(base, BaseExceptionGroup):
                members = {"__str__": _first_argument, "__reduce__": lambda error: (remote, error.args)}
                found = _new(type(remote.__name__, (remote, base), members), (said,))
                assert isinstance(found, Exception)
                return found
    return remote(said)


def _first_argument(error: Exception) -> str:
    return str(_EVERY["args"].__get__(error)[0])
