"""A model of quarantine: the rules at the head of `deskgrid.scheduler.state.quarantine`, implemented differently."""

from dataclasses import dataclass

from deskgrid.scheduler.state.broken_bags import BAG_WORKERS
from deskgrid.scheduler.state.quarantine import FIRST_QUARANTINE_S, LONGEST_QUARANTINE_S, STREAK


@dataclass(slots=True)
class Pause:
    """What the model knows of a worker in quarantine."""

    until: float
    lasts: float
    tried: bool = False


class Health:
    """Who is in quarantine, by these rules."""

    def __init__(self) -> None:
        self.quarantined: dict[str, Pause] = {}
        self.in_a_row: dict[str, int] = {}
        # By bag, and by how many of its tasks were done.
        self.crashed_on: dict[tuple[int, int], set[str]] = {}

    def crashes(self, worker: str, bag: int, bag_done: int, up: set[str], now: float) -> None:
        where = self.crashed_on.setdefault((bag, bag_done), set())
        where.add(worker)
        if len(where) < BAG_WORKERS:
            self.fails(worker, up, now)

    def fails(self, worker: str, up: set[str], now: float) -> None:
        """A crash that nothing else explains, or a silence."""
        self.in_a_row[worker] = self.in_a_row.get(worker, 0) + 1
        stay = self.quarantined.get(worker)
        if self.in_a_row[worker] >= STREAK and (stay is None or stay.tried):
            self.quarantined.pop(worker, None)
            if up - {worker} - set(self.quarantined):
                lasts = FIRST_QUARANTINE_S if stay is None else min(2 * stay.lasts, LONGEST_QUARANTINE_S)
                self.quarantined[worker] = Pause(now + lasts, lasts)

    def works(self, worker: str) -> None:
        self.quarantined.pop(worker, None)
        self.in_a_row.pop(worker, None)

    def forget_bag(self, bag: int) -> None:
        self.crashed_on = {key: where for key, where in self.crashed_on.items() if key[0] != bag}

    def look(self, up: set[str], now: float) -> None:
        alone = up <= set(self.quarantined)
        for name in up & set(self.quarantined):
            stay = self.quarantined[name]
            stay.tried = stay.tried or alone or stay.until <= now
