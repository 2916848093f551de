"""Where attempts are: on which worker, and since when."""

from collections.abc import Iterator

from deskgrid.scheduler.model import Attempt
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.slots import Sent


class AttemptLookup:
    """Where attempts are, while nothing changes: each slot is walked once, however many attempts are looked up."""

    def __init__(self, grid: SchedulerState) -> None:
        self._bound = grid.bound
        self._copies = grid.copies
        self._gangs = grid.gangs.running
        self._met: dict[Attempt, tuple[str, float]] = {}
        self._rest: dict[int, Iterator[Sent]] = {}

    def find(self, attempt: Attempt) -> tuple[str, float] | None:
        """The worker that has an attempt, and when it was sent there; None: none has it. Of a gang, that of rank 0."""
        slot, copy = self._bound.get(attempt.task), self._copies.get(attempt.task)
        if copy is not None and copy.number == attempt.number:
            return None if copy.slot is None or copy.slot.copy is None else (copy.slot.worker.name, copy.slot.copy.at)
        if slot is None or attempt in self._met:
            gang = self._gangs.get(attempt.task)
            if gang is not None and gang.attempt == attempt:
                return gang.slots[0].worker.name, gang.since
            return self._met.get(attempt)
        name = slot.worker.name
        rest = self._rest.setdefault(slot.number, iter(slot.sent))
        for sent in rest:
            self._met[sent.attempt] = name, sent.at
            if sent.attempt == attempt:
                break
        return self._met.get(attempt)
