"""Find the functions that take the time, in every process of a grid. `benchmarks.calling` records the calls."""

import os
import pstats
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

# Read by `benchmarks/calling/sitecustomize.py`, which every Python process imports when it starts.
FOLDER = "DESKGRID_CALLS"
CALLING = Path(__file__).with_name("calling")
# The roles that sitecustomize.py distinguishes.
ROLES = ("client", "broker", "worker", "task processes")
# How many characters, from the end, of a function's file, line and name are shown.
NAME_WIDTH = 60


def call_tables(module: str, arguments: Sequence[str], lines: int) -> Iterator[Table]:
    """Profile ``python -m module arguments`` and all processes that it starts; a table for each role."""
    with TemporaryDirectory(prefix="deskgrid-calls-") as folder:
        path = os.pathsep.join([str(CALLING), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = os.environ | {FOLDER: folder, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-m", module, *arguments], env=environment, check=True)
        for role in ROLES:
            files = [str(file) for file in Path(folder).glob(f"{role}-*") if file.suffix != ".part"]
            if files:
                yield _table(role, pstats.Stats(*files), lines)


def _table(role: str, stats: pstats.Stats, lines: int) -> Table:
    """The functions that take the most time themselves."""
    table = Table("calls", "own s", "with what it calls, s", "function", title=f"{role}: seconds on the clock")
    found: dict[Any, Any] = vars(stats)["stats"]  # typeshed does not declare it
    rows = sorted(found.items(), key=lambda row: -row[1][2])
    for (file, line, function), (_, calls, own, cumulative, _) in rows[:lines]:
        table.add_row(
            f"{calls:,}", f"{own:.3f}", f"{cumulative:.3f}", f"{_short(file)}:{line} {function}"[-NAME_WIDTH:]
        )
    return table


def _short(file: str) -> str:
    return "/".join(file.split("/")[-2:])
