"""How much of the source one thing needs: ``python -m benchmarks.reach`` counts functions and files, by process.

Counted are the functions of deskgrid that run from ``grid.bag`` with one no-op task to its result; and from the start
of a worker until the broker knows it. What is done at intervals may be among them, so the least of several times
counts. `benchmarks.calling` writes down the calls, with the clock that all processes share.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.calls import CALLING
from benchmarks.environments.deskgrid import Deskgrid
from benchmarks.tasks import noop

ROOT = Path(__file__).resolve().parents[1]
OURS = ("broker", "deskgrid", "papers", "scheduler", "sleepbench", "worker")
# How often each is done.
TIMES = 5
ROLES = ("client", "broker", "worker", "task processes")


class Reached(NamedTuple):
    """How many functions ran, and of how many files."""

    functions: int
    files: int


def reached(folder: Path, what: str) -> dict[str, Reached]:
    """By role: the least that ran in one of the spans that the client wrote down for ``what``; and ``all`` together."""
    spans = [
        (int(begins), int(ends))
        for name, begins, ends in map(str.split, (folder / "spans").read_text().splitlines())
        if name == what
    ]
    calls = [each for path in folder.glob("*-*") for each in _calls(path)]
    found = [[(role, file, line) for at, role, file, line in calls if begins <= at <= ends] for begins, ends in spans]
    roles = {role: [_count({each[1:] for each in its if each[0] == role}) for its in found] for role in ROLES}
    return {role: min(counts) for role, counts in roles.items()} | {
        "all": min([_count({each[1:] for each in its}) for its in found])
    }


def _count(functions: set[tuple[str, str]]) -> Reached:
    return Reached(len(functions), len({file for file, _ in functions}))


def _calls(path: Path) -> Iterator[tuple[int, str, str, str]]:
    role = path.name.split("-")[0]
    for row in path.read_text().splitlines():
        at, file, line, _ = row.split("\t")
        yield int(at), role, file, line


def measured() -> Mapping[str, Mapping[str, Reached]]:
    """By what is done, ``task`` or ``join``, and role."""
    with TemporaryDirectory(prefix="deskgrid-reach-") as name:
        path = os.pathsep.join([str(CALLING), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        ours = os.pathsep.join([f"{ROOT}/{folder}/" for folder in OURS])
        environment = os.environ | {"DESKGRID_REACH": name, "DESKGRID_REACH_OF": ours, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-m", "benchmarks.reach", name], env=environment, check=True)
        return {what: reached(Path(name), what) for what in ("task", "join")}


def play(folder: Path) -> None:
    """Run both several times, and write down when."""
    grid = Deskgrid()
    spans = list[str]()
    try:
        grid.start(1)
        grid.gather_bag(grid.submit_bag(noop, range(3)))
        for _ in range(TIMES):
            begins = time.monotonic_ns()
            grid.gather_bag(grid.submit_bag(noop, range(1)))
            spans.append(f"task {begins} {time.monotonic_ns()}")
        for number in range(TIMES):
            log = grid.processes.folder / f"more{number}.log"
            begins = time.monotonic_ns()
            grid.processes.start_worker(f"more{number}")
            grid.processes.wait_for(partial(_says_joined, log), "a worker to join")
            spans.append(f"join {begins} {time.monotonic_ns()}")
    finally:
        grid.stop()
    (folder / "spans").write_text("\n".join(spans))


def _says_joined(log: Path) -> bool:
    return "joined" in log.read_text()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        play(Path(sys.argv[1]))
    else:
        for what, roles in measured().items():
            print(what, *[f"{role}: {its.functions} in {its.files} files" for role, its in roles.items()], sep="\n  ")
