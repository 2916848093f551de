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
from collections.abc import Mapping, Sequence
from pathlib import Path

from deskgrid.scheduler.need import Need, Speedup
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.sleepbench.gangs.scenario import GangScenario, RunningGang, SiteOfPCs, WaitingGang
from deskgrid.sleepbench.scenario_file import TomlTable, above_0, from_0, number, uptime_list
from deskgrid.sleepbench.scenarios import ScenarioError

KEYS: Mapping[str, tuple[str, ...]] = {
    "site": ("name", "slots", "speed", "load", "uptimes", "restart"),
    "running": ("site", "slots", "ends", "really"),
    "gang": ("name", "at", "slots", "runtime", "really", "speedup"),
}
# Nobody would wait for a simulation with more.
SLOTS_MOST = 100_000
ALWAYS: tuple[float, ...] = (math.inf,)


def read_gangs(path: Path) -> GangScenario:
    """The scenario in the file, named after the file; raises `ScenarioError`."""
    table = TomlTable.read(path)
    table.check_keys(list(KEYS))
    parts = {kind: table.parts(kind, keys) for kind, keys in KEYS.items()}
    sites = _sites(parts["site"])
    running = _running(parts["running"], {site.name: site.slots for site in sites})
    gangs = _gangs(parts["gang"], max([site.slots for site in sites], default=0))
    for kind, found in (("site", sites), ("gang", gangs)):
        if not found:
            raise ScenarioError(f"{path}: there is no [[{kind}]]")
    return GangScenario(path.stem, tuple(sites), tuple(running), tuple(gangs))


def _sites(parts: Sequence[TomlTable]) -> list[SiteOfPCs]:
    found: dict[str, SiteOfPCs] = {}
    for part in parts:
        name = part.value("name", _name)
        if name in found:
            raise part.error("name", f"name: there is another site {name!r}")
        slots = part.value("slots", _slots)
        speed, load = part.value("speed", above_0, 1.0), part.value("load", _load, 0.0)
        uptimes, restart = part.value("uptimes", uptime_list, ALWAYS), part.value("restart", from_0, 0.0)
        if len(uptimes) > slots:
            raise part.error("uptimes", f"uptimes: {len(uptimes)} of them, for {slots} PCs of one slot each")
        found[name] = SiteOfPCs(name, slots, speed, load, uptimes, restart)
    return list(found.values())


def _running(parts: Sequence[TomlTable], sites: Mapping[str, int]) -> list[RunningGang]:
    found: list[RunningGang] = []
    for part in parts:
        site, slots = part.value("site", _name), part.value("slots", _slots)
        if site not in sites:
            raise part.error("site", f"site: there is no site {site!r}; there are: {', '.join(sites) or 'none'}")
        before = sum([gang.slots for gang in found if gang.site == site])
        if before + slots > sites[site]:
            others = f", and {before} of them are taken" if before else ""
            raise part.error("slots", f"slots: site {site} has {sites[site]}{others}: {slots} do not fit")
        ends = part.value("ends", above_0)
        found.append(RunningGang(site, slots, ends, part.value("really", above_0, ends)))
    return found


def _gangs(parts: Sequence[TomlTable], most: int) -> list[WaitingGang]:
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
        runtime = part.value("runtime", above_0)
        need = Need(fewest, many, speedup=speedup, gang=True)
        really = part.value("really", above_0, runtime)
        found[name] = WaitingGang(name, part.value("at", _time, 0.0), need, runtime, really)
    return list(found.values())


def _time(value: object) -> float:
    return number(value, "a number of seconds")


def _load(value: object) -> float:
    return number(value, "a number from 0 up, and below 1", lambda load: 0.0 <= load < 1.0)


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


def _speedup(value: object) -> Speedup:
    if isinstance(value, dict) and set(value) == {"amdahl"}:
        return Amdahl(number(value["amdahl"], "a number"))
    if isinstance(value, dict) and set(value) == {"downey"}:
        numbers = value["downey"]
        if not isinstance(numbers, list) or len(numbers) != 2:
            raise ScenarioError(f"the average parallelism and sigma, as downey = [12, 0.5], not {numbers!r}")
        return Downey(*[number(each, "a number") for each in numbers])
    if isinstance(value, dict) and value and all(key.isdecimal() and len(key) < 8 for key in value):
        points = {int(ranks): number(speedup, "a number") for ranks, speedup in value.items()}
        return Measured(tuple(sorted(points.items())))
    raise ScenarioError(f"one of amdahl, downey, or a table as {{1 = 1, 2 = 1.9}}, not {value!r}")
