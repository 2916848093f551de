"""A scripted run for faults in what one submitter can occupy: it succeeds, or raises."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

from deskgrid import wire
from deskgrid.broker.model import quotas
from deskgrid.broker.work import operations
from deskgrid.scheduler.prediction.kept import KEPT
from deskgrid.scheduler.prediction.runtimes import Features, Runtimes
from deskgrid.worker.run.templates import TEMPLATE_BYTES, Remembered
from tests.broker.office import Office
from tests.grid.witness import expect


def crowd(seed: int, home: Path) -> None:
    """Many batches, bags after one, functions and templates: each has its bound, and costs only its owner."""
    _batches(home / "batches")
    _followers(home / "followers")
    runtimes = Runtimes()
    for owner, many in (("few", 3), ("many", KEPT)):
        for place in range(many):
            runtimes.observe(Features("", f"{owner}\n{place}"), 1.0)
    expect(runtimes.knows(Features("", "few\n0")), "the functions of one owner pushed out those of another")
    known = Remembered(TEMPLATE_BYTES + 10)
    known.add("needed", 10)
    gone = known.add("new", 10, needed={"needed"})
    expect(gone == [], "forgotten although a job needs it: {}", gone)


@contextmanager
def _limited(module: ModuleType, name: str, value: int) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _batches(home: Path) -> None:
    with _limited(quotas, "BATCHES_LIMIT", 6), closing(Office(home)) as office:
        client = office.client()
        client.submit([b"0"])
        answers = [
            client.answer_to(client.batch(bag, [b"0"], first=item, last=False))
            for item in range(4)
            for bag in ("one", "other")
        ]
        taken = sum(isinstance(answer, wire.Accepted) for answer in answers)
        expect(taken == 6, "of 8 batches, of which one can be joined, {} were taken", taken)


def _followers(home: Path) -> None:
    # Each slice has a turn of its own, so that the broker can be killed before the next one.
    with _limited(operations, "TURN_UNITS", 1), closing(Office(home)) as office:
        client = office.client()
        first = client.submit([b"0"])
        last = client.submit([b"1"], options=wire.TaskOptions(after=(first,)))
        for request, what in enumerate(("cancel", "forget"), start=1):
            client.send(wire.Ask(request, what, wire.pack_record({"bag": first})))
        while first in office.sessions.state.book.by_id:
            office.settle()
    with closing(Office(home)) as office:
        worker = office.worker()
        worker.join()
        for _ in range(5):
            office.settle()
        cancelled = office.sessions.state.scheduler.counters.cancelled or office.bag(last).complete
        expect(bool(cancelled), "a bag after one that failed runs, because that one was forgotten")
