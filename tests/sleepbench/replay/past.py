"""A journal with a past, written as a broker writes it. Times are seconds after `T0`."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from deskgrid.broker.store.journal import Journal
from deskgrid.broker.store.rows import BagRow, BatchRow, How, ResultRow, ToldEtaRow, WindowEnd, WindowRow
from deskgrid.wire import Outcome, TaskOptions

T0 = 1_800_000_000.0


class Ran(NamedTuple):
    """A task: predicted, and what became of it; no ``outcome``: it has not ended."""

    predicted: float
    elapsed: float
    ended: float | None
    outcome: Outcome | None = Outcome.DONE


class Past:
    """The journal of a broker that is about to be stopped."""

    def __init__(self, home: Path) -> None:
        self.journal = Journal(home)
        self._bags = 0

    def bag(
        self,
        bag: str,
        at: float,
        *batches: Sequence[Ran],
        predicted: bool = True,
        options: TaskOptions = TaskOptions(),  # noqa: B008 -- a value that nobody changes
    ) -> None:
        """A bag, whose batches arrive a second after one another."""
        self._bags += 1
        number, start = self._bags, 0
        row = BagRow(number, bag, f"name of {bag}", "command", "ada", "d", options, predicted, True, T0 + at)
        self.journal.add_bag(row)
        for place, tasks in enumerate(batches):
            self.journal.commit()
            first = self.journal.recovery.next_task()
            batch = BatchRow(first, number, start, len(tasks), [task.predicted for task in tasks])
            self.journal.add_batch(batch, [b""] * len(tasks), T0 + at + place)
            for item, task in enumerate(tasks):
                if task.outcome is not None:
                    ended = None if task.ended is None else T0 + task.ended
                    where = (first + item, number, start + item, task.outcome, task.elapsed, "pc1", 1, b"", b"", b"")
                    self.journal.add_results([ResultRow(*where, ended)])
            start += len(tasks)

    def window(
        self,
        worker: str,
        opened: float,
        closed: float | None,
        planned: float | None = None,
        *,
        how: How = "departure",
        slots: int = 1,
        session: str = "s",
        kills: int = 0,
        wasted_s: float = 0.0,
    ) -> None:
        """A window that was; ``closed`` None: it was open when the broker was killed."""
        number = self.journal.recovery.next_window()
        end = None if planned is None else T0 + planned
        self.journal.windows.add([WindowRow(number, worker, session, "", slots, T0 + opened, end)])
        if closed is not None:
            self.journal.windows.end([WindowEnd(T0 + closed, how, kills, wasted_s, number)])

    def told(self, bag: int, made: float, ended: float, *estimate: float) -> None:
        """An estimate of when a bag ends: median, low and high. ``ended``: the fraction of its tasks that had."""
        median, low, high = estimate
        self.journal.etas.add([ToldEtaRow(bag, T0 + made, ended, T0 + median, T0 + low, T0 + high)])

    def ends(self, at: float) -> None:
        """The broker stops."""
        self.journal.seen(T0 + at)
        self.journal.close()
