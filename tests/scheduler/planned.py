"""A grid under packing, driven by hand, whose planner is watched."""

from collections.abc import Sequence

from deskgrid.scheduler.policies.packing import Packing
from deskgrid.scheduler.policies.planning.planner import KnownWindows, Planner
from tests.scheduler.builders import Grid, packing


class Watched(Planner):
    """It writes down what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[KnownWindows, list[float]]] = []

    def look(self, known: KnownWindows, runtimes: Sequence[float]) -> int:
        self.asked.append((known, list(runtimes)))
        return super().look(known, runtimes)


class Planned(Grid):
    """A grid under packing whose planner is watched."""

    def __init__(self, margin: float = 0.0, queue_s: float = 0.0, confidence: float = 0.0) -> None:
        policy = packing(margin, queue_s, confidence)
        assert isinstance(policy, Packing)
        self.packing = policy
        self.planner = policy._planner = Watched()
        super().__init__(policy)

    def looks(self) -> int:
        """How often it has been planned since this was asked last, after a pass now."""
        self.tell_pass()
        count = len(self.planner.asked)
        self.planner.asked.clear()
        return count

    def experience(self, *ratios: float) -> None:
        """Attempts have taken so many times what was predicted."""
        for ratio in ratios:
            self.scheduler.grid.prediction_error.add([ratio])

    def run_all(self, name: str, count: int) -> list[float]:
        """The runtimes of the next tasks on a PC of one slot, each of which takes what was predicted."""
        ran = []
        for _ in range(count):
            task = self.running(name)
            ran.append(self.scheduler.grid.tasks.runtime(task))
            self.wait(ran[-1])
            self.end(task)
            self.tell_pass()
        return ran
