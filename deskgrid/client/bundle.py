"""The user's own source files that travel with a function, so that ``import helper`` works on a worker.

A local module is one that is neither of the standard library, nor installed, nor ours. Those travel that the program
has loaded, and those that they or the program itself would import, wherever in the code the import stands: read from
syntax trees, nothing is executed. A package travels whole. The function itself is pickled elsewhere: what is defined
in the program (`__main__`) goes by value, what is defined in a local module is found in its file here.
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

# Source is small; what is larger than this is data, which belongs on a shared drive or into the arguments.
BUNDLE_LIMIT = 16 * 2**20

_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Folders inside a package that hold no source of it.
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", *_INSTALLED})


class Import(NamedTuple):
    """What an import statement names: ``from ..a import b`` is (2, "a", "b"), ``import a.b`` is (0, "a.b", "")."""

    level: int
    module: str
    name: str


class Unit(NamedTuple):
    """What travels as one: a package's folder or a module's file, below the folder it is imported from."""

    root: Path
    path: Path

    def files(self) -> Iterator[Path]:
        """Its source files."""
        return _sources(self.path) if self.path.is_dir() else iter([self.path])

    def package_of(self, file: Path) -> list[str]:
        """The parts of the name of the package that relative imports in ``file`` start from."""
        return list(file.relative_to(self.root).parts[:-1])


def make_bundle() -> dict[str, bytes]:
    """All local source that the running program needs, by its path below the folder it is imported from, sorted.

    Raises `PicklingFailed` when there is more than BUNDLE_LIMIT bytes of it.
    """
    found: dict[str, bytes] = {}
    for unit in _all_units():
        for file in unit.files():
            with suppress(OSError):  # deleted since it was loaded: a worker that needs it will name it
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
    """The units of the loaded local modules, and of what these and the program import."""
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
    """Whether ``file`` is source of the user's own: not of Python, not installed."""
    # Where a link leads counts too: a venv and an editable install are made of them.
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
    """The unit of a loaded module; None for the program itself and for whatever is not local."""
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if name == "__main__" or not isinstance(file, str):
        return None
    return _unit(name, file)


@lru_cache(maxsize=4096)
def _unit(name: str, file: str) -> Unit | None:
    """The unit of the module ``name`` in ``file``: of its outermost package that has an ``__init__.py``."""
    path = Path(os.path.abspath(file))
    parts = name.split(".")
    if parts[0] == "deskgrid":
        return None
    tail = [*parts, "__init__.py"] if path.name == "__init__.py" else [*parts[:-1], f"{parts[-1]}.py"]
    # A module that was loaded under another name than its file's cannot be imported over there either.
    if not is_local(path) or path.parts[-len(tail) :] != tuple(tail):
        return None
    root = path.parents[len(tail) - 1]
    return Unit(root, next(_packages(root, tail[:-1]), path))


def _packages(root: Path, parts: list[str]) -> Iterator[Path]:
    """The folders below ``root`` along ``parts`` that are packages, outermost first."""
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
    """What ``file`` imports; nothing when it cannot be read, or is not Python of this version."""
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
    """What the program imports: of its file, or, in a notebook or a shell, of the functions defined so far."""
    main = sys.modules["__main__"]
    if file := getattr(main, "__file__", None):
        return set(_imports_of(Path(file)))
    functions = (value for value in list(vars(main).values()) if isinstance(value, FunctionType))
    return {found for function in functions for found in _imports_of_code(function.__code__)}


def _imports_of_code(code: CodeType) -> Iterator[Import]:
    """The imports in compiled code and in the functions that it defines."""
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
    """The local units that ``imports`` name, seen from a module of ``package``."""
    for found in imports:
        base = [*package[: len(package) - found.level + 1]] if found.level else []
        names = [*base, *(part for part in (*found.module.split("."), found.name) if part)]
        if names and (unit := _resolve(names)):
            yield unit


def _resolve(names: list[str]) -> Unit | None:
    """The unit of the longest module that ``names`` leads to; nothing is imported for it."""
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
    """Where ``import name`` would look; with ``places``, a submodule by the path of its package."""
    try:
        if places is None:
            return importlib.util.find_spec(name)
        return PathFinder.find_spec(name, places)
    except (ImportError, ValueError, AttributeError):
        return None
