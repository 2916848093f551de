"""How fast files travel, and whom they disturb: ``python -m benchmarks.files``.

A file goes from a client to the broker, to a PC, comes back as the output of a task, and is fetched, while another
client pings the broker. Then a shared object is read by the tasks of several workers on one PC.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import numpy

from benchmarks.environments.deskgrid import Deskgrid
from deskgrid import Bag, Grid
from deskgrid.client.replies import ask

MIB = 2**20
# Seconds between two pings.
PING_S = 0.005
WORKERS = 4
SHARED_TASKS = 1_000


@dataclass(frozen=True, slots=True)
class Phase:
    """``mib_per_s``: of the file. Then pings meanwhile, in ms, and the broker's own memory at the end, in MiB."""

    name: str
    mib_per_s: float
    p50_ms: float
    p99_ms: float
    broker_mib: int

    def __str__(self) -> str:
        pings = f"pings p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"
        return f"{self.name:16} {self.mib_per_s:7.0f} MiB/s   {pings}   broker {self.broker_mib} MiB"


def _ping(line: str, pipe: "Connection[list[float], str]") -> None:
    """Ping the broker, in a process of its own; whenever something is asked, tell how long the pings took since."""
    took: list[float] = []
    with Grid(line) as grid:
        while True:
            if pipe.poll(PING_S):
                if not pipe.recv():
                    return
                pipe.send(took)
                took = []
            began = time.perf_counter()
            ask(grid._link, "ping", {})
            took.append(time.perf_counter() - began)


class Meter:
    """Pings the broker from another process."""

    def __init__(self, grid: Deskgrid) -> None:
        self._pid = grid.processes.pid("broker")
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ping, args=(grid.processes.client_line, theirs))
        self._process.start()
        self._pings()

    def _pings(self) -> list[float]:
        self._pipe.send("more")
        took: list[float] = self._pipe.recv()
        return took

    def close(self) -> None:
        """End the process."""
        self._pipe.send("")
        self._process.join()

    def phase(self, name: str, mib: float, action: Callable[[], object]) -> Phase:
        """Do ``action``, which moves so many MiB."""
        self._pings()
        began = time.perf_counter()
        action()
        seconds, took = time.perf_counter() - began, sorted(self._pings()) or [0.0]
        p50, p99 = (1e3 * took[int(share * len(took))] for share in (0.5, 0.99))
        return Phase(name, mib / seconds, p50, p99, _own_memory(self._pid))


def _own_memory(pid: int) -> int:
    """The memory of a process that is not that of a mapped file, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon"))


def transfers(grid: Grid, meter: Meter, path: Path, mib: int) -> Iterator[Phase]:
    """One file, all the way, and a second one back."""
    bags: list[Bag[str, str]] = []

    def submit(*argv: str) -> None:
        outputs = ["out"] if len(argv) > 1 else []
        bags.append(grid.command(argv, [""], runtime=1, inputs=[str(path)], outputs=outputs))

    def wait() -> None:
        bags[-1].wait()

    yield meter.phase("to the broker", mib, lambda: submit("true"))
    yield meter.phase("to a PC", mib, wait)
    submit("sh", "-c", f"(echo; cat {path.name}) > out")  # each part of it is new
    yield meter.phase("made, and back", mib, wait)
    yield meter.phase("fetched", mib, lambda: bags[-1].fetch(path.parent / "to", 0))


def shared(grid: Grid, mib: int) -> float:
    """Seconds from sharing an array to the last of many tasks that read it."""
    array = numpy.frombuffer(os.urandom(mib * MIB), numpy.uint8)
    table: Any = grid.share(array)
    began = time.perf_counter()
    assert grid.bag(lambda place: int(table[place]), range(SHARED_TASKS), runtime=0.001).results() == [
        int(value) for value in array[:SHARED_TASKS]
    ]
    return time.perf_counter() - began


@contextmanager
def _random_file(mib: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="deskgrid-files-") as place:
        path = Path(place, "file")
        with path.open("wb") as file:
            for _ in range(mib):
                file.write(os.urandom(MIB))
        yield path


@click.command()
@click.option("--mib", default=1024, show_default=True, help="The size of the file.")
@click.option("--shared-mib", default=200, show_default=True, help="The size of the shared object.")
def main(mib: int, shared_mib: int) -> None:
    """Measure how fast files travel, and whom they disturb."""
    grid = Deskgrid()
    try:
        grid.start(WORKERS)
        meter = Meter(grid)
        try:
            with _random_file(mib) as path:
                for phase in transfers(grid.grid, meter, path, mib):
                    click.echo(str(phase))
        finally:
            meter.close()
        seconds = shared(grid.grid, shared_mib)
        click.echo(f"shared {shared_mib} MiB: {SHARED_TASKS:,} tasks on {WORKERS} workers in {seconds:.1f} s")
    finally:
        grid.stop()


if __name__ == "__main__":
    main()
