"""``make pictures``: docs/pictures/estimate.svg, when a real bag was expected to be done while it ran, and when it was.

A broker and six workers run on this machine for a minute. Windows are seconds instead of hours, tasks sleep, and nobody
says for how long.
"""

import time
from pathlib import Path
from random import Random

from deskgrid import Eta, Grid
from deskgrid.sleepbench.pictures.predictions import ToldEnd, narrowing
from deskgrid.sleepbench.pictures.style import save
from deskgrid.sleepbench.processes import Processes, write_cycle

PICTURE = Path(__file__).parent / "pictures" / "estimate.svg"
# Seconds up and down of each PC.
CYCLES = [(300, 60), (240, 60), (18, 8), (27, 10), (24, 15), (40, 12)]
TASKS = 200
SEED = 4
EVERY_S = 0.5


def main() -> None:
    save(narrowing(*run()), PICTURE)
    print(f"wrote {PICTURE}")


def run() -> tuple[list[ToldEnd], float]:
    """What was told of a bag, and after how many seconds it was done."""
    chance = Random(SEED)
    naps = [f"{min(8.0, chance.lognormvariate(0.3, 0.6)):.2f}" for _ in range(TASKS)]
    with Processes() as processes, Grid(processes.client_line) as grid:
        for number, pair in enumerate(CYCLES, start=1):
            name = f"lab3-{number:02}"
            processes.start_worker(name, write_cycle(processes.folder / f"{name}.cycle", [pair]))
        processes.wait_for(lambda: len(grid.status()["workers"]) == len(CYCLES), "the workers to join")
        began = time.monotonic()
        bag = grid.command(["sleep", "{}"], naps, name="sweep")
        seen = list[ToldEnd]()
        while not bag.wait(timeout=EVERY_S):
            seen += told(bag.eta(), time.monotonic() - began)
        return seen, time.monotonic() - began


def told(eta: Eta, at: float) -> list[ToldEnd]:
    """An estimate that was made ``at`` so many seconds; none while nothing is known."""
    if eta.median is None or eta.low is None or eta.high is None:
        return []
    return [ToldEnd(at, at + eta.median, at + eta.low, at + eta.high)]


if __name__ == "__main__":
    main()
