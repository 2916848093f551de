"""A result as tables on the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.catalogue import OURS, workload
from benchmarks.runner import START, metrics_of
from benchmarks.statistics import Cell, cell, failures, workloads_of
from benchmarks.workloads.base import Metric


def report(result: Mapping[str, Any]) -> RenderableType:
    """The machine, a table for each metric, and what is missing or failed."""
    return Group(about_machine(result), *_tables(result), *_troubles(result))


def about_machine(result: Mapping[str, Any]) -> str:
    """The machine, the date, and how to read the figures."""
    about = result["machine"]
    return (
        f"{about['processor']}, {about['cores']} cores, {about['memory_gib']:g} GiB, {about['system']}, Python "
        f"{about['python']}, load {about['load_before']:g} before; {result['date']}, {result['runs']} runs, "
        f"size {result['size']}, {result['took_s'] / 60:.0f} minutes. Medians (least to most); ratio: how many times "
        "better deskgrid is, median of the runs"
    )


def _tables(result: Mapping[str, Any]) -> Iterator[Table]:
    for name in workloads_of(result):
        metrics = [metric for metric in metrics_of(name) if metric.better]
        about = f"[bold]{name}[/]  {_size(result, name)}"
        if name != START and not workload(name).workers:
            yield _list(result, name, metrics_of(name), about)
        else:
            yield _table(result, name, metrics, about)


def _size(result: Mapping[str, Any], name: str) -> str:
    """The workload's size, in words."""
    if name == START:
        return ""
    size: Mapping[str, float] = getattr(workload(name), result["size"])
    return ", ".join(f"{what.replace('_', ' ')} {short(value)}" for what, value in size.items())


def _table(result: Mapping[str, Any], name: str, metrics: Sequence[Metric], about: str) -> Table:
    """A row for each environment."""
    table = Table("", *map(_title, metrics), title=about, title_justify="left", show_lines=True)
    for column in table.columns[1:]:
        column.justify = "right"
    for key, system in result["environments"].items():
        cells = [cell(result, key, name, metric) for metric in metrics]
        if any(cells):
            table.add_row(system["label"], *map(_words, cells))
    return table


def _list(result: Mapping[str, Any], name: str, metrics: Sequence[Metric], about: str) -> Table:
    """A row for each figure of a workload that only deskgrid runs."""
    table = Table("", "median", "least", "most", title=about, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for metric in metrics:
        found = cell(result, OURS, name, metric)
        if found is not None:
            table.add_row(_title(metric), short(found.median), short(found.least), short(found.most))
    return table


def _title(metric: Metric) -> str:
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


def _words(found: Cell | None) -> str:
    """Median and ratio; below them, the range of the runs."""
    if found is None:
        return "–"
    ratio = "" if found.ratio is None else f"  ({short(found.ratio)} x)"
    spread = "" if found.least == found.most else f"\n[dim]{short(found.least)} – {short(found.most)}[/]"
    return f"[bold]{short(found.median)}[/]{ratio}{spread}"


def short(value: float) -> str:
    """Three significant digits, or a whole number from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _troubles(result: Mapping[str, Any]) -> Iterator[str]:
    for key, why in result["missing"].items():
        yield f"missing: {key}: {why}"
    for row in failures(result):
        yield f"failed: {row['workload']} on {row['environment']}, run {row['run']}: {row['failure']}"
