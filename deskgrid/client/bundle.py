"""The user's own source files that travel with a function, so that ``import helper`` works on a worker.

A local module is a module that is not in the standard library, not installed, and not part of deskgrid. The bundle
contains the local modules that the program has loaded, and all local modules that these or the program itself might
import, anywhere in their code. The imports are read from syntax trees; nothing is executed. A package travels as a
whole. The function itself is pickled elsewhere: objects defined in the program (`__main__`) are pickled by value, and
objects defined in a local module are loaded from its file in the bundle.
"""

import ast
import dis
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

from deskgrid.errors import PicklingFailed

# Bytes. Source is small; anything larger is data, which belongs on a shared drive or in the arguments.
BUNDLE_LIMIT = 16 * 2**20

_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Folders inside a package that do not contain its source.
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", *_INSTALLED})


class Import(NamedTuple):
    """One import: ``from ..a import b`` is (2, "a", "b"), ``import a.b`` is (0, "a.b", "")."""

    level: int
    module: str
    name: str


class Unit(NamedTuple):
    """A unit of the bundle: a package's folder or a module's file, below the folder that it is imported from."""

    root: Path
    path: Path

    def files(self) -> Iterator[Path]:
        """Return the source files of the unit."""
        return _sources(self.path) if self.path.is_dir() else iter([self.path])

    def package_of(self, file: Path) -> list[str]:
        """Return the name, in parts, of the package that relative imports in ``file`` start from."""
        return list(file.relative_to(self.root).parts[:-1])


def make_bundle() -> dict[str, bytes]:
    """Return all local source that the running program needs, sorted by its path below the folder of its import.

    Raises `PicklingFailed` if the source has more than BUNDLE_LIMIT bytes.
    """
    found: dict[str, bytes] = {}
    for unit in _all_units():
        for file in unit.files():
            with suppress(OSError):  # deleted since it was loaded: if a worker needs it, its error will name the module
                found[file.relative_to(unit.root).as_posix()] = file.read_bytes()
    _check_size(found)
    return dict(sorted(found.items()))


def _check_size(found: dict[str, bytes]) -> None:
    total = sum(map(len, found.values()))
    if total > BUNDLE_LIMIT:
        largest = ", ".join(sorted(found, key=lambda name: len(found[name]), reverse=True)[:3])
        raise PicklingFailed(
            f"the program's own modules are {total:,} bytes of source, and {BUNDLE_LIMIT:,} can travel; "
            f"the largest are {largest}: install them on the workers, or import less"
        )


def _all_units() -> set[Unit]:
    """Return the units of the loaded local modules, and of the modules that these and the program import."""
    to_read = {unit for module in list(sys.modules.values()) if (unit := _unit_of(module))}
    to_read |= set(_units_named(_imports_of_program(), []))
    known: set[Unit] = set()
    while to_read:
        unit = to_read.pop()
        known.add(unit)
        for file in unit.files():
            to_read |= set(_units_named(_imports_of(file), unit.package_of(file))) - known
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


def _unit_of(module: ModuleType) -> Unit | None:
    """Return the unit of a loaded module; None for the program itself and for modules that are not local."""
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if name == "__main__" or not isinstance(file, str):
        return None
    return _unit(name, file)


@lru_cache(maxsize=4096)
def _unit(name: str, file: str) -> Unit | None:
    """Return the unit of module ``name`` in ``file``: its outermost package with an ``__init__.py``, or ``file``."""
    path = Path(os.path.abspath(file))
    parts = name.split(".")
    if parts[0] == "deskgrid":
        return None
    tail = [*parts, "__init__.py"] if path.name == "__init__.py" else [*parts[:-1], f"{parts[-1]}.py"]
    # A module loaded under a name that differs from its file's name cannot be imported on a worker either.
    if not is_local(path) or path.parts[-len(tail) :] != tuple(tail):
        return None
    root = path.parents[len(tail) - 1]
    return Unit(root, next(_packages(root, tail[:-1]), path))


def _packages(root: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the folders below ``root`` along ``parts`` that are packages, outermost first."""
    folders = accumulate(parts, lambda folder, part: folder / part, initial=root)
    return (folder for folder in folders if folder != root and (folder / "__init__.py").is_file())


def _sources(package: Path) -> Iterator[Path]:
    for path in sorted(package.iterdir()):
        if path.is_dir():
            if path.name not in _NOT_SOURCE and not path.name.startswith("."):
                yield from _sources(path)
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


def _units_named(imports: Iterable[Import], package: list[str]) -> Iterator[Unit]:
    """Yield the local units that ``imports`` in a module of ``package`` name."""
    for found in imports:
        base = [*package[: len(package) - found.level + 1]] if found.level else []
        names = [*base, *(part for part in (*found.module.split("."), found.name) if part)]
        if names and (unit := _resolve(names)):
            yield unit


def _resolve(names: list[str]) -> Unit | None:
    """Return the unit of the first module along ``names`` that has a file, without importing anything."""
    spec = _find(names[0])
    for end in range(1, len(names) + 1):
        if spec is None:
            return None
        if spec.origin and spec.has_location:
            return _unit(".".join(names[:end]), spec.origin)
        # A namespace package: a folder without __init__.py has no file of its own; look one name deeper.
        places = list(spec.submodule_search_locations or [])
        spec = _find(names[end], places) if end < len(names) else None
    return None


def _find(name: str, places: list[str] | None = None) -> ModuleSpec | None:
    """Find the module that ``import name`` would load; with ``places``, a submodule in its package's folders."""
    try:
        if places is None:
            return importlib.util.find_spec(name)
        return PathFinder.find_spec(name, places)
    except (ImportError, ValueError, AttributeError):
        return None
