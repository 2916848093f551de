"""A result as a picture: a panel for each figure, with a bar for each environment: median, minimum and maximum."""

from collections.abc import Mapping
from itertools import zip_longest
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from benchmarks.catalogue import OURS
from benchmarks.runner import metrics_of
from benchmarks.statistics import Cell, cell, workloads_of
from benchmarks.workloads.base import Metric
from deskgrid.sleepbench.pictures.style import INK, LOOKS, PALE_INK, WIDTH, drawing, new_figure, save

COLUMNS = 3
# Inches: the height of a bar with its name, and of a panel's title and axis.
BAR, FRAME = 0.15, 0.62
OUR_COLOUR = LOOKS["packing"][0]
# If the greatest median is more than this many times the least, the axis is logarithmic.
DECADES = 30.0

Panel = tuple[str, Metric, dict[str, Cell]]


def draw(result: Mapping[str, Any], file: Path) -> None:
    """Draw ``result`` to ``file``, if there is anything to draw. Figures of a single environment are left out."""
    panels = _panels(result)
    if not panels:
        return
    labels = {key: system["label"] for key, system in result["environments"].items()}
    rows = ceil(len(panels) / COLUMNS)
    with drawing():
        figure = new_figure(rows * (FRAME + BAR * len(labels)), WIDTH * 1.3)
        axes: list[Axes] = list(figure.subplots(rows, COLUMNS, squeeze=False, sharey=True).flat)
        for place, (axis, panel) in enumerate(zip_longest(axes, panels)):
            if panel is None:
                axis.set_visible(False)
            else:
                _panel(axis, panel, labels, named=place % COLUMNS == 0)
    save(figure, file)


def _panels(result: Mapping[str, Any]) -> list[Panel]:
    found = []
    for workload in workloads_of(result):
        for metric in metrics_of(workload):
            cells = {key: cell(result, key, workload, metric) for key in result["environments"]}
            known = {key: each for key, each in cells.items() if each is not None}
            if metric.better and len(known) > 1:
                found.append((workload, metric, known))
    return found


def _panel(axis: Axes, panel: Panel, labels: Mapping[str, str], named: bool) -> None:
    workload, metric, cells = panel
    order = list(labels)
    for key, found in cells.items():
        place = order.index(key)
        spread = [[max(0.0, found.median - found.least)], [max(0.0, found.most - found.median)]]
        colour = OUR_COLOUR if key.startswith(OURS) else PALE_INK
        axis.barh(place, found.median, xerr=spread, color=colour, ecolor=INK, height=0.7, error_kw={"linewidth": 0.7})
    medians = [found.median for found in cells.values() if found.median > 0.0]
    if medians and max(medians) > DECADES * min(medians):
        axis.set_xscale("log")
        axis.set_xlim(left=min(medians) / 3)
    axis.set_yticks(range(len(order)), labels.values())
    axis.set_ylim(len(order) - 0.4, -0.6)
    axis.tick_params(axis="y", labelleft=named, length=0)
    axis.grid(axis="x")
    axis.set_title(f"{workload}: {metric.title}", loc="left")
    axis.set_xlabel(f"{metric.unit}, {metric.better} is better" if metric.unit else f"{metric.better} is better")
