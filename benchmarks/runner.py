"""Runs every workload on every environment, in turns, and keeps all figures.

Rule 1: environments take turns, so a machine that becomes slower or busier meanwhile does so for all of them. In each
run they take turns at each group of workloads, and each run begins with another environment.
Rule 2: an environment is started anew for each group; no other environment runs meanwhile.
Rule 3: a failure is a row that says so; a missing environment is listed as missing. The rest goes on.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.catalogue import OURS, workload
from benchmarks.machine import machine
from benchmarks.remote import Failed, NotThere, Remote
from benchmarks.workloads.base import Figures, Metric, Workload

Tell = Callable[[str], None]

SIZES = ("full", "quick", "tiny")
# The name under which starts are reported, as if they were a workload.
START = "start"
START_METRIC = Metric("start_s", "start to first result, two workers", "s", "less")
START_WORKERS = 2
# Workloads of deskgrid only take minutes, and mostly measure processor time, so fewer runs are enough.
OWN_RUNS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one workload on one environment in one run: the figures, or why there are none."""

    run: int
    environment: str
    workload: str
    figures: Figures
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    environments: Sequence[str]
    workloads: Sequence[str]
    runs: int
    size: str


def groups(keys: Sequence[str]) -> list[list[str]]:
    """Group the workloads that can share one start of a system."""
    found: list[list[str]] = []
    for key in keys:
        new = workload(key)
        last = workload(found[-1][-1]) if found else None
        if last is not None and not new.apart and not last.apart and new.workers == last.workers:
            found[-1].append(key)
        else:
            found.append([key])
    return found


def measure(plan: Plan, tell: Tell) -> Iterator[dict[str, Any]]:
    """Yield the document that is written to a file, after each run. ``tell`` is called with progress lines."""
    return _Benchmark(plan, tell).run()


class _Benchmark:
    """One whole measurement, with its results so far."""

    def __init__(self, plan: Plan, tell: Tell) -> None:
        self._plan = plan
        self._tell = tell
        self._systems: dict[str, dict[str, Any]] = {}
        self._missing: dict[str, str] = {}
        self._rows: list[Row] = []

        self._began = time.monotonic()
        self._machine = machine()

    def run(self) -> Iterator[dict[str, Any]]:
        plan = self._plan
        for run in range(1, plan.runs + 1):
            for group in groups(plan.workloads):
                for key in _turn(plan.environments, run):
                    self._visit(run, key, group)
            yield self._document(run)

    def _document(self, runs: int) -> dict[str, Any]:
        keys = self._plan.environments
        return {
            "machine": self._machine,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "took_s": round(time.monotonic() - self._began),
            "size": self._plan.size,
            "runs": runs,
            "environments": {key: self._systems[key] for key in keys if key in self._systems},
            "missing": self._missing,
            "rows": [asdict(row) for row in self._rows],
        }

    def _visit(self, run: int, key: str, group: Sequence[str]) -> None:
        """One start of an environment, if it is installed and runs this group."""
        own = workload(group[0]).workers == 0
        if key in self._missing or (own and (key != OURS or run > OWN_RUNS)):
            return
        self._tell(f"run {run} of {self._plan.runs}: {', '.join(group)} on {key}")
        try:
            with Remote(key) as remote:
                self._rows += self._session(run, remote, group)
        except NotThere as error:
            self._missing[key] = str(error)
            self._tell(f"{key} is missing: {error}")

    def _session(self, run: int, remote: Remote, group: Sequence[str]) -> Iterator[Row]:
        """The rows of one start. Raises `NotThere`."""
        try:
            yield from self._started(run, remote, workload(group[0]))
        except Failed as error:
            self._tell(f"{remote.key} does not start: {error}\n{remote.said()}")
            yield from (Row(run, remote.key, name, {}, f"does not start: {error}") for name in group)
            return
        for name in group:
            try:
                yield Row(run, remote.key, name, dict(remote.run(name, getattr(workload(name), self._plan.size))))
            except Failed as error:
                self._tell(f"{name} on {remote.key}: {error}\n{remote.said()}")
                yield Row(run, remote.key, name, {}, str(error))

    def _started(self, run: int, remote: Remote, first: Workload) -> Iterator[Row]:
        told = remote.start(first.workers, first.faults)
        self._systems[remote.key] = {name: told[name] for name in ("label", "note", "python", "versions")}
        if first.workers == START_WORKERS and not first.apart:
            yield Row(run, remote.key, START, {START_METRIC.name: told["start_s"]})


def _turn(environments: Sequence[str], run: int) -> Sequence[str]:
    first = (run - 1) % len(environments)
    return [*environments[first:], *environments[:first]]


def metrics_of(name: str) -> Sequence[Metric]:
    """The metrics of a workload."""
    return (START_METRIC,) if name == START else workload(name).metrics
