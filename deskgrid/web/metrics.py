"""What Prometheus reads, in its text format. Pure.

The library for it would be one more to install and to keep, for a page that is written in the lines below. No label has
a value that a person or a PC chose, so the number of series is the same in every grid.
"""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from deskgrid.wire.status import BagState, StatusDocument, WorkerState

Samples = Iterable[tuple[Mapping[str, str], float]]
# A status document that is older than this is not shown: a stopped clock looks like a grid in which nothing happens.
STALE_S = 60.0


class _Metric(NamedTuple):
    name: str
    kind: str  # "gauge" or "counter"
    text: str
    samples: Samples


def text(known: tuple[float, StatusDocument] | None, estimates: Mapping[str, int]) -> str:
    """All metrics. ``known``: the age of the last status document, and the document; ``estimates``: see `Estimates`."""
    fresh = known is not None and known[0] <= STALE_S
    found = [_Metric("up", "gauge", "Whether the broker answers: 1 or 0", [({}, fresh)])]
    if known is not None and fresh:
        found += _of_the_grid(known[1])
        found += _of_bags(known[1]["bags"])
        found += _of_workers(known[1]["workers"])
    results = [({"result": result}, estimates.get(result, 0)) for result in ("within", "early", "late")]
    words = "Bags that ended within the interval of their first estimate, before it or after it"
    found.append(_Metric("estimates_total", "counter", words, results))
    return "".join(map(_lines, found))


def _lines(metric: _Metric) -> str:
    name = f"deskgrid_{metric.name}"
    lines = [f"# HELP {name} {metric.text}.", f"# TYPE {name} {metric.kind}"]
    for labels, value in metric.samples:
        inside = ",".join([f'{label}="{_escaped(of)}"' for label, of in labels.items()])
        lines.append(f"{name}{{{inside}}} {float(value)!r}" if inside else f"{name} {float(value)!r}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _states(label: str, **values: float) -> Samples:
    return [({label: name}, value) for name, value in values.items()]


def _of_the_grid(document: StatusDocument) -> list[_Metric]:
    totals, counts, facts = document["totals"], document["counters"], document["broker"]
    ends = {name: counts[name] for name in ("done", "errors", "timeouts", "crashes", "cancelled")}
    build = {"version": facts["version"], "python": facts["python"], "policy": facts["policy"]}
    workers = _states(
        "state",
        up=totals["workers_up"],
        away=totals["workers_away"],
        lost=totals["workers_lost"],
        absent=totals["pcs_absent"],
    )
    return [
        _Metric("build_info", "gauge", "The broker's version; always 1", [(build, 1)]),
        _Metric("broker_age_seconds", "gauge", "Seconds since the broker was started", [({}, facts["age_s"])]),
        _Metric("disk_ok", "gauge", "Whether the broker's disk has room: 1 or 0", [({}, facts["disk"] == "ok")]),
        _Metric("problems", "gauge", "Problems of the files in the broker's home", [({}, len(facts["problems"]))]),
        _Metric("workers", "gauge", "Workers, and PCs that should be there and are not (absent)", workers),
        _Metric(
            "slots",
            "gauge",
            "Slots of workers that are up",
            _states("state", busy=totals["busy"], free=totals["slots"] - totals["busy"]),
        ),
        _Metric(
            "bags", "gauge", "Bags", _states("state", under_way=totals["bags_under_way"], ended=totals["bags_ended"])
        ),
        _Metric("tasks_submitted_total", "counter", "Tasks submitted", [({}, counts["submitted"])]),
        _Metric("tasks_finished_total", "counter", "Attempts that ended, by how", _states("outcome", **ends)),
        _Metric("departures_total", "counter", "Windows that ended as announced", [({}, counts["departures"])]),
        _Metric("losses_total", "counter", "Workers that vanished", [({}, counts["losses"])]),
        _Metric("kills_total", "counter", "Attempts that ran when their PC went", [({}, counts["kills"])]),
        _Metric(
            "planned_kills_total",
            "counter",
            "Attempts cut by a planned end",
            [({}, counts["planned_kills"])],
        ),
        _Metric("wasted_seconds_total", "counter", "Slot seconds whose work was lost", [({}, counts["wasted_s"])]),
        _Metric("busy_seconds_total", "counter", "Slot seconds in which tasks ran", [({}, counts["busy_s"])]),
        _Metric("offered_seconds_total", "counter", "Slot seconds of all windows", [({}, counts["window_s"])]),
        _Metric(
            "tasks_per_second", "gauge", "Tasks ended per second, of late", [({}, document["throughput"]["per_s"])]
        ),
    ]


def _of_bags(bags: Iterable[BagState]) -> list[_Metric]:
    bags = list(bags)
    running, waiting = sum([bag["running"] for bag in bags]), sum([bag["waiting"] for bag in bags])
    ages = [bag["age_s"] for bag in bags if bag["waiting"] and not bag["paused"]]
    return [
        _Metric(
            "tasks",
            "gauge",
            "Tasks that run or wait, of the 200 oldest bags under way",
            _states("state", running=running, waiting=waiting),
        ),
        _Metric(
            "oldest_waiting_seconds",
            "gauge",
            "The age of the oldest bag of which a task waits; 0: none",
            [({}, max(ages, default=0.0))],
        ),
    ]


def _of_workers(workers: Iterable[WorkerState]) -> list[_Metric]:
    there = [worker["uptime_s"] for worker in workers if worker["state"] == "up"]
    left = sorted([seconds for seconds in there if seconds is not None])
    values = {"shortest": left[0], "median": median(left), "longest": left[-1]} if left else {}
    words = "Seconds that are left in the windows of workers that are up and have an end"
    return [_Metric("window_seconds_left", "gauge", words, _states("which", **values))]
