"""A result as Markdown tables: a row for each environment, and the most telling figures as columns."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.catalogue import OURS, workload
from benchmarks.report import about_machine, short
from benchmarks.runner import START, metrics_of
from benchmarks.statistics import cell, workloads_of

# Workload, metric, and the heading of its column.
TELLING: Sequence[tuple[str, str, str]] = (
    ("burst", "bag_per_s", "bag, tasks/s"),
    ("burst", "each_per_s", "one submit each, tasks/s"),
    ("latency", "median_ms", "one at a time, ms"),
    ("latency", "p99_ms", "p99, ms"),
    ("sleep", "each_ratio", "sleeps, time / ideal"),
    ("churn", "complete", "workers killed: right results"),
    ("churn", "ratio", "time / ideal"),
    ("payload", "argument_mb_s", "10 MB there, MB/s"),
    ("payload", "result_mb_s", "back, MB/s"),
    ("memory", "bag_scheduler", "bytes a waiting task"),
    (START, "start_s", "start, s"),
)


def markdown(result: Mapping[str, Any]) -> Iterator[str]:
    """The lines: the machine, the environments, deskgrid's own figures, and how each peer was used."""
    yield about_machine(result)
    yield ""
    columns = [(*row[:2], row[2]) for row in TELLING if row[0] in workloads_of(result)]
    yield _row(["", *[heading for _, _, heading in columns]])
    yield _row(["---"] * (len(columns) + 1))
    for key, system in result["environments"].items():
        yield _row([system["label"], *[_words(result, key, name, metric) for name, metric, _ in columns]])
    yield ""
    yield from _own(result)
    for system in result["environments"].values():
        versions = ", ".join(f"{package} {version}" for package, version in system["versions"].items())
        yield f"- {system['label']}{f' ({versions})' if versions else ''}: {system['note']}."


def _words(result: Mapping[str, Any], key: str, name: str, wanted: str) -> str:
    """The median, and how many times better deskgrid is."""
    metric = next(metric for metric in metrics_of(name) if metric.name == wanted)
    found = cell(result, key, name, metric)
    if found is None:
        return "–"
    ratio = "" if found.ratio is None or key == OURS else f" ({short(found.ratio)} ×)"
    return f"{short(found.median)}{ratio}"


def _own(result: Mapping[str, Any]) -> Iterator[str]:
    """The table of the workloads that only deskgrid runs."""
    names = [name for name in workloads_of(result) if name != START and not workload(name).workers]
    if not names:
        return
    yield _row(["deskgrid only", "median", "least to most"])
    yield _row(["---"] * 3)
    for name in names:
        for metric in metrics_of(name):
            found = cell(result, OURS, name, metric)
            if found is not None:
                title = f"{name}: {metric.title}, {metric.unit}"
                yield _row([title, short(found.median), f"{short(found.least)} – {short(found.most)}"])
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
