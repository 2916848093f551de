"""A model of who rests: the rules at the head of `deskgrid.scheduler.state.quarantine`, said in another way."""

from dataclasses import dataclass

from deskgrid.scheduler.state.quarantine import BAG_WORKERS, FIRST_QUARANTINE_S, LONGEST_QUARANTINE_S, STREAK


@dataclass(slots=True)
class Pause:
    """What the model knows of a worker that rests."""

    until: float
    lasts: float
    tried: bool = False


class Health:
    """Who rests, by the rules at the head of `deskgrid.scheduler.state.quarantine`, said in another way."""

    def __init__(self) -> None:
        self.rests: dict[str, Pause] = {}
        self.in_a_row: dict[str, int] = {}
        self.crashed_on: dict[int, set[str]] = {}

    def crashes(self, worker: str, bag: int, bag_works: bool, up: set[str], now: float) -> None:
        where = self.crashed_on.pop(bag, set()) if bag_works else self.crashed_on.setdefault(bag, set())
        if not bag_works:
            where.add(worker)
            if len(where) >= BAG_WORKERS:
                return
        self.fails(worker, up, now)

    def fails(self, worker: str, up: set[str], now: float) -> None:
        """A crash that nothing else explains, or a silence."""
        self.in_a_row[worker] = self.in_a_row.get(worker, 0) + 1
        rest = self.rests.get(worker)
        if self.in_a_row[worker] >= STREAK and (rest is None or rest.tried):
            self.rests.pop(worker, None)
            if up - {worker} - set(self.rests):
                lasts = FIRST_QUARANTINE_S if rest is None else min(2 * rest.lasts, LONGEST_QUARANTINE_S)
                self.rests[worker] = Pause(now + lasts, lasts)

    def works(self, worker: str) -> None:
        self.rests.pop(worker, None)
        self.in_a_row.pop(worker, None)

    def forget_bag(self, bag: int) -> None:
        self.crashed_on.pop(bag, None)

    def look(self, up: set[str], now: float) -> None:
        alone = up <= set(self.rests)
        for name in up & set(self.rests):
            rest = self.rests[name]
            rest.tried = rest.tried or alone or rest.until <= now
