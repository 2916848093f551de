"""What tasks took, one after another, from a CSV file or a log in the Standard Workload Format: for `predictors`.

Rule 1: a CSV file has a header, and the columns ``bag``, ``function`` and ``seconds``. ``program`` and ``requested``
(seconds) are read if they are there; all other columns are ignored. Rows are in the order of submission. A table of
tasks that was flattened from WfInstances is read as it is: its bags are the tasks of a program in an instance.
Rule 2: in a job log, the jobs of one user with the same processors and the same requested time are a bag. Jobs that
never ran are left out and counted.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from deskgrid.sleepbench.workloads.source import MalformedLine, Tally, TextFile, WorkloadError, number
from deskgrid.sleepbench.workloads.swf import FIELDS

# The user's field of a line of a job log, counted from 0.
_USER = 11


class LoggedTask(NamedTuple):
    """A task that has ended. ``seconds``: how long it took. ``requested``: seconds; None if that is unknown."""

    bag: str
    function: str
    program: str
    seconds: float
    requested: float | None = None


@dataclass(frozen=True, slots=True)
class LoggedTasks:
    """``streams``: each is played on its own, after the one before it. ``notes``: omissions, a sentence each."""

    title: str
    streams: tuple[tuple[LoggedTask, ...], ...]
    notes: tuple[str, ...] = ()


def read_csv(path: Path) -> LoggedTasks:
    """The tasks of a CSV file, gzipped if named ``.gz``, bag after bag; raises `WorkloadError`."""
    bags: dict[str, list[LoggedTask]] = {}
    for task in _rows(path):
        bags.setdefault(task.bag, []).append(task)
    if not bags:
        raise WorkloadError(f"{path} has no tasks")
    tasks = sum(map(len, bags.values()))
    return LoggedTasks(f"{tasks:,} tasks of {path.name}, bag after bag", tuple(map(tuple, bags.values())))


def _rows(path: Path) -> Iterator[LoggedTask]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file)
            columns = _columns(path, rows.fieldnames or ())
            for row in rows:
                try:
                    yield _task(row, columns)
                except MalformedLine as fault:
                    raise WorkloadError(f"{path}, line {rows.line_num}: {fault}") from fault
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise WorkloadError(f"{path} cannot be read: {error}") from error


class _Columns(NamedTuple):
    """The names of columns; the value of a bag is made of several."""

    bag: tuple[str, ...]
    function: str
    seconds: str
    program: str
    requested: str


_OURS = _Columns(("bag",), "function", "seconds", "program", "requested")
_WFINSTANCES = _Columns(("instance", "program"), "program", "runtime_s", "app", "")


def _columns(path: Path, header: object) -> _Columns:
    there = set(header) if isinstance(header, list | tuple) else set()
    for columns in (_OURS, _WFINSTANCES):
        if {*columns.bag, columns.function, columns.seconds} <= there:
            return columns
    raise WorkloadError(f"{path} has no columns bag, function and seconds in its first line")


def _task(row: Mapping[str, str | None], columns: _Columns) -> LoggedTask:
    seconds = number((row[columns.seconds] or "").strip(), "number of seconds")
    if seconds < 0:
        raise MalformedLine(f"no task takes {seconds:g} seconds")
    asked = (row.get(columns.requested) or "").strip()
    requested = number(asked, "requested time") if asked else 0.0
    bag = " ".join(row[name] or "" for name in columns.bag)
    names = (bag, row[columns.function] or "", row.get(columns.program) or "")
    return LoggedTask(*names, seconds, requested if requested > 0 else None)


def read_job_log(path: Path) -> LoggedTasks:
    """The jobs of a log in the Standard Workload Format, as one stream; raises `WorkloadError`."""
    tally = Tally()
    with closing(TextFile(path, ";", False, tally).records(_job)) as records:
        found = list(records)
    jobs = tuple(job for job in found if job.seconds > 0)
    if not jobs:
        raise WorkloadError(f"{path} has no job that ran")
    if silent := len(found) - len(jobs):
        tally.counts["jobs left out, run time unknown or 0"] = silent
    return LoggedTasks(f"{len(jobs):,} jobs of {path.name}", (jobs,), tally.notes())


def _job(line: str) -> LoggedTask:
    fields = line.split()
    if len(fields) != FIELDS:
        raise MalformedLine(f"a job has {FIELDS} fields, but this one has {len(fields)}")
    user, requested = fields[_USER], number(fields[8], "requested time")
    kind = f"user {user}, {fields[4]} processors, {fields[8]} s"
    seconds = number(fields[3], "run time")
    return LoggedTask(kind, kind, f"user {user}", seconds, requested if requested > 0 else None)
