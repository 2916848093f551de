"""Jobs from a log in the Standard Workload Format, version 2.2: the logs of the Parallel Workloads Archive.

The format (https://www.cs.huji.ac.il/labs/parallel/workload/swf.html): one job per line, 18 numbers separated by
blanks, -1 for unknown values. Comments begin with a semicolon; those at the top describe the system. Only fields 2
(submit time), 4 (run time), 5 (allocated processors) and 9 (requested time) are read.

Rule 1: a usable job has a run time and processors. Other jobs never ran, or ran for no time; they are left out and
counted.
Rule 2: by default only jobs of one processor are taken. A parallel job is not a bag of independent tasks, because its
processes wait for each other. Running it on a grid is an assumption that users have to ask for (``each="processor"``:
one task per processor, each as long as the job, which preserves the total work of the log).
Rule 3: no more of the file is read than the requested jobs need.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from deskgrid.scheduler.simulation.simulator import Arrival
from deskgrid.sleepbench.workloads.source import Jobs, MalformedLine, Tally, TextFile, WorkloadError, number, whole

FIELDS = 18
# No machine has more processors. A line with a larger number would make a task list that fills the memory.
PROCESSORS_MOST = 10_000_000

Each = Literal["job", "processor"]


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """One line of a log. Seconds. Values below 0 are unknown, and in the last three fields also 0."""

    submitted: float
    runtime: float
    processors: int
    requested: float


@dataclass(frozen=True, slots=True)
class JobSelection:
    """What to take from a log.

    ``jobs``: how many usable jobs, from the first on; None: all. ``requested``: predict the time that the user
    requested, if there is one, instead of the run time. ``arrivals``: each job arrives at its submit time, the first at
    0; otherwise all jobs are one bag at the start.
    """

    jobs: int | None = None
    each: Each = "job"
    requested: bool = False
    arrivals: bool = False


def read_swf(path: Path, taken: JobSelection, lenient: bool = False) -> Jobs:
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


def read_rigid(path: Path, lenient: bool = False) -> list[LoggedJob]:
    """All usable jobs of the log at ``path``, also parallel ones, by submit time, from 0 on; raises `WorkloadError`."""
    tally = Tally()
    taken = JobSelection(each="processor", arrivals=True)
    with closing(TextFile(path, ";", lenient, tally).records(parse_job)) as records:
        jobs = sorted(_useful(records, taken, tally), key=lambda job: job.submitted)
    if not jobs:
        raise WorkloadError("; ".join((f"{path} has no job to run", *tally.notes())))
    return [replace(job, submitted=job.submitted - jobs[0].submitted) for job in jobs]


def parse_job(line: str) -> LoggedJob:
    """One line; raises `MalformedLine`."""
    fields = line.split()
    if len(fields) != FIELDS:
        raise MalformedLine(f"a job has {FIELDS} fields, but this one has {len(fields)}")
    processors = whole(fields[4], "number of processors")
    if processors > PROCESSORS_MOST:
        raise MalformedLine(f"no machine has {processors:,} processors")
    return LoggedJob(
        number(fields[1], "submit time"), number(fields[3], "run time"), processors, number(fields[8], "requested time")
    )


def _heading(header: dict[str, str], comment: str) -> None:
    """Note a "Key: value" comment. If a key occurs twice, the first one counts, because it is in the header."""
    key, colon, value = comment.partition(":")
    if colon:
        header.setdefault(key.strip(), value.strip())


def _title(path: Path, header: dict[str, str], jobs: int) -> str:
    of = [header[key] for key in ("Installation", "Computer") if header.get(key)]
    processors = [f"{header['MaxProcs']} processors"] if header.get("MaxProcs") else []
    return ", ".join((f"{jobs:,} jobs of {path.name}", *of, *processors))


def _useful(records: Iterable[LoggedJob], taken: JobSelection, tally: Tally) -> Iterator[LoggedJob]:
    for job in records:
        if reason := _useless(job, taken):
            tally.counts[f"jobs left out, {reason}"] += 1
        else:
            yield job


def _useless(job: LoggedJob, taken: JobSelection) -> str | None:
    if job.runtime <= 0:
        return "run time unknown or 0"
    if job.processors <= 0:
        return "processors unknown or 0"
    if job.processors > 1 and taken.each == "job":
        return "parallel"
    if job.submitted < 0 and taken.arrivals:
        return "submit time unknown"
    return None


def _bag(jobs: Iterable[LoggedJob], taken: JobSelection, at: float = 0.0) -> Arrival:
    """These jobs as one bag. A parallel job becomes one task per processor."""
    predicted, actual = list[float](), list[float]()
    for job in jobs:
        prediction = job.requested if taken.requested and job.requested > 0 else job.runtime
        predicted += [prediction] * job.processors
        actual += [job.runtime] * job.processors
    return Arrival(predicted, actual, at)


def _arrivals(jobs: list[LoggedJob], taken: JobSelection) -> Iterator[Arrival]:
    """A bag for each job. Some logs are slightly out of order, so jobs are sorted; time begins with the earliest."""
    first = min(job.submitted for job in jobs)
    for job in sorted(jobs, key=lambda job: job.submitted):
        yield _bag([job], taken, job.submitted - first)
