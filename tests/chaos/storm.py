"""A storm over real processes: brokers and workers are killed, frozen and cut off while two bags of tasks go on, of
which one brings a library that PCs have to prepare.

python -m tests.chaos.storm --seconds 60 --seed 7                   over cables that are cut
unshare --net python -m tests.chaos.storm --pulled --seconds 60     over cables that are pulled; for root
"""

import argparse
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from deskgrid import Grid
from tests.chaos.book import gang_work, gangs_gathered, gathered, recorded, work
from tests.chaos.libraries import brought, only_index
from tests.chaos.machines import Machines, Network, WorkerMachine
from tests.chaos.namespaces import Switch
from tests.chaos.proxy import Loopback
from tests.waiting import PATIENCE_S, eventually

WORKERS = 6
TASK_S = 0.1
# In a minute's storm: as many as six workers make in most of it.
TASKS_A_MINUTE = 2000
# One task for so many others needs the library.
OTHERS = 8
# Of each size; they are lost whenever one of their PCs is.
GANGS = (2, 3)
GANGS_A_MINUTE = 45
# Nothing moves for so long only if it never will.
CLIENT_PATIENCE_S = 120.0


class Storm:
    """Penalties at random, from a seed, one after the other in a thread; each is over some seconds after it began."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self._machines = machines
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.faults: list[str] = []
        self._lasts = 0.0
        self._thread = threading.Thread(target=self._main, daemon=True)

    def blow(self, seconds: float) -> None:
        """Begin; it is calm by itself after so many seconds."""
        self._lasts = seconds
        self._thread.start()

    def calm(self) -> None:
        """Let it be over, and everything in order. Raises what went wrong."""
        self._over.set()
        self._thread.join(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    def _put_right(self) -> None:
        for worker in self._machines.workers:
            self._well(worker)
        self._machines.client_cable.mend()
        self._machines.broker.thaw()
        self._machines.broker.start()

    @staticmethod
    def _well(worker: WorkerMachine) -> None:
        worker.cable.mend()
        worker.thaw()
        worker.start()

    def _main(self) -> None:
        # What is to be put right again: (seconds from the beginning of the storm, how).
        mending: list[tuple[float, Callable[[], None]]] = []
        now = 0.0
        try:
            while not self._over.is_set() and now < self._lasts:
                for _, mend in [row for row in mending if row[0] <= now]:
                    mend()
                mending = [row for row in mending if row[0] > now]
                mend, seconds = self._strike()
                mending.append((now + seconds, mend))
                pause = self._random.uniform(0.2, 0.8)
                now += pause
                self._over.wait(pause)
            self._put_right()
        except BaseException as error:
            self._failure = error

    def _strike(self) -> tuple[Callable[[], None], float]:
        """One fault; how it is put right, and after how many seconds."""
        if self._random.random() < 0.3:
            return self._strike_broker()
        number = self._random.randrange(len(self._machines.workers))
        worker, seconds = self._machines.workers[number], self._random.choice([0.0, 0.5, 1.5, 4.0])
        faults = {"kill": worker.kill, "freeze": worker.freeze, **worker.cable.faults}
        return self._done(f"pc{number}", faults, lambda: self._well(worker), seconds)

    def _strike_broker(self) -> tuple[Callable[[], None], float]:
        broker, cable = self._machines.broker, self._machines.client_cable

        def well() -> None:
            broker.thaw()
            broker.start()
            cable.mend()

        faults = {"kill": broker.kill, "freeze": broker.freeze, "cut client": cable.cut, "stall client": cable.stall}
        return self._done("broker", faults, well, self._random.choice([0.0, 0.3, 1.0]))

    def _done(
        self, what: str, faults: dict[str, Callable[[], None]], well: Callable[[], None], seconds: float
    ) -> tuple[Callable[[], None], float]:
        name = self._random.choice(list(faults))
        self.faults.append(f"{name} {what}")
        faults[name]()
        return well, seconds


def stormed(home: Path, network: Network, *, seconds: float, seed: int) -> str:
    """Have bags done in a storm; a line about it. Raises `AssertionError` unless every result is right, and once."""
    with_library = int(seconds * TASKS_A_MINUTE / 60) // OTHERS
    others = with_library * OTHERS
    tasks, pieces = others + with_library, int(seconds * GANGS_A_MINUTE / 60)
    with Machines(home, WORKERS, network) as machines, only_index(home / "wheels"):
        with Grid(machines.client_line, timeout=CLIENT_PATIENCE_S) as grid:
            assert eventually(lambda: len(grid.status()["workers"]) == WORKERS, PATIENCE_S)
            # Before the others: gangs get what they need first, and then single tasks what is left.
            gangs = {
                ranks: grid.bag(gang_work, [(item, TASK_S) for item in range(pieces)], runtime=TASK_S, gang=ranks)
                for ranks in GANGS
            }
            bag = grid.bag(work, [(item, TASK_S) for item in range(others)], runtime=TASK_S)
            items = [(item, TASK_S) for item in range(with_library)]
            library = grid.bag(brought, items, runtime=TASK_S, env=["stormlib"])
            storm = Storm(machines, seed)
            storm.blow(seconds)
            assert gathered(library) == with_library
            assert gathered(bag) == others
            storm.calm()
            for ranks, each in gangs.items():
                assert gangs_gathered(each, ranks) == pieces
        lives, faults = machines.broker.lives, Counter(fault.rpartition(" ")[0] for fault in storm.faults)
    ended = tasks + len(GANGS) * pieces
    assert recorded(home) == (ended, ended, ended)
    assert lives > 1, "the broker was never killed"
    counts = ", ".join(f"{count} {fault}" for fault, count in sorted(faults.items()))
    what = f"{tasks:,} tasks and {len(GANGS) * pieces} gangs"
    return f"{what} right and once each, on {WORKERS} workers in {seconds:g} s; faults: {counts}"


def main() -> int:
    """Run what the command line asks for; 1 when a result is missing, wrong, or there twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.storm", description="A storm over real processes.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pulled", action="store_true", help="cables are pulled; in a network namespace of its own")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deskgrid-storm-") as home:
        try:
            network = Switch() if asked.pulled else Loopback()
            print(f"seed {asked.seed}: {stormed(Path(home), network, seconds=asked.seconds, seed=asked.seed)}")
        except AssertionError as failed:
            print(f"seed {asked.seed}: {failed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
