"""The style of all pictures, and how they are written.

Rule 1: no global state. There is no pyplot, and matplotlib's settings are changed only inside `drawing`. It starts from
matplotlib's own defaults, so a user's ``matplotlibrc`` has no effect.
Rule 2: the same figures give the same bytes (with one version of matplotlib), so a picture under version control
changes only for a reason. Hence there is no date, no program name, and no random id.
Rule 3: the colours are those of Okabe and Ito, which colour-blind people can tell apart. A policy has the same colour
in every picture. Lines also differ by marker, and the paper's figures are paler than ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from deskgrid.sleepbench.pictures.means import Spread

# Inches: the width of two columns of a journal's page, and of one. Text of 8 points is still readable at half that
# size.
WIDTH = 7.2
COLUMN = 3.5
DOTS_PER_INCH = 200

INK = "#222222"
PALE_INK = "#777777"
GRID = "#e4e4e4"
VERMILLION = "#d55e00"

# (Colour, marker) of each policy. Other policies get the spare ones, in order of appearance.
LOOKS: Mapping[str, tuple[str, str]] = {
    "pgs": ("#0072b2", "o"),
    "fcfs": (VERMILLION, "s"),
    "packing": ("#009e73", "D"),
}
SPARE = (("#cc79a7", "^"), ("#e69f00", "v"), ("#56b4e9", "P"), ("#000000", "X"), ("#999999", "*"))

# (Any, because matplotlib's types declare the names of settings as literals.)
SETTINGS: Mapping[Any, object] = {
    "axes.axisbelow": True,
    "axes.edgecolor": PALE_INK,
    "axes.labelcolor": INK,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "errorbar.capsize": 1.5,
    "font.size": 8,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "svg.hashsalt": "deskgrid",
    "text.color": INK,
    "xtick.color": PALE_INK,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 7.5,
    "ytick.color": PALE_INK,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 7.5,
}

# Dates and versions that matplotlib would otherwise write into a file of each kind.
LEFT_OUT: Mapping[str, Sequence[str]] = {
    ".svg": ("Date", "Creator"),
    ".png": ("Software",),
    ".pdf": ("CreationDate", "Creator", "Producer"),
}


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the settings inside the block, and restore matplotlib's own afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of this size, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, file: Path) -> None:
    """Write the figure in the format that the name of ``file`` implies."""
    suffix = file.suffix.lower()
    with drawing():
        figure.savefig(
            file, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=dict.fromkeys(LEFT_OUT[suffix]), facecolor="white"
        )


def looks(policies: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker for each policy."""
    others = [policy for policy in policies if policy not in LOOKS]
    spare = {policy: SPARE[place % len(SPARE)] for place, policy in enumerate(others)}
    return {policy: LOOKS.get(policy) or spare[policy] for policy in policies}


def draw_line(axes: Axes, label: str, values: Mapping[float, Spread], look: tuple[str, str], size: float) -> None:
    """A line through means, with their deviations. ``size``: of its markers."""
    axes.errorbar(
        list(values),
        [each.mean for each in values.values()],
        yerr=_deviations(values),
        color=look[0],
        marker=look[1],
        markersize=size,
        linewidth=1.1,
        elinewidth=0.6,
        label=label,
    )


def draw_bars(axes: Axes, label: str, values: Mapping[float, Spread], width: float, **colours: Any) -> None:
    """Bars of means, with their deviations."""
    axes.bar(
        list(values),
        [each.mean for each in values.values()],
        width,
        yerr=_deviations(values),
        error_kw={"elinewidth": 0.7, "capthick": 0.7, "ecolor": INK},
        label=label,
        **colours,
    )


def _deviations(values: Mapping[float, Spread]) -> list[float] | None:
    """None if there is only one run, which has none."""
    found = [each.deviation for each in values.values()]
    return found if any(found) else None
