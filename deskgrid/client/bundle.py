"""The user's own source files that travel with a function, so that ``import helper`` works on a worker.

A local module is a module that is not in the standard library, not installed, and not part of deskgrid. The bundle
contains the local modules that the program has loaded, and all local modules that these or the program itself might
import, anywhere in their code. The imports are read from syntax trees; nothing is executed. Of a package, only the
modules that are reached in this way travel. The user names modules that are imported in another way, for example by a
computed name. The function itself is pickled elsewhere: objects defined in the program (`__main__`) are pickled by
value, and objects defined in a local module are loaded from its file in the bundle.
"""

import ast
import dis
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

from deskgrid.errors import BagRejected
from deskgrid.wire import PAYLOAD_LIMIT

_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Folders inside a package that do not contain its source.
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", *_INSTALLED})


class Import(NamedTuple):
    """One import: ``from ..a import b`` is (2, "a", "b"), ``import a.b`` is (0, "a.b", "")."""

    level: int
    module: str
    name: str


class Source(NamedTuple):
    """A source file, and the folder that its module is imported from."""

    root: Path
    path: Path

    @property
    def package(self) -> list[str]:
        """The name, in parts, of the package that relative imports in this file start from."""
        return list(self.path.relative_to(self.root).parts[:-1])


def make_bundle(modules: Sequence[str] = ()) -> dict[str, bytes]:
    """Return all local source that the running program needs, sorted by its path below the folder of its import.

    ``modules``: names of more local modules that travel, packages as a whole. Raises `BagRejected` if one of them is
    not a local module, or if the source has more than PAYLOAD_LIMIT bytes.
    """
    found: dict[str, bytes] = {}
    for source in _reached(modules):
        with suppress(OSError):  # deleted since it was loaded: if a worker needs it, its error will name the module
            found[source.path.relative_to(source.root).as_posix()] = source.path.read_bytes()
    _check_size(found)
    return dict(sorted(found.items()))


def _check_size(found: dict[str, bytes]) -> None:
    total = sum(map(len, found.values()))
    if total > PAYLOAD_LIMIT:
        largest = ", ".join(sorted(found, key=lambda name: len(found[name]), reverse=True)[:3])
        raise BagRejected(
            f"the program's own modules are {total:,} bytes of source, and {PAYLOAD_LIMIT:,} can travel; "
            f"the largest are {largest}: install them on the workers, or import less"
        )


def _reached(modules: Sequence[str]) -> set[Source]:
    """Return the files of the loaded local modules, of ``modules``, and of all that these and the program import."""
    to_read = {source for module in list(sys.modules.values()) for source in _sources_of(module)}
    to_read |= set(_imported(_imports_of_program(), _package_of_program()))
    to_read |= {source for name in modules for source in _whole(name)}
    known: set[Source] = set()
    while to_read:
        source = to_read.pop()
        known.add(source)
        to_read |= set(_imported(_imports_of(source.path), source.package)) - known
    return known


# --- which file is whose ---------------------------------------------------------------------------------------------


def is_local(file: Path) -> bool:
    """Whether ``file`` is the user's own source: neither part of Python nor installed."""
    # The target of a symbolic link counts, too: virtual environments and editable installs use links.
    return file.suffix == ".py" and not _is_foreign(file) and not _is_foreign(file.resolve())


def _is_foreign(file: Path) -> bool:
    if not _INSTALLED.isdisjoint(file.parts):
        return True
    return any(file.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> frozenset[Path]:
    paths = sysconfig.get_paths()
    return frozenset(Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib"))


def _sources_of(module: ModuleType) -> Sequence[Source]:
    """Return the files of a loaded module; none for the program itself and for modules that are not local."""
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    return () if name == "__main__" or not isinstance(file, str) else _files_of(name, file)


@lru_cache(maxsize=4096)
def _files_of(name: str, file: str) -> Sequence[Source]:
    """Return the file of a local module and those of the packages around it, which are imported with it."""
    path = Path(os.path.abspath(file))
    parts = name.split(".")
    if parts[0] == "deskgrid":
        return ()
    tail = [*parts, "__init__.py"] if path.name == "__init__.py" else [*parts[:-1], f"{parts[-1]}.py"]
    # A module loaded under a name that differs from its file's name cannot be imported on a worker either.
    if not is_local(path) or path.parts[-len(tail) :] != tuple(tail):
        return ()
    root = path.parents[len(tail) - 1]
    folders = list(accumulate(tail[:-1], lambda folder, part: folder / part, initial=root))[1:]
    packages = [folder / "__init__.py" for folder in folders if (folder / "__init__.py").is_file()]
    return [Source(root, each) for each in {*packages, path}]


def _whole(name: str) -> list[Source]:
    """Return the files of the local module ``name`` and, if it is a package, all source in it."""
    parts = name.split(".")
    spec = dict(_specs(parts)).get(name)
    if spec is None:
        raise BagRejected(f"modules: there is no module {name!r}")
    found = list(_along(parts))
    for folder in [Path(os.path.abspath(place)) for place in spec.submodule_search_locations or ()]:
        root = folder.parents[len(parts) - 1]
        found += [Source(root, file) for file in _below(folder) if parts[0] != "deskgrid" and is_local(file)]
    if not found:
        raise BagRejected(f"modules: {name!r} is not a module of your own: install it on the workers")
    return found


def _below(package: Path) -> Iterator[Path]:
    """Yield the source files in a package's folder."""
    for path in sorted(package.iterdir()):
        if path.is_dir():
            if path.name not in _NOT_SOURCE and not path.name.startswith("."):
                yield from _below(path)
        elif path.suffix == ".py":
            yield path


# --- what is imported where ------------------------------------------------------------------------------------------


def _imports_of(file: Path) -> tuple[Import, ...]:
    """Return the imports in ``file``; none if it cannot be read or is not valid for this version of Python."""
    try:
        stat = file.stat()
        return _parsed(file, stat.st_mtime_ns, stat.st_size)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()


@lru_cache(maxsize=4096)
def _parsed(file: Path, _changed_ns: int, _size: int) -> tuple[Import, ...]:
    return tuple(_statements(ast.parse(file.read_bytes())))


def _statements(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.level, node.module or "", alias.name) for alias in node.names)


def _imports_of_program() -> set[Import]:
    """Return the imports in the program's file or, in a notebook or a shell, in the functions defined so far."""
    main = sys.modules["__main__"]
    if file := getattr(main, "__file__", None):
        return set(_imports_of(Path(file)))
    functions = (value for value in list(vars(main).values()) if isinstance(value, FunctionType))
    return {found for function in functions for found in _imports_of_code(function.__code__)}


def _imports_of_code(code: CodeType) -> Iterator[Import]:
    """Yield the imports in compiled code and in the functions that it defines."""
    module = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            yield Import(0, module, "")
        elif step.opname == "IMPORT_FROM":
            yield Import(0, module, step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports_of_code(constant)


def _package_of_program() -> list[str]:
    """Return the name, in parts, of the package that the program is run in, with ``python -m``."""
    package = getattr(sys.modules["__main__"], "__package__", None)
    return package.split(".") if package else []


def _imported(imports: Iterable[Import], package: list[str]) -> Iterator[Source]:
    """Yield the local files that ``imports`` in a module of ``package`` would load."""
    for found in imports:
        base = [*package[: len(package) - found.level + 1]] if found.level else []
        names = [*base, *(part for part in (*found.module.split("."), found.name) if part)]
        if names:
            yield from _along(names)


def _along(names: Sequence[str]) -> Iterator[Source]:
    """Yield the files of the local modules along ``names``; the last name may be another thing in a module."""
    for name, spec in _specs(names):
        if spec.origin and spec.has_location:
            files = _files_of(name, spec.origin)
            if not files:
                return  # installed, and so is all below it
            yield from files


def _specs(names: Sequence[str]) -> Iterator[tuple[str, ModuleSpec]]:
    """Yield the modules along ``names``, each with its full name, without importing anything."""
    places: list[str] | None = None
    for end, name in enumerate(names, start=1):
        spec = _find(name, places)
        if spec is None:
            return
        yield ".".join(names[:end]), spec
        if spec.submodule_search_locations is None:
            return
        places = list(spec.submodule_search_locations)


def _find(name: str, places: list[str] | None = None) -> ModuleSpec | None:
    """Find the module that ``import name`` would load; with ``places``, a submodule in its package's folders."""
    try:
        if places is None:
            return importlib.util.find_spec(name)
        return PathFinder.find_spec(name, places)
    except (ImportError, ValueError, AttributeError):
        return None
