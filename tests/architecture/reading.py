"""Read our source as syntax trees: what a file imports, and which parts of it are not pure. Nothing is executed.

Rule 1: every import counts, even inside a function, or for type checkers only.
Rule 2: naming a clock counts, not only calling it: code with ``clock=time.monotonic`` reads the clock later.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# Folders at the top of the repository that are imported as "deskgrid.broker" and so on.
ROOMS = ("broker", "papers", "scheduler", "sleepbench", "worker")

# Not pure as a whole: clocks, sockets, processes, threads, randomness of the system. SQLite is not here: what
# the broker acknowledges has to be in its journal first, and one in memory serves as well.
IMPURE_MODULES = frozenset(
    "_thread asyncio concurrent multiprocessing sched secrets select selectors signal socket socketserver "
    "ssl subprocess threading time uuid zmq".split()
)
IMPURE_NAMES = frozenset(
    "datetime.date.today datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow "
    "os.getrandom os.times os.urandom".split()
)
# A text that may name a module of ours, or what is in it: "broker.keys.KeyRing", "broker.keys:KeyRing.enrol".
_MODULE_NAME = re.compile(rf"({'|'.join(ROOMS)})\.(\w+)[\w.]*(:[\w.]+)?")


class Found(NamedTuple):
    """Something in a file, and where."""

    line: int
    name: str


@cache
def files(*places: str) -> tuple[str, ...]:
    """Our Python files at or below ``places`` (relative to the root: "folder/" or "folder/file.py")."""
    found = (path for place in places for path in _python_files(ROOT / place))
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found))


def _python_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for path in place.rglob("*.py") if place.is_dir() else ():
        # Environments of others lie in hidden folders.
        if not any(part.startswith(".") for part in path.relative_to(place).parts):
            yield path


@cache
def tree(file: str) -> ast.Module:
    """The syntax tree of ``file``."""
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=file)


def imports(module: ast.Module, file: str) -> Iterator[Found]:
    """What ``module``, the tree of ``file``, imports, by full name: "deskgrid.wire.Hello", "json"."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (Found(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, file)
            yield from (Found(node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _base(node: ast.ImportFrom, file: str) -> str:
    """What stands before ``import``, with the dots of a relative import spelled out."""
    if not node.level:
        return node.module or ""
    parts = PurePosixPath(file).parts
    folder = (["deskgrid", *parts] if parts[0] in ROOMS else [*parts])[: -node.level]
    return ".".join([*folder, *([node.module] if node.module else [])])


@cache
def our_file(name: str) -> str | None:
    """The file of ours that an imported name comes from: that of "deskgrid.worker.agent.X" is "worker/agent.py"."""
    parts = name.split(".")
    if parts[0] in ROOMS:
        return None
    if parts[0] == "deskgrid" and len(parts) > 1 and parts[1] in ROOMS:
        parts = parts[1:]
    for end in range(len(parts), 0, -1):
        stem = "/".join(parts[:end])
        for file in (f"{stem}.py", f"{stem}/__init__.py"):
            if (ROOT / file).is_file():
                return file
    return None


def old_names(module: ast.Module, file: str) -> Iterator[Found]:
    """Each import, and each text that names a module, by a name that is not below "deskgrid": "broker.keys"."""
    yield from (found for found in imports(module, file) if found.name.split(".")[0] in ROOMS)
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            match = _MODULE_NAME.fullmatch(node.value)
            if match and any((ROOT / match[1] / f"{match[2]}{end}").is_file() for end in (".py", "/__init__.py")):
                yield Found(node.lineno, node.value)


def impurities(module: ast.Module) -> Iterator[Found]:
    """Each place that reads a clock, draws an unseeded number, or opens a socket, process or thread."""
    for line, name in imports(module, ""):
        if name.split(".")[0] in IMPURE_MODULES:
            yield Found(line, name)
    known = _known_names(module)
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name() | ast.Attribute(), args=[], keywords=[]):
                if _full_name(node.func, known) == "random.Random":
                    yield Found(node.lineno, "random.Random() without a seed")
            case ast.Name() | ast.Attribute():
                name = _full_name(node, known) or ""
                if name in IMPURE_NAMES or (name.startswith("random.") and name != "random.Random"):
                    yield Found(node.lineno, name)


def _known_names(module: ast.Module) -> dict[str, str]:
    """What imported names stand for: after ``from datetime import date as d``, d is "datetime.date"."""
    known: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            known |= (_binding(alias) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            known |= ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    return known


def _binding(alias: ast.alias) -> tuple[str, str]:
    """``import a.b`` binds a; ``import a.b as c`` binds c to a.b."""
    top = alias.name.split(".")[0]
    return (alias.asname, alias.name) if alias.asname else (top, top)


def _full_name(node: ast.expr, known: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, known)
        return owner and f"{owner}.{node.attr}"
    return None
