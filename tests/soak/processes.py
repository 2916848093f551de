"""A real broker, real workers that come and go, and a client that submits bag after bag: for minutes, flat in memory.

    python -m tests.soak.processes --minutes 10

``deskgrid broker --keep`` forgets finished bags after a minute. Every few seconds its resident memory is looked at.
What has to hold: every result is right and comes once; nothing grows after the first third; in the end all bags are
forgotten.
"""

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

from deskgrid import Grid
from tests.chaos.book import gathered, work
from tests.commands import PATIENCE_S, Command
from tests.live import WORKER
from tests.memory import LEAST, growth, resident
from tests.waiting import eventually

WORKERS = 5
# Seconds up and down of the workers' cycles; the last worker stays, so that there is always somebody.
CYCLES = ((20.0, 3.0), (13.0, 5.0), (31.0, 2.0), (8.0, 8.0))
# A bag's tasks, and the most seconds of one.
TASKS = 40
LONGEST_S = 0.1
# Of the workers one is killed after so many bags.
KILL_EVERY = 8
# Finished bags are kept so long: short, so that most of the time is after the warm-up.
KEEP_S = 60.0
# How many samples are taken in all, whatever the time.
SAMPLES = 120
FLAT = 0.05
DAY_S = 86_400.0


def _worker(home: Path, place: Path, number: int) -> Command:
    cycle = place / f"cycle{number}"
    own = ["--home", str(place), "--name", f"pc{number}"]
    arguments = [*WORKER, "--join", f"@{home / 'worker.join'}", *own, "--slots", "1"]
    if number < len(CYCLES):
        cycle.write_text("{:g}, {:g}\n".format(*CYCLES[number]), encoding="ascii")
        arguments += ["--cycle", str(cycle)]
    return Command(arguments, place)


def soaked(folder: Path, *, seconds: float, keep_s: float = KEEP_S, flat: float = FLAT, seed: int = 1) -> str:
    """Submit bag after bag for so long; a line about it. Raises `AssertionError` for what does not hold."""
    home, place, dice = folder / "home", folder / "tmp", random.Random(seed)
    place.mkdir()
    with ExitStack() as stack:
        options = ["--home", str(home), "--listen", "127.0.0.1:0", "--keep", repr(keep_s / DAY_S)]
        broker = stack.enter_context(closing(Command(["broker", *options], place)))
        assert eventually((home / "client.join").exists, PATIENCE_S), "the broker does not start"
        workers = [stack.enter_context(closing(_worker(home, place, number))) for number in range(WORKERS)]
        grid = stack.enter_context(Grid(f"@{home / 'client.join'}", timeout=PATIENCE_S))
        samples, bags, tasks, kills = list[int](), 0, 0, 0
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or len(samples) < LEAST:
            items = [(item, dice.uniform(0.0, LONGEST_S)) for item in range(TASKS)]
            bag = grid.bag(work, items, runtime=[length for _, length in items])
            tasks, bags = tasks + gathered(bag), bags + 1
            if bags % KILL_EVERY == 0:
                worker = dice.choice(workers)
                worker.kill()
                worker.start()
                kills += 1
            if passed >= len(samples) * seconds / SAMPLES:
                samples.append(resident(broker.process.pid))
        assert tasks == bags * TASKS
        assert eventually(lambda: not grid.bags(), 3 * keep_s + PATIENCE_S), "bags are left that should be forgotten"
        grown, most = growth(samples), samples[-1]
    assert grown <= flat, f"the broker's memory grew by {grown:.1%}, to {most / 2**20:.1f} MiB"
    return (
        f"{passed:.0f} s of a real broker and {WORKERS} workers, {kills} of them killed: "
        f"{tasks:,} tasks in {bags} bags, each right and once; "
        f"the broker's memory {most / 2**20:.1f} MiB, {grown:+.1%}; all forgotten"
    )


def main() -> int:
    """Run what the command line asks for; 1 when something does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.processes", description="A real grid, bag after bag.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deskgrid-soak-") as folder:
        try:
            print(soaked(Path(folder), seconds=60.0 * asked.minutes, seed=asked.seed))
        except AssertionError as failed:
            print(f"seed {asked.seed}: {failed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
