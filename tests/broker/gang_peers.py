"""Bare workers that make ranks of gangs, message by message, and the bags for them."""

from typing import Any

from deskgrid import wire
from tests.broker.office import Office
from tests.peers import BareWorker, Line


def gang_bag(office: Office, ranks: int, tasks: int = 1, runtime: float = 100.0, **options: Any) -> str:
    """A bag of gangs of so many ranks."""
    chosen = wire.TaskOptions(ranks=(ranks, ranks), gang=True, **options)
    return office.client().submit([b"%d" % item for item in range(tasks)], runtime=runtime, options=chosen)


class RankWorker(BareWorker):
    """A bare worker that other PCs can reach. ``prepared``: what it was asked to prepare last."""

    prepared: wire.PrepareRanks

    def __init__(self, line: Line, name: str, session: str | None) -> None:
        super().__init__(line, name, session)
        self._kept: list[wire.Message] = []

    @property
    def ref(self) -> wire.Ref:
        """The attempt that it was asked to prepare."""
        (work,) = self.prepared.work
        return wire.Ref(work.task, work.number)

    @property
    def ranks(self) -> list[int]:
        """Its ranks of that."""
        return sorted({row.rank for row in self.prepared.ranks})

    def next(self, kind: type[Any]) -> Any:
        """The next message of a kind; others are kept for later."""
        for place, kept in enumerate(self._kept):
            if isinstance(kept, kind):
                return self._kept.pop(place)
        while not isinstance(message := self.receive(), kind):
            self._kept.append(message)
        return message

    def prepare(self) -> wire.PrepareRanks:
        """What it is asked to prepare."""
        self.prepared = self.next(wire.PrepareRanks)
        return self.prepared

    def ready(self, port: int = 0) -> None:
        """Say that its ranks are ready."""
        self.send(wire.RanksReady(*self.ref, port))

    def running(self, elapsed: float | None = 1.0) -> tuple[wire.Running, ...]:
        """Its ranks, for an introduction."""
        return tuple([wire.Running(*self.ref, row.slot, elapsed, row.rank) for row in self.prepared.ranks])

    def end(
        self, rank: int, payload: bytes = b"", outcome: wire.Outcome = wire.Outcome.DONE, elapsed: float = 0.5
    ) -> wire.RanksTaken:
        """Deliver the result of a rank; the broker's receipt."""
        said = b"out of %d" % rank, b""
        result = wire.RankResult(*self.ref, int(outcome), elapsed, wire.payload_of(payload), *said, rank)
        self.send(wire.RanksEnded((result,)))
        taken = self.next(wire.RanksTaken)
        assert isinstance(taken, wire.RanksTaken)
        return taken

    def fail(self, rank: int, kind: str, elapsed: float = 0.5, outcome: wire.Outcome = wire.Outcome.ERROR) -> None:
        """Deliver the failure of a rank."""
        self.end(rank, wire.Failure(kind, f"because of {rank}", f"trace of {rank}").packed(), outcome, elapsed)

    def stopped(self) -> None:
        """Be told to stop, and do it."""
        stop = self.next(wire.Stop)
        self.send(wire.Returned(stop.attempts))


def rank_worker(office: Office, name: str = "pc1", session: str | None = None, **changes: Any) -> RankWorker:
    """A worker of one slot that has joined, but for ``changes``."""
    line = office.worker(name).line
    worker = RankWorker(line, name, session)
    worker.join(**{"address": f"{name}.lab"} | changes)
    return worker


def asked_to_prepare(office: Office, ranks: int, **options: Any) -> tuple[str, list[RankWorker]]:
    """A bag of one gang, with one rank on each of some workers that were just told of it."""
    workers = [rank_worker(office, f"pc{number}", mpi=options.get("mpi", False)) for number in range(ranks)]
    settled_in(office)
    bag = gang_bag(office, ranks, **options)
    for worker in workers:
        worker.prepare()
    return bag, workers


def begun(office: Office, ranks: int, **options: Any) -> tuple[str, list[RankWorker]]:
    """A bag of one gang that runs, with one rank on each of some workers, by rank."""
    bag, workers = asked_to_prepare(office, ranks, **options)
    workers.sort(key=lambda worker: worker.ranks)
    for worker in workers:
        worker.ready(4711 if worker is workers[0] else 0)
    for worker in workers:
        worker.next(wire.StartRanks)
    office.now += 4.0
    return bag, workers


def settled_in(office: Office) -> None:
    """Workers are not new to the scheduler any more."""
    office.now += 5.0
    for _ in range(3):
        office.settle()
