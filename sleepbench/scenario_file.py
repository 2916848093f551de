"""A user's own scenario, in TOML: other tasks on other PCs than the paper's.

    uptimes = [84, 117, inf]                            # seconds each PC stays; inf: always there
    restart = 1.2                                       # seconds it is away after that; default 0
    jobs = { from = 1, to = 240, step = 1, copies = 1 } # seconds; or a list of them
    order = "shuffled"                                  # ascending, descending, or shuffled anew by each run's seed;
                                                        # default: as they stand

Rule: whatever the file contains, reading it returns a `Scenario` or raises a `ScenarioError`, whose one-line message
names the file and the line in it.
"""

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from deskgrid.sleepbench.scenarios import Scenario, ScenarioError

ORDERS = ("ascending", "descending", "shuffled")
KEYS = ("uptimes", "restart", "jobs", "order")
JOBS_KEYS = ("from", "to", "step", "copies")
# Nobody would wait for a simulation with more tasks. A mistyped step could otherwise fill the memory.
TASKS_MOST = 1_000_000
# Steps add up with rounding errors: a last one that exceeds ``to`` by less than this fraction of a step still counts.
HAIR = 1e-9
SECONDS_MOST = 1e12

T = TypeVar("T")


def read_scenario(path: Path) -> Scenario:
    """The scenario in the file, named after the file; raises `ScenarioError`."""
    table = TomlTable.read(path)
    table.check_keys(KEYS)
    uptimes, restart = table.value("uptimes", uptime_list), table.value("restart", from_0, 0.0)
    tasks, order = table.value("jobs", _jobs), table.value("order", _order, "")
    if order in ("ascending", "descending"):
        tasks = tuple(sorted(tasks, reverse=order == "descending"))
    return Scenario(path.stem, tasks, uptimes, restart, shuffled=order == "shuffled")


@dataclass(frozen=True, slots=True)
class TomlTable:
    """What a file contains, or the ``place``-th ``[[kind]]`` in it. Errors name the file, and the line in it."""

    path: Path
    text: str
    table: Mapping[str, Any]
    kind: str = ""
    place: int = 0

    @classmethod
    def read(cls, path: Path) -> "TomlTable":
        """Raises `ScenarioError`."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{path} cannot be read: {error}") from error
        try:
            return cls(path, text, tomllib.loads(text))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ScenarioError(f"{path}: {error}") from error

    def parts(self, kind: str, keys: Sequence[str]) -> "list[TomlTable]":
        """Each ``[[kind]]``, which may have these keys."""
        tables = self.table.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.error(kind, f"each {kind} begins with [[{kind}]]")
        parts = [TomlTable(self.path, self.text, table, kind, place) for place, table in enumerate(tables)]
        for part in parts:
            part.check_keys(keys)
        return parts

    def check_keys(self, keys: Sequence[str]) -> None:
        """Raise `ScenarioError` if there is another one."""
        for key in self.table:
            if key not in keys:
                raise self.error(key, f"there is no {key!r}; there are: {', '.join(keys)}")

    def value(self, key: str, read: Callable[[Any], T], default: T | None = None) -> T:
        """The value of a key, as ``read`` takes it; `ScenarioError` if it is none, or is missing without a default."""
        if key not in self.table:
            if default is None:
                raise self.error("", f"{key} is missing")
            return default
        try:
            return read(self.table[key])
        except ValueError as error:
            raise self.error(key, f"{key}: {error}") from error

    def error(self, key: str, message: str) -> ScenarioError:
        """An error with the line of a key, as far as that can be found."""
        what = f"{self.kind} {self.place + 1}: " if self.kind else ""
        return ScenarioError(f"{self.path}: {what}{message}{self._line(key)}")

    def _line(self, key: str) -> str:
        start, end = 0, len(self.text)
        if self.kind:
            headers = list(re.finditer(_header(self.kind), self.text, re.MULTILINE))
            if self.place >= len(headers):
                return ""
            start = headers[self.place].end()
            after = re.compile(r"^\s*\[\[", re.MULTILINE).search(self.text, start)
            end = after.start() if after else end
        line = re.search(_header(key), self.text[start:end], re.MULTILINE) if key else None
        if line is None and not self.kind:
            return ""
        return f" (at line {self.text.count(chr(10), 0, start + (line.end() if line else 0)) + 1})"


def _header(name: str) -> str:
    """Begins the value of a key, or a table."""
    return rf"""^\s*\[?\[?\s*["']?{re.escape(name)}["']?\s*[]=.]"""


def number(value: object, what: str, fits: Callable[[float], bool] = lambda _: True) -> float:
    """A number for which ``fits`` is true; ``what`` says which these are."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= SECONDS_MOST and fits(value):
        return float(value)
    raise ScenarioError(f"{what}, not {value!r}")


def above_0(value: object, what: str = "a number above 0") -> float:
    """Such a number."""
    return number(value, what, lambda seconds: seconds > 0.0)


def from_0(value: object) -> float:
    """0, or such a number."""
    return number(value, "a number from 0 up", lambda seconds: seconds >= 0.0)


def uptime_list(value: object) -> tuple[float, ...]:
    """How long PCs stay: seconds, or infinity."""
    if not isinstance(value, list) or not value:
        raise ScenarioError("a list of seconds, with one at least")
    return tuple([math.inf if seconds == math.inf else above_0(seconds) for seconds in value])


def _order(value: object) -> str:
    if value not in ORDERS:
        raise ScenarioError(f"one of {', '.join(ORDERS)}, not {value!r}")
    return str(value)


def _jobs(value: object) -> tuple[float, ...]:
    if isinstance(value, dict):
        return _series(value)
    if not isinstance(value, list) or not value:
        raise ScenarioError("a list of seconds with one at least, or a table of from, to, step and copies")
    return tuple(map(above_0, value))


def _series(table: Mapping[str, object]) -> tuple[float, ...]:
    """``from`` to ``to``, both included, ``step`` apart, ``copies`` of each."""
    if unknown := set(table).difference(JOBS_KEYS):
        raise ScenarioError(f"there is no {min(unknown)!r}; there are: {', '.join(JOBS_KEYS)}")
    if "from" not in table or "to" not in table:
        raise ScenarioError("from and to are both needed")
    first, last, step = (above_0(table.get(key, 1), f"{key} is a number above 0") for key in ("from", "to", "step"))
    copies = table.get("copies", 1)
    if isinstance(copies, bool) or not isinstance(copies, int) or not copies >= 1:
        raise ScenarioError(f"copies is a whole number from 1 up, not {copies!r}")
    if last < first:
        raise ScenarioError(f"from {first:g} to {last:g} there is nothing")
    count = math.floor((last - first) / step + HAIR) + 1
    if count * copies > TASKS_MOST:
        raise ScenarioError(f"{count * copies:,} tasks; at most {TASKS_MOST:,}")
    return tuple(first + place * step for place in range(count) for _ in range(copies))
