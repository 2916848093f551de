"""A user's own scenario of gangs, in TOML.

    [[site]]
    name = "A"
    slots = 9               # PCs of one slot each, numbered
    speed = 2.0             # optional, as are load = 0.1, uptimes = [84, 117, inf] (of its PCs, in turn), restart = 1.2
    [[running]]             # at time 0
    site = "A"
    slots = 4
    ends = 5.0              # as everybody believes; optional: really = 1.0
    [[gang]]
    name = "1"              # default: its number in the file
    at = 0.0                # default; below 0: it waits since then
    slots = 3               # or [2, 16] with a speedup: {amdahl = 0.05}, {downey = [12, 0.5]}, or {1 = 1, 2 = 1.9}
    runtime = 10.0          # at speed 1, with a speedup that of one rank; optional: really = 8.0

Rule: whatever the file contains, reading it returns a `GangScenario` or raises a `ScenarioError`, whose one-line
message names the file and the line in it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured, Speedup
from deskgrid.sleepbench.gangs.scenario import GangScenario, RunningGang, SiteOfPCs, WaitingGang
from deskgrid.sleepbench.scenario_file import read_toml
from deskgrid.sleepbench.scenarios import ScenarioError

KEYS: Mapping[str, tuple[str, ...]] = {
    "site": ("name", "slots", "speed", "load", "uptimes", "restart"),
    "running": ("site", "slots", "ends", "really"),
    "gang": ("name", "at", "slots", "runtime", "really", "speedup"),
}
# Nobody would wait for a simulation with more.
SLOTS_MOST = 100_000
SECONDS_MOST = 1e12
ALWAYS: tuple[float, ...] = (math.inf,)

T = TypeVar("T")


def read_gangs(path: Path) -> GangScenario:
    """The scenario in the file, named after the file; raises `ScenarioError`."""
    return _GangFileReader(path, *read_toml(path)).scenario()


@dataclass(frozen=True, slots=True)
class _Part:
    """One ``[[site]]``, ``[[running]]`` or ``[[gang]]``, the ``place``-th of these in the file."""

    reader: "_GangFileReader"
    kind: str
    place: int
    table: Mapping[str, Any]

    def check_keys(self) -> None:
        for key in self.table:
            if key not in KEYS[self.kind]:
                raise self.error(key, f"there is no {key!r}; there are: {', '.join(KEYS[self.kind])}")

    def value(self, key: str, read: Callable[[Any], T], default: T | None = None) -> T:
        if key not in self.table:
            if default is None:
                raise self.error("", f"{key} is missing")
            return default
        try:
            return read(self.table[key])
        except ValueError as error:
            raise self.error(key, f"{key}: {error}") from error

    def error(self, key: str, message: str) -> ScenarioError:
        return self.reader.error(self.kind, self.place, key, f"{self.kind} {self.place + 1}: {message}")


@dataclass(frozen=True, slots=True)
class _GangFileReader:
    path: Path
    text: str
    table: Mapping[str, Any]

    def scenario(self) -> GangScenario:
        for key in self.table:
            if key not in KEYS:
                raise ScenarioError(f"{self.path}: there is no {key!r}; there are: {', '.join(KEYS)}{self._line(key)}")
        sites = self._sites(self._parts("site"))
        running = self._running(self._parts("running"), {site.name: site.slots for site in sites})
        gangs = self._gangs(self._parts("gang"), max([site.slots for site in sites], default=0))
        for kind, found in (("site", sites), ("gang", gangs)):
            if not found:
                raise ScenarioError(f"{self.path}: there is no [[{kind}]]")
        return GangScenario(self.path.stem, tuple(sites), tuple(running), tuple(gangs))

    def _parts(self, kind: str) -> list[_Part]:
        tables = self.table.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise ScenarioError(f"{self.path}: each {kind} begins with [[{kind}]]{self._line(kind)}")
        parts = [_Part(self, kind, place, table) for place, table in enumerate(tables)]
        for part in parts:
            part.check_keys()
        return parts

    def _sites(self, parts: Sequence[_Part]) -> list[SiteOfPCs]:
        found: dict[str, SiteOfPCs] = {}
        for part in parts:
            name = part.value("name", _name)
            if name in found:
                raise part.error("name", f"name: there is another site {name!r}")
            slots = part.value("slots", _slots)
            speed, load = part.value("speed", _seconds, 1.0), part.value("load", _load, 0.0)
            uptimes, restart = part.value("uptimes", _uptimes, ALWAYS), part.value("restart", _from_0, 0.0)
            if len(uptimes) > slots:
                raise part.error("uptimes", f"uptimes: {len(uptimes)} of them, for {slots} PCs of one slot each")
            found[name] = SiteOfPCs(name, slots, speed, load, uptimes, restart)
        return list(found.values())

    def _running(self, parts: Sequence[_Part], sites: Mapping[str, int]) -> list[RunningGang]:
        found: list[RunningGang] = []
        for part in parts:
            site, slots = part.value("site", _name), part.value("slots", _slots)
            if site not in sites:
                raise part.error("site", f"site: there is no site {site!r}; there are: {', '.join(sites) or 'none'}")
            before = sum([gang.slots for gang in found if gang.site == site])
            if before + slots > sites[site]:
                others = f", and {before} of them are taken" if before else ""
                raise part.error("slots", f"slots: site {site} has {sites[site]}{others}: {slots} do not fit")
            ends = part.value("ends", _seconds)
            found.append(RunningGang(site, slots, ends, part.value("really", _seconds, ends)))
        return found

    def _gangs(self, parts: Sequence[_Part], most: int) -> list[WaitingGang]:
        found: dict[str, WaitingGang] = {}
        for part in parts:
            name = part.value("name", _name, str(part.place + 1))
            if name in found:
                raise part.error("name", f"name: there is another gang {name!r}")
            fewest, many = part.value("slots", _range)
            if fewest > most:
                raise part.error("slots", f"slots: it needs {fewest}, and no site has more than {most}")
            speedup = part.value("speedup", _speedup) if "speedup" in part.table else None
            if fewest < many and speedup is None:
                raise part.error("slots", "slots: a range needs a speedup, as speedup = {amdahl = 0.05}")
            runtime = part.value("runtime", _seconds)
            need = Need(fewest, many, speedup=speedup, gang=True)
            really = part.value("really", _seconds, runtime)
            found[name] = WaitingGang(name, part.value("at", _time, 0.0), need, runtime, really)
        return list(found.values())

    def error(self, kind: str, place: int, key: str, message: str) -> ScenarioError:
        """An error with the line number of a key in the ``place``-th part of a kind, as far as that can be found."""
        return ScenarioError(f"{self.path}: {message}{self._line(kind, place, key)}")

    def _line(self, kind: str, place: int = 0, key: str = "") -> str:
        headers = list(re.finditer(rf"""^\s*\[?\[?\s*["']?{kind}["']?\s*[]=.]""", self.text, re.MULTILINE))
        if place >= len(headers):
            return ""
        found = start = headers[place].end()
        if key:
            after = re.compile(r"^\s*\[\[", re.MULTILINE).search(self.text, start)
            part = self.text[start : after.start() if after else None]
            if (line := re.search(rf"""^\s*["']?{re.escape(key)}["']?\s*[=.]""", part, re.MULTILINE)) is not None:
                found = start + line.end()
        return f" (at line {self.text.count(chr(10), 0, found) + 1})"


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= SECONDS_MOST:
        raise ScenarioError(f"{what}, not {value!r}")
    return float(value)


def _seconds(value: object) -> float:
    number = _number(value, "a number above 0")
    if not number > 0.0:
        raise ScenarioError(f"a number above 0, not {value!r}")
    return number


def _from_0(value: object) -> float:
    number = _number(value, "a number from 0 up")
    if number < 0.0:
        raise ScenarioError(f"a number from 0 up, not {value!r}")
    return number


def _time(value: object) -> float:
    return _number(value, "a number of seconds")


def _load(value: object) -> float:
    number = _number(value, "a number from 0 up, and below 1")
    if not 0.0 <= number < 1.0:
        raise ScenarioError(f"a number from 0 up, and below 1, not {value!r}")
    return number


def _name(value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ScenarioError(f"some text, not {value!r}")
    return value


def _slots(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= SLOTS_MOST:
        raise ScenarioError(f"a whole number from 1 to {SLOTS_MOST:,}, not {value!r}")
    return value


def _range(value: object) -> tuple[int, int]:
    if not isinstance(value, list):
        slots = _slots(value)
        return slots, slots
    if len(value) != 2:
        raise ScenarioError(f"a whole number, or two of them, the least and the most, not {value!r}")
    least, most = map(_slots, value)
    if least > most:
        raise ScenarioError(f"the least comes first, not {value!r}")
    return least, most


def _uptimes(value: object) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ScenarioError("a list of seconds, with one at least")
    return tuple([math.inf if seconds == math.inf else _seconds(seconds) for seconds in value])


def _speedup(value: object) -> Speedup:
    if isinstance(value, dict) and set(value) == {"amdahl"}:
        return Amdahl(_number(value["amdahl"], "a number"))
    if isinstance(value, dict) and set(value) == {"downey"}:
        numbers = value["downey"]
        if not isinstance(numbers, list) or len(numbers) != 2:
            raise ScenarioError(f"the average parallelism and sigma, as downey = [12, 0.5], not {numbers!r}")
        return Downey(*[_number(number, "a number") for number in numbers])
    if isinstance(value, dict) and value and all(key.isdecimal() and len(key) < 8 for key in value):
        points = {int(ranks): _number(speedup, "a number") for ranks, speedup in value.items()}
        return Measured(tuple(sorted(points.items())))
    raise ScenarioError(f"one of amdahl, downey, or a table as {{1 = 1, 2 = 1.9}}, not {value!r}")
