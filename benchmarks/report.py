"""A result as tables on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.runner import metrics_of
from benchmarks.statistics import Cell, cell, failures, workloads_of
from benchmarks.workloads.base import Metric


def report(result: Mapping[str, Any]) -> RenderableType:
    """The machine, a table for each metric, and what is missing or failed."""
    return Group(_machine(result), *_tables(result), *_troubles(result))


def _machine(result: Mapping[str, Any]) -> str:
    about = result["machine"]
    return (
        f"{about['processor']}, {about['cores']} cores, {about['memory_gib']:g} GiB, {about['system']}, Python "
        f"{about['python']}, load {about['load_before']:g} before; {result['date']}, {result['runs']} runs, "
        f"size {result['size']}, {result['took_s'] / 60:.0f} minutes. Medians (least to most); ratio: how many times "
        "better deskgrid is, median of the runs"
    )


def _tables(result: Mapping[str, Any]) -> Iterator[Table]:
    for workload in workloads_of(result):
        metrics = [metric for metric in metrics_of(workload) if metric.better]
        table = Table("", *map(_title, metrics), title=workload, title_justify="left", show_lines=True)
        for column in table.columns[1:]:
            column.justify = "right"
        for key, system in result["environments"].items():
            cells = [cell(result, key, workload, metric) for metric in metrics]
            if any(cells):
                table.add_row(system["label"], *map(_words, cells))
        yield table


def _title(metric: Metric) -> str:
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


def _words(found: Cell | None) -> str:
    """Median and ratio; below, how far the runs spread."""
    if found is None:
        return "–"
    ratio = "" if found.ratio is None else f"  ({short(found.ratio)} x)"
    spread = "" if found.least == found.most else f"\n[dim]{short(found.least)} – {short(found.most)}[/]"
    return f"[bold]{short(found.median)}[/]{ratio}{spread}"


def short(value: float) -> str:
    """Three digits, or all of a whole number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _troubles(result: Mapping[str, Any]) -> Iterator[str]:
    for key, why in result["missing"].items():
        yield f"missing: {key}: {why}"
    for row in failures(result):
        yield f"failed: {row['workload']} on {row['environment']}, run {row['run']}: {row['failure']}"
