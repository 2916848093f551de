"""deskgrid, as its own processes on 127.0.0.1: encrypted or not, with commits that wait for the disk or not."""

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.environments.base import Environment, Function
from deskgrid import Grid
from sleepbench.processes import Processes, snapshot_of


class Deskgrid(Environment):
    """Encrypted, with a journal that survives the broker's death: what `Grid.local` starts."""

    LABEL = "deskgrid"
    NOTE = "encrypted, journal kept (--durability process, as Grid.local): submit; one bag"
    OPTIONS: ClassVar[Sequence[str]] = ("--durability", "process")

    def __init__(self) -> None:
        self.processes = Processes(more=self.OPTIONS)
        self._grid: Grid | None = None

    def start(self, workers: int) -> None:
        """A broker, and workers of one slot each; returns when they have joined, as `Grid.local` does."""
        self.processes.__enter__()
        for number in range(workers):
            self.processes.start_worker(f"pc{number}")
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

    def submit_each(self, function: Function, items: Sequence[Any]) -> list[Any]:
        """A future each."""
        return [future.result() for future in [self.grid.submit(function, item) for item in items]]

    def map_all(self, function: Function, items: Sequence[Any]) -> list[Any]:
        """A bag, of which nobody said how long a call takes."""
        return self.grid.bag(function, items).results()

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
