"""The user's own source files that travel with a function, so that ``import helper`` works on a worker.

A local module is a module that is not in the standard library, not installed, and not part of deskgrid. What travels
begins with what the pickled function and arguments name, and with what functions that travel by value import; it ends
with all that these modules might import, anywhere in their code. Source is parsed, and nothing is executed. Of a
package, only the modules that are reached in this way travel, and its files of data. The user names modules that are
imported in another way, for example by a computed name. Modules that are reached and not local belong to libraries:
what is to be in an environment. A local module may be compiled; then it works on PCs of the same system and Python.
"""

import logging
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path, PurePosixPath
from types import FunctionType, ModuleType
from typing import NamedTuple

from deskgrid.client.imports import Import, entries, imports_of, imports_of_code, is_source, source_in, specs
from deskgrid.errors import BagRejected
from deskgrid.wire import Payload, wrong_with_place

log = logging.getLogger("deskgrid.client")

PYTHONS_OWN = frozenset({*sys.stdlib_module_names, "__main__"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Folders inside a package that do not contain its source.
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", *_INSTALLED})
# What files of code end with, of any system.
_CODE = frozenset({".py", ".pyc", ".pyi", ".so", ".pyd", ".c", ".pyx", ".o"})
# A short text in a pickle: this byte, its length, and its UTF-8. The names of modules are such texts.
_TEXT = re.compile(rb"\x8c(?=.)", re.DOTALL)
# The most bytes of such a text, with its length.
_NAME_BYTES = 256
# Of each package, the most bytes and files of data that travel.
_DATA_BYTES = 16 * 2**20
_DATA_FILES = 1_000
_told_of_data: set[Path] = set()
# How much of an argument is searched for names of modules. Bytes.
_SEARCHED = 2**20


class ModuleSource(NamedTuple):
    """A source file, and its place below a folder that its module can be imported from."""

    place: PurePosixPath
    path: Path

    @property
    def module(self) -> str:
        """The name that it is imported by."""
        name = self.place.name.partition(".")[0]
        return ".".join([*self.package, *([name] if name != "__init__" else [])])

    @property
    def package(self) -> list[str]:
        """The name, in parts, of the package that relative imports in this file start from."""
        return list(self.place.parts[:-1])


class Reached(NamedTuple):
    """``files``: the source that travels, by its path below the folder of its import, sorted. ``modules``: its names.

    ``libraries``: the full names of modules that are reached and neither local nor part of Python. ``missing``: the
    first names of those that are not on this machine.
    """

    files: dict[str, bytes]
    modules: frozenset[str]
    libraries: frozenset[str]
    missing: frozenset[str] = frozenset()


def named_in(pickled: Payload, whole: bool = False) -> set[str]:
    """Return the names of loaded modules that a pickle has: all that it loads by reference, and perhaps some more.

    ``whole``: search all of it, not only its beginning.
    """
    found = set[str]()
    for data in [memoryview(pickled)] if isinstance(pickled, bytes) else pickled.frames():
        for start in range(0, len(data) if whole else 1, _SEARCHED):
            # A name may begin in one piece and end in the next.
            some = bytes(data[start : start + _SEARCHED + _NAME_BYTES])
            texts = {some[at + 1 : at + 1 + some[at]] for at in map(re.Match.end, _TEXT.finditer(some))}
            found.update([name for text in texts if (name := text.decode(errors="replace")) in sys.modules])
    return found - {"__main__"}


def reached_from(named: Iterable[str], functions: Iterable[FunctionType] = (), modules: Sequence[str] = ()) -> Reached:
    """Return what is reached from loaded modules and from functions that travel by value.

    ``modules``: names of more local modules that travel, packages as a whole. Raises `BagRejected` if one of them is
    not a local module.
    """
    walk = _Walk()
    for name in named:
        walk.module(name)
    for code, package in {(function.__code__, _package_of(function)) for function in functions}:
        walk.imports(imports_of_code(code), package)
    walk.to_read |= {source for name in modules for source in _whole(name)}
    return walk.whole()


def reached_from_file(file: Path) -> Reached:
    """Return what a program in ``file`` reaches, which may be any Python file."""
    walk = _Walk(str(file.parent))
    walk.imports(imports_of(file), ())
    return walk.whole()


def others_loaded(reached: Reached) -> re.Pattern[bytes] | None:
    """Return what finds the name of a loaded local module that does not travel in a pickle; None if there is none."""
    loaded = list(sys.modules.items())
    return in_pickles([name for name, module in loaded if name not in reached.modules and _sources_of(module)])


def in_pickles(names: Iterable[str]) -> re.Pattern[bytes] | None:
    """Return what finds names in pickles; None if there are none."""
    short = [name for each in sorted(names) if len(name := each.encode()) < 256]
    return re.compile(b"|".join([re.escape(b"\x8c" + bytes([len(name)]) + name) for name in short])) if short else None


class _Walk:
    """Follows imports from file to file. ``place``: a folder that modules are looked for in first."""

    def __init__(self, place: str = "") -> None:
        self.to_read: set[ModuleSource] = set()
        self._known: set[ModuleSource] = set()
        self._libraries: set[str] = set()
        self._missing: set[str] = set()
        self._place = place

    def module(self, name: str) -> None:
        """Reach a loaded module."""
        module = sys.modules[name]
        sources = _sources_of(module)
        self.to_read.update(sources)
        if not sources:
            self._library(name.split("."))

    def imports(self, imports: Iterable[Import], package: Sequence[str]) -> None:
        """Reach what is imported in a module of ``package``."""
        for found in imports:
            if names := found.names(package):
                along = self._specs(names)
                if not along and not found.level and names[0] not in PYTHONS_OWN:
                    self._missing.add(names[0])
                self._along(names, along)

    def whole(self) -> Reached:
        """Read all that was reached, and all that this reaches."""
        while self.to_read:
            source = self.to_read.pop()
            if source not in self._known:
                self._known.add(source)
                self.imports(imports_of(source.path), source.package)
        files = {}
        packages = [source for source in self._known if source.place.name == "__init__.py"]
        data = [found for each in packages for found in _data_of(each.place.parent, each.path.parent)]
        for source in [*self._known, *data]:
            with suppress(OSError):  # deleted since it was loaded: if a worker needs it, its error will name the module
                files[str(source.place)] = source_in(source.path)
        modules = frozenset([source.module for source in self._known])
        return Reached(dict(sorted(files.items())), modules, frozenset(self._libraries), frozenset(self._missing))

    def _specs(self, names: Sequence[str]) -> list[tuple[str, ModuleSpec]]:
        with _first_on_path(self._place):
            return list(specs(names))

    def _along(self, names: Sequence[str], along: Iterable[tuple[str, ModuleSpec]]) -> None:
        """Reach the local modules along ``names``; the last name may be another thing in a module."""
        for name, spec in along:
            if spec.has_location and spec.origin:
                sources = _files_of(name, spec.origin)
                if not sources:
                    self._library(names)  # installed, and so is all below it
                    return
                self.to_read.update(sources)
            elif spec.submodule_search_locations is None:
                return  # built into Python

    def _library(self, names: Sequence[str]) -> None:
        if names[0] not in PYTHONS_OWN and names[0] != "deskgrid":
            self._libraries.add(".".join(names))


@contextmanager
def _first_on_path(place: str) -> Iterator[None]:
    if not place:
        yield
        return
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


def _package_of(function: FunctionType) -> tuple[str, ...]:
    """Return the name, in parts, of the package of a function's module."""
    package = function.__globals__.get("__package__")
    return tuple(package.split(".")) if package else ()


# --- which file is whose ---------------------------------------------------------------------------------------------


def is_local(file: Path) -> bool:
    """Whether ``file`` is the user's own module: neither part of Python nor installed."""
    # The target of a symbolic link counts, too: virtual environments and editable installs use links.
    return is_module(file.name) and not is_foreign(file) and not is_foreign(file.resolve())


def is_module(name: str) -> bool:
    """Whether a file has source, or a module compiled for this Python."""
    return name.endswith((".py", *EXTENSION_SUFFIXES))


def is_foreign(file: Path) -> bool:
    if not _INSTALLED.isdisjoint(file.parts):
        return True
    return any(file.is_relative_to(folder) for folder in _library_folders())


@cache
def _library_folders() -> frozenset[Path]:
    paths = sysconfig.get_paths()
    folders = [Path(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    # By both names: a file in a library may be a link to one elsewhere, as sitecustomize.py is on Debian.
    return frozenset([*folders, *(folder.resolve() for folder in folders)])


def _sources_of(module: ModuleType | None) -> Sequence[ModuleSource]:
    """Return the files of a loaded module; none for a program, which runs under any name, and for what is not local."""
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    is_imported = getattr(getattr(module, "__spec__", None), "name", None) == name
    return _files_of(name, file) if is_imported and isinstance(file, str) else ()


@lru_cache(maxsize=4096)
def _files_of(name: str, file: str) -> Sequence[ModuleSource]:
    """Return the file of a local module and those of the packages around it, which are imported with it."""
    path = Path(os.path.abspath(file))
    parts = name.split(".")
    if parts[0] == "deskgrid" or not is_local(path):
        return ()
    compiled = path.name.partition(".")[0] == parts[-1] and path.suffix != ".py"
    tail = [*parts[:-1], path.name if compiled else f"{parts[-1]}.py"]
    if path.name == "__init__.py":
        tail = [*parts, "__init__.py"]
    place = PurePosixPath(*tail)
    if path.parts[-len(tail) :] != tuple(tail):  # a program may load a file under any name
        return [ModuleSource(place, path), *_sources_of(sys.modules.get(name.rpartition(".")[0]))]
    # The packages that it is in.
    around = [(up / "__init__.py", path.parents[nr] / "__init__.py") for nr, up in enumerate(place.parents[:-1])]
    packages = [ModuleSource(place, file) for place, file in around if is_source(file)]
    return [*{*packages, ModuleSource(place, path)}]


def _whole(name: str) -> list[ModuleSource]:
    """Return the files of the local module ``name`` and, if it is a package, all source in it."""
    parts = name.split(".")
    spec = dict(specs(parts)).get(name)
    if spec is None:
        raise BagRejected(f"modules: there is no module {name!r}")
    found = [
        source
        for each, spec in specs(parts)
        if spec.origin and spec.has_location
        for source in _files_of(each, spec.origin)
    ]
    for folder in [Path(os.path.abspath(place)) for place in spec.submodule_search_locations or ()]:
        if parts[0] != "deskgrid":
            found += [each for each in _below(PurePosixPath(*parts), folder) if is_local(each.path)]
    if not found:
        raise BagRejected(f"modules: {name!r} is not a module of your own: libraries belong into env=[...]")
    return found


def _below(place: PurePosixPath, package: Path) -> Iterator[ModuleSource]:
    """Yield the source files in a package's folder."""
    for each in entries(package):
        name = each.path.name
        if not each.is_folder and is_module(name):
            yield ModuleSource(place / name, each.path)
        elif each.is_folder and name not in _NOT_SOURCE and not name.startswith("."):
            yield from _below(place / name, each.path)


def _data_of(place: PurePosixPath, package: Path) -> list[ModuleSource]:
    """Return the files of data in a package's folder, and in folders below that are no packages; none if too much."""
    found, size, folders = list[ModuleSource](), 0, [(place, package)]
    while folders:
        place, folder = folders.pop()
        for path, is_folder, length in entries(folder):
            if path.name.startswith(".") or path.name in _NOT_SOURCE:
                continue
            if is_folder:
                if not path.is_symlink() and not is_source(path / "__init__.py"):
                    folders.append((place / path.name, path))
            elif path.suffix not in _CODE and not wrong_with_place(path.name):
                found.append(ModuleSource(place / path.name, path))
                size += length
            if size > _DATA_BYTES or len(found) > _DATA_FILES:
                _tell_of_data(package)
                return []
    return found


def _tell_of_data(package: Path) -> None:
    if package not in _told_of_data:
        _told_of_data.add(package)
        log.warning(
            "the files of data in %s do not travel, because they are more than %d MiB or %s files: give tasks those "
            "that they need as File(path)",
            package,
            _DATA_BYTES // 2**20,
            f"{_DATA_FILES:,}",
        )
