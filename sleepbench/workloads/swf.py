"""Jobs from a log in the Standard Workload Format, version 2.2: the logs of the Parallel Workloads Archive.

The format (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html): one job a line, 18 numbers separated by blanks,
-1 for what is not known; comments begin with a semicolon, those at the top describe the system. Read are fields 2
(submit time), 4 (run time), 5 (allocated processors) and 9 (requested time).

Rule 1: a job that is of use has a run time and processors. Others never ran, or ran for no time: left out and counted.
Rule 2: by default only jobs of one processor are taken. A parallel job is no bag of independent tasks: its processes
wait for each other, and what a grid would make of them is an assumption that whoever asks for it should know of
(``each="processor"``: as many tasks as it had processors, each as long as the job; that keeps the log's whole work).
Rule 3: no more of the file is read than the jobs asked for need.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from deskgrid.scheduler.simulation.simulator import Arrival
from deskgrid.sleepbench.workloads.source import Jobs, MalformedLine, Tally, TextFile, WorkloadError, number, whole

FIELDS = 18
# More than any machine has. A line beyond it would be a task list that fills the memory.
PROCESSORS_MOST = 10_000_000

Each = Literal["job", "processor"]


@dataclass(frozen=True, slots=True)
class Job:
    """One line of a log. Seconds; below 0, or for the last three 0, is unknown."""

    submitted: float
    runtime: float
    processors: int
    requested: float


@dataclass(frozen=True, slots=True)
class Taken:
    """What to take of a log.

    ``jobs``: the first so many that are of use, or all. ``requested``: the time that the user asked for is the
    prediction, where there is one; else the run time itself. ``arrivals``: each job comes when it was submitted, the
    first at 0; else all are one bag at the start.
    """

    jobs: int | None = None
    each: Each = "job"
    requested: bool = False
    arrivals: bool = False


def read_swf(path: Path, taken: Taken, lenient: bool = False) -> Jobs:
    """The jobs of the log at ``path``; raises `WorkloadError`."""
    tally, header = Tally(), dict[str, str]()
    file = TextFile(path, ";", lenient, tally)
    with closing(file.records(parse_job, lambda comment: _heading(header, comment))) as records:
        jobs = list(islice(_useful(records, taken, tally), taken.jobs))
    if not jobs:
        raise WorkloadError("; ".join((f"{path} has no job to run", *tally.notes())))
    if taken.requested and (silent := sum(job.requested <= 0 for job in jobs)):
        tally.counts["jobs without a requested time, predicted by their run time"] = silent
    arrivals = tuple(_arrivals(jobs, taken)) if taken.arrivals else (_bag(jobs, taken),)
    return Jobs(_title(path, header, len(jobs)), arrivals, tally.notes())


def parse_job(line: str) -> Job:
    """One line; raises `MalformedLine`."""
    fields = line.split()
    if len(fields) != FIELDS:
        raise MalformedLine(f"a job has {FIELDS} fields, but this one has {len(fields)}")
    processors = whole(fields[4], "number of processors")
    if processors > PROCESSORS_MOST:
        raise MalformedLine(f"no machine has {processors:,} processors")
    return Job(
        number(fields[1], "submit time"), number(fields[3], "run time"), processors, number(fields[8], "requested time")
    )


def _heading(header: dict[str, str], comment: str) -> None:
    """Note "Key: value"; of a key that comes twice the first counts, which is that of the top."""
    key, colon, value = comment.partition(":")
    if colon:
        header.setdefault(key.strip(), value.strip())


def _title(path: Path, header: dict[str, str], jobs: int) -> str:
    of = [header[key] for key in ("Installation", "Computer") if header.get(key)]
    processors = [f"{header['MaxProcs']} processors"] if header.get("MaxProcs") else []
    return ", ".join((f"{jobs:,} jobs of {path.name}", *of, *processors))


def _useful(records: Iterable[Job], taken: Taken, tally: Tally) -> Iterator[Job]:
    for job in records:
        if reason := _useless(job, taken):
            tally.counts[f"jobs left out, {reason}"] += 1
        else:
            yield job


def _useless(job: Job, taken: Taken) -> str | None:
    if job.runtime <= 0:
        return "run time unknown or 0"
    if job.processors <= 0:
        return "processors unknown or 0"
    if job.processors > 1 and taken.each == "job":
        return "parallel"
    if job.submitted < 0 and taken.arrivals:
        return "submit time unknown"
    return None


def _bag(jobs: Iterable[Job], taken: Taken, at: float = 0.0) -> Arrival:
    """These jobs as one bag. A parallel job only gets here to become as many tasks."""
    predicted, actual = list[float](), list[float]()
    for job in jobs:
        prediction = job.requested if taken.requested and job.requested > 0 else job.runtime
        predicted += [prediction] * job.processors
        actual += [job.runtime] * job.processors
    return Arrival(predicted, actual, at)


def _arrivals(jobs: list[Job], taken: Taken) -> Iterator[Arrival]:
    """A bag for each job. Some logs are not quite in order; time begins with the earliest."""
    first = min(job.submitted for job in jobs)
    for job in sorted(jobs, key=lambda job: job.submitted):
        yield _bag([job], taken, job.submitted - first)
