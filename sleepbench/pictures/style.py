"""How every picture looks, and how it is written.

Rule 1: nothing global. No pyplot; matplotlib's settings are changed only inside `drawing`, which starts from its
own defaults, so that no user's ``matplotlibrc`` shows.
Rule 2: the same figures give the same bytes (of one version of matplotlib), so that a picture under version control
changes when there is a reason. Hence no date, no name of a program, and ids that are not random.
Rule 3: colours are those of Okabe and Ito, which people who see fewer colours can tell apart. A policy has the same in
every picture; lines also differ by marker, and what the paper measured is paler than what we did.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Inches: two columns of a journal's page, and one. Text of 8 points can still be read at half that.
WIDTH = 7.2
COLUMN = 3.5
DOTS_PER_INCH = 200

INK = "#222222"
PALE_INK = "#777777"
GRID = "#e4e4e4"
VERMILLION = "#d55e00"

# Look: (colour, marker). The spare ones are handed out to other policies, in the order in which they come.
LOOKS: Mapping[str, tuple[str, str]] = {
    "pgs": ("#0072b2", "o"),
    "fcfs": (VERMILLION, "s"),
    "packing": ("#009e73", "D"),
}
SPARE = (("#cc79a7", "^"), ("#e69f00", "v"), ("#56b4e9", "P"), ("#000000", "X"), ("#999999", "*"))

# (Any: matplotlib's types have its names of settings as literals.)
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

# What matplotlib would otherwise write into a file of each kind: dates and versions.
LEFT_OUT: Mapping[str, Sequence[str]] = {
    ".svg": ("Date", "Creator"),
    ".png": ("Software",),
    ".pdf": ("CreationDate", "Creator", "Producer"),
}


@contextmanager
def drawing() -> Iterator[None]:
    """The settings hold inside; afterwards matplotlib is as it was."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty one, of so many inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, file: Path) -> None:
    """Write it as what the name of ``file`` says."""
    suffix = file.suffix.lower()
    with drawing():
        figure.savefig(
            file, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=dict.fromkeys(LEFT_OUT[suffix]), facecolor="white"
        )


def looks(policies: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker for each."""
    others = [policy for policy in policies if policy not in LOOKS]
    spare = {policy: SPARE[place % len(SPARE)] for place, policy in enumerate(others)}
    return {policy: LOOKS.get(policy) or spare[policy] for policy in policies}
