"""What source files and compiled functions import, read without running anything."""

import ast
import dis
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile
from zipimport import zipimporter


class Import(NamedTuple):
    """One import: ``from ..a import b`` is (2, "a", "b"), ``import a.b`` is (0, "a.b", "")."""

    level: int
    module: str
    name: str

    def names(self, package: Sequence[str]) -> list[str]:
        """Return the name, in parts, of what it loads in a module of ``package``; the last part may be no module."""
        base = [*package[: len(package) - self.level + 1]] if self.level else []
        return [*base, *(part for part in (*self.module.split("."), self.name) if part)]


def imports_of(file: Path) -> tuple[Import, ...]:
    """Return the imports in ``file``; none if it cannot be read or is not valid for this version of Python."""
    try:
        stat = (file if file.exists() else _archive_of(file)).stat()
        return _parsed(file, stat.st_mtime_ns, stat.st_size)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()


def source_in(file: Path) -> bytes:
    """Return what is in a file, which may be inside a zip archive that Python imports from. Raises OSError."""
    try:
        return file.read_bytes()
    except OSError:
        archive = _archive_of(file)
        if archive == file:
            raise
    try:
        data: bytes = zipimporter(str(archive)).get_data(str(file))
    except (ImportError, EOFError) as error:  # the archive has changed since
        raise FileNotFoundError(f"{file}: {error}") from error
    return data


def _archive_of(file: Path) -> Path:
    """Return the file that a path leads through; the path itself if it leads through none."""
    return next((each for each in file.parents if each.is_file()), file)


class FolderEntry(NamedTuple):
    """A file or a folder in a folder. ``size``: bytes of the file."""

    path: Path
    is_folder: bool
    size: int


def entries(folder: Path) -> list[FolderEntry]:
    """Return what is in a folder, on the disk or inside a zip archive; nothing if it cannot be read."""
    archive = _archive_of(folder)
    with suppress(OSError, BadZipFile):
        if archive != folder:
            stat = archive.stat()
            return [each for each in _archived(archive, stat.st_mtime_ns, stat.st_size) if each.path.parent == folder]
        with os.scandir(folder) as found:
            known = [each for each in found if each.is_dir() or each.is_file()]
            return sorted([FolderEntry(Path(each.path), each.is_dir(), each.stat().st_size) for each in known])
    return []


@lru_cache(maxsize=8)
def _archived(archive: Path, _changed_ns: int, _size: int) -> list[FolderEntry]:
    with ZipFile(archive) as opened:
        files = [(archive / info.filename, info.file_size) for info in opened.infolist() if not info.is_dir()]
    folders = {folder for path, _ in files for folder in path.parents if archive in folder.parents}
    return sorted(
        [FolderEntry(path, False, size) for path, size in files] + [FolderEntry(each, True, 0) for each in folders]
    )


def is_source(file: Path) -> bool:
    """Whether there is such a file, on the disk or inside a zip archive."""
    with suppress(OSError):
        return file.is_file() or source_in(file) is not None
    return False


@lru_cache(maxsize=4096)
def _parsed(file: Path, _changed_ns: int, _size: int) -> tuple[Import, ...]:
    return tuple(_statements(ast.parse(source_in(file))))


def _statements(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (Import(node.level, node.module or "", alias.name) for alias in node.names)


def imports_of_code(code: CodeType) -> Iterator[Import]:
    """Yield the imports in compiled code and in the functions that it defines."""
    level, module = 0, ""
    constants: list[object] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level, module = next((value for value in constants[-2:] if type(value) is int), 0), step.argval
            yield Import(level, module, "")
        elif step.opname == "IMPORT_FROM":
            yield Import(level, module, step.argval)
        elif step.opname.startswith("LOAD_"):
            constants.append(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from imports_of_code(constant)


def specs(names: Sequence[str]) -> Iterator[tuple[str, ModuleSpec]]:
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
