"""The user's script in the process of a task: what `__main__` is there, and how its classes travel back.

A function of a script travels by value. Its globals are those of the module `Script`, which is `__main__` while the
function runs. So whatever looks for functions and classes by name finds them: `pickle`, `joblib`, a process pool.

Rule: as `child.py`, this file imports nothing of ours.
"""

import functools
import importlib
import importlib.util
import io
import linecache
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

HIGHEST = pickle.HIGHEST_PROTOCOL
NAME = "__main__"
# What `multiprocessing` calls the script in processes that it starts anew.
_STARTED = "__mp_main__"
# The folder, in that for temporary files, with what other processes load instead of the script; and what they run.
_FOLDER = "deskgrid-script"
# The module, of `multiprocessing` or of others alike, that prepares what a new process is told.
_STARTS = "spawn"
_FOR_PROCESSES = """\
import pickle
import sys
import types

try:
    import deskgrid.rebuilt
except ImportError:  # in an environment, where only this part of it is needed
    sys.modules["deskgrid"] = types.ModuleType("deskgrid")
    sys.modules["deskgrid"].__path__ = [{!r}]

with open(__file__.removesuffix("py") + "pickle", "rb") as file:
    globals().update(pickle.load(file))
sys.modules.update(globals().get("__deskgrid_modules__", {{}}))
"""
# Among the globals of a script: modules that its program made by hand, by name. See `find_by_name` in `rebuilt.py`.
_MODULES = "__deskgrid_modules__"
# What is said of a name that the script has on the user's machine, perhaps.
NOT_HERE = "deskgrid: of your script, only what the function refers to travels: use the name in the function, too"
OTHER_PATH = "deskgrid: a path object of another system cannot be loaded here: pass str(path), a PurePath or a File"
# What every module has.
_OF_A_MODULE = frozenset(vars(types.ModuleType(NAME))) | {"__builtins__", "__file__", "__annotations__", "__path__"}


class Script(types.ModuleType):
    """The module `__main__` for the tasks of one template. ``folder``: for temporary files."""

    __slots__ = ("_folder",)

    def __init__(self, folder: str) -> None:
        super().__init__(NAME)
        self._folder = os.path.join(folder, _FOLDER)

    def __repr__(self) -> str:
        return f"<module {NAME!r}>"  # without a look at its specification

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (NAME,)

    def begin(self) -> None:
        """From now on, this is `__main__`."""
        sys.modules[NAME] = sys.modules[_STARTED] = self
        if made := vars(self).get(_MODULES):
            sys.modules.update(made)

    @property
    def __spec__(self) -> None:  # type: ignore[override]  # elsewhere it is no property
        """None. `multiprocessing` asks for it before it starts a process, which needs a file to run as its `__main__`.

        So does `loky`. Processes that are copies of this one (fork) have everything. Every import asks, too.
        """
        if str(sys._getframe(1).f_globals.get("__name__")).rpartition(".")[2] != _STARTS:
            return
        os.makedirs(self._folder, exist_ok=True)
        program = _FOR_PROCESSES.format(os.path.dirname(rebuilt().__file__)).encode()
        for ending, data in (("pickle", _pickled_globals(vars(self))), ("py", program)):
            new = f"{self._file(ending)}.{threading.get_ident()}"
            with open(new, "wb") as file:
                file.write(data)
            os.replace(new, self._file(ending))  # a process that was started before may be reading it

    @property
    def __file__(self) -> str:  # type: ignore[override]  # elsewhere it is no property
        """The file for other processes if there is one, or the user's script, where that is on the user's machine."""
        if os.path.exists(self._file("py")):
            return self._file("py")
        if "__file__" not in vars(self):
            raise AttributeError(f"module {NAME!r} has no attribute '__file__'")
        return str(vars(self)["__file__"])

    def _file(self, ending: str) -> str:
        return os.path.join(self._folder, f"script.{ending}")


def _pickled_globals(names: Mapping[str, Any]) -> bytes:
    """Pickle the globals of a script, without those that cannot be pickled."""
    chosen = {name: value for name, value in names.items() if name not in _OF_A_MODULE}
    dumps: Callable[[object], bytes] = rebuilt().dumps
    try:
        return dumps(chosen)
    except Exception:
        return dumps({name: value for name, value in chosen.items() if _is_picklable(value, dumps)})


def _is_picklable(value: object, dumps: Callable[[object], bytes]) -> bool:
    with suppress(Exception):
        return bool(dumps(value))
    return False


@functools.cache
def rebuilt() -> Any:
    """Return the module that pickles by value what cannot be imported elsewhere.

    The import is here because the worker also imports this file, and needs it, and cloudpickle, only later. It is kept,
    because a task may have emptied `sys.modules`.
    """
    return importlib.import_module("deskgrid.rebuilt")


def know_sources(sources: Mapping[str, bytes]) -> None:
    """Let tracebacks have the lines of a user's files, which are not on this PC: those of functions that travel."""
    for name, source in sources.items():
        text = source.decode(errors="replace")
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name


def is_compiled(folder: str, module: str) -> bool:
    """Whether a folder has a compiled module, of whichever system."""
    with suppress(OSError):
        names = os.listdir(folder) if folder else []
        return any(name.startswith(f"{module}.") and name.endswith((".so", ".pyd")) for name in names)
    return False


def version_of(package: str, module: str) -> str:
    """Return the version of a package that is here, and in which a module is missing; empty if that is not so."""
    from importlib import metadata  # here, because few tasks need it

    with suppress(ImportError, ValueError):  # the package is missing, too
        if package != module and importlib.util.find_spec(package) is not None:
            return metadata.version(package)
    return ""


def instead_of(value: object) -> str:
    """Return what to do about a result that cannot be pickled."""
    if isinstance(value, types.GeneratorType | types.AsyncGeneratorType):
        return "return a list, as in list(...)"
    if isinstance(value, types.CoroutineType):
        return "return what it gives, as in asyncio.run(...)"
    return "return what it is made of, such as numbers, texts, lists or arrays"


def explain(error: BaseException) -> None:
    """Say what to do about a name of the script, of which only a part is here, and about a path of another system."""
    with suppress(Exception):  # its text may be code of the task
        if isinstance(error, AttributeError) and f"module {NAME!r}" in str(error):
            error.add_note(NOT_HERE)
        if isinstance(error, NotImplementedError) and "cannot instantiate" in str(error):
            error.add_note(OTHER_PATH)


def load_all(pickled: bytes) -> None:
    """Load one pickle after the other. One in a pickle of its own is what the task may do without."""
    file = io.BytesIO(pickled)
    while file.tell() < len(pickled):
        if isinstance(found := pickle.load(file), bytes):
            with suppress(Exception):  # it may do without
                pickle.loads(found)


def dumps(value: object) -> bytes:
    """Pickle a value for the program: by value what only the script has. May raise anything."""
    with suppress(Exception):
        plain = pickle.dumps(value, HIGHEST)
        # Another program has others there.
        if not may_name_script(plain) and not rebuilt().may_be_of_one_process(plain):
            return plain
    return by_value(value)


def may_name_script(pickled: bytes) -> bool:
    """Whether a pickle names what the script has, or has a plain object, which may be a sentinel of it."""
    made = vars(sys.modules[NAME]).get(_MODULES, ())
    names = (NAME.encode(), _STARTED.encode(), rebuilt().PLAIN_OBJECT, *map(str.encode, made))
    return any(name in pickled for name in names)


def naming_sentinels(value: object) -> bytes:
    """Pickle a value so that it names what the script has, sentinels as well. May raise anything."""
    found = {}
    for each in vars(sys.modules[NAME]).values():
        with suppress(Exception):  # code of the script may run
            if reduced := rebuilt().sentinel(each, stays=False):
                found[id(each)] = reduced

    class Naming(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            return found.get(id(value), NotImplemented)

    file = io.BytesIO()
    (Naming if found else pickle.Pickler)(file, HIGHEST).dump(value)
    return file.getvalue()


@functools.cache
def _pickler() -> Any:
    base: Any = rebuilt().pickler()

    class OfScript(base):  # type: ignore[misc]  # cloudpickle has no types
        def reducer_override(self, value: Any) -> Any:
            """Have the program that reads a class of the script take its own."""
            if issubclass(type(value), type) and (name := _name_in_script(value)):
                classes = importlib.import_module("deskgrid.classes")
                return classes.class_of, (name, classes.members_of(value), _pickled_class(value))
            return super().reducer_override(value)

    return OfScript


def _name_in_script(kind: type) -> str:
    """Return the name by which the script has a class; empty if it has none, or if the class is a module's."""
    main: Any = sys.modules[NAME]
    for name in (kind.__qualname__, kind.__name__):  # one that a function of the script has made has only the latter
        with suppress(AttributeError):
            if functools.reduce(getattr, name.split("."), main) is kind:
                return "" if rebuilt().tracker()._should_pickle_by_reference(kind) else name
    return ""


@functools.cache
def _pickled_class(kind: type) -> bytes:
    pickled: bytes = rebuilt().dumps(kind)
    return pickled


def by_value(value: object) -> bytes:
    """Pickle a value with the code of what cannot be imported elsewhere, such as a class of the user's script."""
    pickled: bytes = rebuilt().dumps(value, _pickler())
    return pickled
