"""PCs from a data set of the Failure Trace Archive, in its tab layout.

The layout (http://fta.scem.westernsydney.edu.au, FTAFormat): a folder of tables, one record per line, fields separated
by tabs, comments from "#" on; NULL stands for unknown values.

- event_trace.tab: event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time
  event_end_reason. Type 1 is availability, 0 unavailability; other types are specific to a data set, and are ignored.
  Times are seconds, since 1970 or another origin.
- node.tab, optional: node_id platform_id node_name ... cores_per_proc num_procs (fields 9 and 10) ..., for the slots.
- platform.tab, optional: platform_id platform_name ..., for the title.

Rule 1: a node is a PC. It is available while at least one of its events says so and none says the opposite. Events that
touch or overlap are one window. If two components of a node, or two events, contradict each other, "unavailable" wins.
Rule 2: time begins with the first event of the whole data set. After its last event a node is gone for good.
Rule 3: the closing of each window is announced exactly, as if the planned uptime were always right.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from deskgrid.scheduler.simulation.simulator import RealWindow, SimulatedPC, Timetable
from deskgrid.sleepbench.workloads.source import Lab, MalformedLine, Tally, TextFile, WorkloadError, number, whole

UNAVAILABLE, AVAILABLE = 0, 1
# How many fields a record of each table has at least: enough for the last field that is read.
EVENT_FIELDS, NODE_FIELDS, PLATFORM_FIELDS = 8, 10, 2
UNKNOWN = "NULL"
# No PC has more cores than this.
SLOTS_MOST = 1024

T = TypeVar("T")
Key = tuple[int, int]  # platform and node
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One line of event_trace.tab."""

    node: Key
    name: str
    kind: int
    start: float
    stop: float


@dataclass(slots=True)
class _Node:
    """The events of one node."""

    name: str
    available: list[Interval] = field(default_factory=list)
    unavailable: list[Interval] = field(default_factory=list)


def read_fta(folder: Path, pcs: int | None = None, slots: int | None = None, lenient: bool = False) -> Lab:
    """The first ``pcs`` nodes (or all) of the data set in ``folder``; raises `WorkloadError`.

    ``slots``: of each PC, whatever the data set says; None: the number of its cores, or one if that is not known.
    """
    tally = Tally()
    nodes, begins = _read_events(TextFile(folder / "event_trace.tab", "#", lenient, tally))
    cores = _read_cores(TextFile(folder / "node.tab", "#", lenient, tally)) if slots is None else {}
    windows = {key: _since(begins, open_windows(node.available, node.unavailable)) for key, node in nodes.items()}
    if never := sum(not intervals for intervals in windows.values()):
        tally.counts["nodes left out, never available"] = never
    there = [key for key, intervals in windows.items() if intervals][:pcs]
    if not there:
        raise WorkloadError("; ".join((f"{folder} has no node that is ever available", *tally.notes())))
    names = _names({key: nodes[key].name for key in there})
    found = tuple(SimulatedPC(names[key], timetable(windows[key]), slots or cores.get(key, 1)) for key in there)
    platforms = _read_platforms(TextFile(folder / "platform.tab", "#", lenient, tally))
    of = sorted({platforms.get(platform, "") for platform, _ in there} - {""}) or [folder.resolve().name]
    return Lab(f"{len(found):,} PCs of {', '.join(of)}", found, tally.notes())


def parse_event(line: str) -> TraceEvent:
    """One line of event_trace.tab; raises `MalformedLine`."""
    fields = _fields(line, EVENT_FIELDS, "an event")
    start, stop = number(fields[6], "start"), number(fields[7], "stop")
    if stop < start:
        raise MalformedLine(f"the event stops at {fields[7]}, before it starts at {fields[6]}")
    node = whole(fields[3], "platform_id"), whole(fields[2], "node_id")
    return TraceEvent(node, fields[4], whole(fields[5], "event_type"), start, stop)


def open_windows(available: Iterable[Interval], unavailable: Iterable[Interval]) -> list[Interval]:
    """The times covered by at least one of ``available`` and none of ``unavailable``: disjoint, in order."""
    edges = [edge for start, stop in available for edge in ((start, 1, 0), (stop, -1, 0))]
    edges += [edge for start, stop in unavailable for edge in ((start, 0, 1), (stop, 0, -1))]
    windows, says, denies, opened = list[Interval](), 0, 0, None
    for time, changes in groupby(sorted(edges), key=itemgetter(0)):
        for _, more, against in changes:
            says, denies = says + more, denies + against
        if opened is None and says and not denies:
            opened = time
        elif opened is not None and not (says and not denies):
            windows.append((opened, time))
            opened = None
    return windows


def timetable(windows: Iterable[Interval]) -> Timetable:
    """A timetable of just these windows. (A lambda could not be handed to another process.)"""
    return partial(iter, [RealWindow(opens, closes, closes) for opens, closes in windows])


def _since(begins: float, windows: Iterable[Interval]) -> list[Interval]:
    """The windows with time counted from ``begins``. Windows that rounding makes empty are dropped."""
    shifted = ((start - begins, stop - begins) for start, stop in windows)
    return [(opens, closes) for opens, closes in shifted if opens < closes]


def _read_events(file: TextFile) -> tuple[dict[Key, _Node], float]:
    """Every node, in order of appearance, and when the first event starts."""
    nodes, begins, others = dict[Key, _Node](), float("inf"), 0
    with closing(file.records(parse_event)) as events:
        for event in events:
            begins = min(begins, event.start)
            node = nodes.setdefault(event.node, _Node(event.name))
            if event.kind == AVAILABLE:
                node.available.append((event.start, event.stop))
            elif event.kind == UNAVAILABLE:
                node.unavailable.append((event.start, event.stop))
            else:
                others += 1
    if others:
        file.tally.counts["events ignored, neither availability nor unavailability"] = others
    return nodes, begins


def _read_cores(file: TextFile) -> dict[Key, int]:
    return dict(_records_if_there(file, _parse_node))


def _parse_node(line: str) -> tuple[Key, int]:
    """The node and its number of cores; one if that is not known."""
    fields = _fields(line, NODE_FIELDS, "a node")
    key = whole(fields[1], "platform_id"), whole(fields[0], "node_id")
    per_processor, processors = _count(fields[8], "cores_per_proc"), _count(fields[9], "num_procs")
    cores = per_processor * processors
    if cores > SLOTS_MOST:
        raise MalformedLine(f"no PC has {cores:,} cores")
    return key, cores


def _read_platforms(file: TextFile) -> dict[int, str]:
    return dict(_records_if_there(file, _parse_platform))


def _parse_platform(line: str) -> tuple[int, str]:
    fields = _fields(line, PLATFORM_FIELDS, "a platform")
    return whole(fields[0], "platform_id"), fields[1]


def _records_if_there(file: TextFile, parse: Callable[[str], T]) -> Iterator[T]:
    return file.records(parse) if file.path.exists() else iter(())


def _fields(line: str, least: int, what: str) -> list[str]:
    """Split at tabs, because names may contain blanks. A line without tabs is split at blanks instead."""
    fields = [field.strip() for field in line.strip().split("\t" if "\t" in line else None)]
    if len(fields) < least:
        raise MalformedLine(f"{what} has at least {least} fields, but this one has {len(fields)}")
    return fields


def _count(text: str, what: str) -> int:
    return 1 if text == UNKNOWN else max(1, whole(text, what))


def _names(names: dict[Key, str]) -> dict[Key, str]:
    """The nodes' own names if all are known and distinct, else their numbers."""
    if len(set(names.values()) - {UNKNOWN, ""}) == len(names):
        return names
    return {(platform, node): f"{platform}.{node}" for platform, node in names}
