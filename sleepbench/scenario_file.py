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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deskgrid.sleepbench.scenarios import Scenario, ScenarioError

ORDERS = ("ascending", "descending", "shuffled")
KEYS = ("uptimes", "restart", "jobs", "order")
JOBS_KEYS = ("from", "to", "step", "copies")
# Nobody would wait for a simulation with more tasks. A mistyped step could otherwise fill the memory.
TASKS_MOST = 1_000_000
# Steps add up with rounding errors: a last one that exceeds ``to`` by less than this fraction of a step still counts.
HAIR = 1e-9


def read_scenario(path: Path) -> Scenario:
    """The scenario in the file, named after the file; raises `ScenarioError`."""
    return _ScenarioReader(path, *read_toml(path)).scenario()


def read_toml(path: Path) -> tuple[str, Mapping[str, Any]]:
    """What the file contains, as text and as a table; raises `ScenarioError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}") from error
    try:
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ScenarioError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class _ScenarioReader:
    path: Path
    text: str
    table: Mapping[str, Any]

    def scenario(self) -> Scenario:
        for key in self.table:
            if key not in KEYS:
                raise self._error(key, f"there is no {key!r}; there are: {', '.join(KEYS)}")
        uptimes = self._value("uptimes", _seconds_list)
        restart = self._value("restart", _restart, 0.0)
        tasks = self._value("jobs", _jobs)
        order = self._value("order", _order, "")
        if order in ("ascending", "descending"):
            tasks = tuple(sorted(tasks, reverse=order == "descending"))
        return Scenario(self.path.stem, tasks, uptimes, restart, shuffled=order == "shuffled")

    def _value(self, key: str, read: Callable[[Any], Any], default: Any = None) -> Any:
        if key not in self.table:
            if default is None:
                raise ScenarioError(f"{self.path}: {key} is missing")
            return default
        try:
            return read(self.table[key])
        except ScenarioError as error:
            raise self._error(key, f"{key}: {error}") from error

    def _error(self, key: str, message: str) -> ScenarioError:
        """An error with the line number of the key, as far as that can be found in the text."""
        found = re.search(rf"""^\s*\[?\s*["']?{re.escape(key)}["']?\s*[]=.]""", self.text, re.MULTILINE)
        line = f" (at line {self.text.count(chr(10), 0, found.end()) + 1})" if found else ""
        return ScenarioError(f"{self.path}: {message}{line}")


def _number(value: object, what: str, *, endless: bool = False) -> float:
    """A number of seconds above 0; with ``endless`` it may be infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScenarioError(f"{what} is a number, not {value!r}")
    if not 0 < value <= (math.inf if endless else 1e12):
        raise ScenarioError(f"{what} is more than 0{'' if endless else ', and not endless'}, not {value!r}")
    return float(value)


def _seconds_list(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ScenarioError("a list of seconds, with one at least")
    return tuple(_number(seconds, "each", endless=True) for seconds in value)


def _restart(value: object) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else _number(value, "it")


def _order(value: object) -> str:
    if value not in ORDERS:
        raise ScenarioError(f"one of {', '.join(ORDERS)}, not {value!r}")
    return str(value)


def _jobs(value: object) -> tuple[float, ...]:
    if isinstance(value, dict):
        return _series(value)
    if not isinstance(value, list) or not value:
        raise ScenarioError("a list of seconds with one at least, or a table of from, to, step and copies")
    return tuple(_number(seconds, "each") for seconds in value)


def _series(table: Mapping[str, object]) -> tuple[float, ...]:
    """``from`` to ``to``, both included, ``step`` apart, ``copies`` of each."""
    if unknown := set(table).difference(JOBS_KEYS):
        raise ScenarioError(f"there is no {min(unknown)!r}; there are: {', '.join(JOBS_KEYS)}")
    if "from" not in table or "to" not in table:
        raise ScenarioError("from and to are both needed")
    first, last, step = (_number(table.get(key, 1), key) for key in ("from", "to", "step"))
    copies = table.get("copies", 1)
    if isinstance(copies, bool) or not isinstance(copies, int) or not copies >= 1:
        raise ScenarioError(f"copies is a whole number from 1 up, not {copies!r}")
    if last < first:
        raise ScenarioError(f"from {first:g} to {last:g} there is nothing")
    count = math.floor((last - first) / step + HAIR) + 1
    if count * copies > TASKS_MOST:
        raise ScenarioError(f"{count * copies:,} tasks; at most {TASKS_MOST:,}")
    return tuple(first + place * step for place in range(count) for _ in range(copies))
