"""A model of quarantine: the rules at the head of `deskgrid.scheduler.state.quarantine`, implemented differently."""

from dataclasses import dataclass

from deskgrid.scheduler.state.failures import BAG_WORKERS, STREAK
from deskgrid.scheduler.state.quarantine import FIRST_QUARANTINE_S, LONGEST_QUARANTINE_S


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
        # The workers up that get nothing new because somebody drains their PCs.
        self.drained: set[str] = set()
        # By worker: whose work failed in a row.
        self.in_a_row: dict[str, list[str]] = {}
        # By bag: how many of its tasks were done when one failed last, and where they have failed since.
        self.failed_on: dict[int, tuple[int, set[str]]] = {}

    def failed(self, worker: str, bag: int, bag_done: int, up: set[str]) -> bool:
        """A task failed; whether its bag is to blame."""
        done, where = self.failed_on.get(bag, (bag_done, set()))
        if done != bag_done:
            where = set()
        if len(where) < BAG_WORKERS:
            where.add(worker)
        self.failed_on[bag] = bag_done, where
        return len(where) >= min(BAG_WORKERS, max(2, len(up)))

    def fails(self, worker: str, owner: str, up: set[str], now: float) -> None:
        """A crash that nothing else explains, a silence, or a start that failed."""
        self.in_a_row.setdefault(worker, []).append(owner)
        stay = self.quarantined.get(worker)
        enough = len(self.in_a_row[worker]) >= STREAK and len(set(self.in_a_row[worker])) > 1
        if enough and (stay is None or stay.tried):
            self.quarantined.pop(worker, None)
            if up - {worker} - set(self.quarantined) - self.drained:
                lasts = FIRST_QUARANTINE_S if stay is None else min(2 * stay.lasts, LONGEST_QUARANTINE_S)
                self.quarantined[worker] = Pause(now + lasts, lasts)

    def works(self, worker: str) -> None:
        self.quarantined.pop(worker, None)
        self.in_a_row.pop(worker, None)

    def forget_bag(self, bag: int) -> None:
        self.failed_on.pop(bag, None)

    def look(self, up: set[str], now: float) -> None:
        alone = up <= set(self.quarantined) | self.drained
        for name in up & set(self.quarantined):
            stay = self.quarantined[name]
            stay.tried = stay.tried or alone or stay.until <= now
