"""deskgrid, as its own processes on 127.0.0.1: encrypted or not, with commits that wait for the disk or not."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, ClassVar

from benchmarks.environments.base import Environment, Function, outcome
from deskgrid import Bag, Grid
from deskgrid.sleepbench.processes import Processes, snapshot_of


class Deskgrid(Environment):
    """Encrypted, with a journal that survives the broker's death: what `Grid.local` starts."""

    LABEL = "deskgrid"
    NOTE = "encrypted, journal kept (--durability process, as Grid.local): submit; one bag"
    OPTIONS: ClassVar[Sequence[str]] = ("--durability", "process")

    def __init__(self) -> None:
        self.processes = Processes(more=self.OPTIONS)
        self._grid: Grid | None = None
        self._names: list[str] = []

    def start(self, workers: int) -> None:
        """A broker, and workers of one slot each; returns when they have joined, as `Grid.local` does."""
        self._names = [f"pc{number}" for number in range(workers)]
        self.processes.start(self._names)
        grid = self._grid = Grid(self.processes.client_line)
        self.processes.wait_for(lambda: len(snapshot_of(grid)["workers"]) == workers, "the workers to join")

    @property
    def grid(self) -> Grid:
        """The client."""
        assert self._grid is not None
        return self._grid

    def one(self, function: Function, item: Any) -> Any:
        """Submit and wait."""
        return self.grid.submit(function, item).result()

    def submit(self, function: Function, items: Sequence[Any]) -> list[Future[Any]]:
        """A future each."""
        return [self.grid.submit(function, item) for item in items]

    def gather(self, submitted: list[Future[Any]]) -> list[Any]:
        """One after the other."""
        return [outcome(future) for future in submitted]

    def submit_bag(self, function: Function, items: Sequence[Any]) -> Bag[Any, Any]:
        """A bag, of which nobody said how long a call takes."""
        return self.grid.bag(function, items)

    def gather_bag(self, submitted: Bag[Any, Any]) -> list[Any]:
        """In order."""
        return submitted.results(errors="return")

    def schedulers(self) -> list[int]:
        """The broker."""
        return [self.processes.pid("broker")]

    def workers(self) -> list[int]:
        """The agents, each a PC; their tasks die with them."""
        return [self.processes.pid(name) for name in self._names]

    def kill_worker(self) -> None:
        """An agent dies with all its tasks, and is started again at once, as its PC's service manager does."""
        name = self._names.pop(0)
        self.processes.kill(name)
        self._start_worker(name)

    def _start_worker(self, name: str) -> None:
        self._names.append(name)
        self.processes.start_worker(name)

    def stop(self) -> None:
        """End the processes and remove their files."""
        if self._grid is not None:
            self._grid.shutdown(wait=False, cancel_futures=True)
        self.processes.close()


class Insecure(Deskgrid):
    """Without encryption; otherwise the same."""

    LABEL = "deskgrid --insecure"
    NOTE = "as deskgrid, without encryption"
    OPTIONS = (*Deskgrid.OPTIONS, "--insecure")


class Power(Deskgrid):
    """Every commit waits for the disk: what ``deskgrid broker`` starts."""

    LABEL = "deskgrid --durability power"
    NOTE = "as deskgrid, each commit waits for the disk (the default of deskgrid broker)"
    OPTIONS = ("--durability", "power")
