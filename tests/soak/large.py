"""Operations on a million tasks, and on ten, and on a full house: how long others wait for an answer meanwhile.

python -m tests.soak.large --tasks 10000000       some minutes

A real broker in a process of its own, on a real disk. Another client, with a credential of its own, asks for a sign of
life all the time, and how long that takes is what counts.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fakes import FakeWorkers
from deskgrid import wire
from deskgrid.wire.joinline import JoinLine, parse_join_line
from tests.live import BrokerProcess
from tests.memory import resident
from tests.peers import BareWorker, Client, SocketLine, enrolled

# What another client may have to wait: 99 times in a hundred, and at worst. Seconds.
P99_S = 0.05
# The same while a thousand PCs keep the broker busy: a turn of its loop takes thirty milliseconds then.
BUSY_P99_S = 0.1
WORST_S = 0.5
# Of fewer answers the worst is the 99th of a hundred.
ENOUGH = 200
# Between two of its questions. Seconds.
PAUSE_S = 0.002
# The memory that the broker may take for such an operation, whatever the size of the bag. Bytes.
MEMORY = 256 * 2**20
# Batches on their way, as of the real client.
WINDOW = 8
# A full house: bags of one submitter, as many as there may be, and PCs. How often its status is asked for, and how long
# 99 of a hundred answers may take; seconds.
BAGS, PCS = 10_000, 1_000
LOOKS = 300
STATUS_P99_S = 0.2


@dataclass(slots=True)
class Figures:
    """``waits``: of another client, for each answer. ``grown``: bytes by which the broker's memory grew at most.

    ``looks``: how long it took to be told the status, each time. ``limit``: what 99 of 100 answers may take, seconds.
    """

    what: str
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    grown: int = 0
    looks: list[float] = field(default_factory=list)
    limit: float = P99_S

    @property
    def p99(self) -> float:
        """Seconds within which 99 of 100 answers came."""
        return p99(self.waits)

    def __str__(self) -> str:
        said = f"{self.what}: {self.seconds:.1f} s; another's ping: {_summary(self.waits)}"
        looks = f"; status: {_summary(self.looks)}" if self.looks else ""
        return f"{said}{looks}; memory +{self.grown / 2**20:.0f} MiB"


def p99(seconds: Sequence[float]) -> float:
    """What 99 of a hundred are within."""
    return sorted(seconds)[len(seconds) * 99 // 100]


def _summary(seconds: Sequence[float]) -> str:
    return f"p99 {p99(seconds) * 1000:.1f} ms, worst {max(seconds) * 1000:.0f} ms of {len(seconds)}"


@contextmanager
def watched(broker: BrokerProcess, what: str) -> Iterator[Figures]:
    """Ask for a sign of life while the block goes on, and look at the broker's memory."""
    figures, stop, before = Figures(what), threading.Event(), resident(broker.pid)
    pinger = Client(SocketLine(admin_line(broker)))

    def ping() -> None:
        while not stop.wait(PAUSE_S):
            asked = time.perf_counter()
            assert pinger.ask("ping") == {}
            figures.waits.append(time.perf_counter() - asked)
            figures.grown = max(figures.grown, resident(broker.pid) - before)

    thread = threading.Thread(target=ping, name="pinger")
    thread.start()
    began = time.perf_counter()
    try:
        yield figures
    finally:
        figures.seconds = time.perf_counter() - began
        stop.set()
        thread.join()
        pinger.close()


def admin_line(broker: BrokerProcess) -> JoinLine:
    """Of whoever may do everything."""
    return parse_join_line((broker.home / "admin.join").read_text(encoding="ascii").strip(), "client")


def submit(client: Client, bag: str, tasks: int, dice: Random | None = None, runtime: float | None = 1.0) -> None:
    """A bag in batches of full size, several at a time; with ``dice``, each item has a runtime of its own."""
    waiting: deque[int] = deque()
    for first in range(0, tasks, wire.BATCH_ROWS):
        items = range(first, min(tasks, first + wire.BATCH_ROWS))
        runtimes = () if dice is None else tuple(dice.uniform(1.0, 100.0) for _ in items)
        last = items.stop >= tasks
        payloads = [b"%d" % item for item in items]
        batch = client.batch(
            bag, payloads, first=first, runtimes=runtimes, runtime=None if dice else runtime, last=last
        )
        waiting.append(batch.request)
        client.send(batch)
        while waiting and (last or len(waiting) == WINDOW):
            assert client.expect(wire.Accepted).request == waiting.popleft()


def patient(broker: BrokerProcess) -> Client:
    """A client that has sent its template."""
    client = Client(SocketLine(broker.line("client")))
    client.submit([b"0"])
    return client


def cancelled(broker: BrokerProcess, tasks: int, *, distinct: bool = False) -> Figures:
    """A bag of so many tasks is cancelled; ``distinct``: each with a runtime of its own."""
    client, bag = patient(broker), f"cancel-{distinct}"
    submit(client, bag, tasks, Random(7) if distinct else None)
    with watched(broker, f"cancel of {tasks:,} tasks{', each of its own runtime' if distinct else ''}") as figures:
        answer = cancel_all(client, bag)
    assert answer.body == f'{{"cancelled": {tasks}}}'
    client.close()
    return figures


def cancel_all(client: Client, bag: str) -> wire.Answer:
    """Cancel what is left of a bag; with millions of ranges of items this takes more than a minute."""
    client.send(wire.Ask(client.number(), "cancel", wire.pack_record({"bag": bag})))
    answer = client.receive(600.0)
    assert isinstance(answer, wire.Answer), answer
    return answer


def every_second(broker: BrokerProcess, tasks: int) -> Figures:
    """Every second item of a bag without predictions is cancelled by its number.

    Then the first PC comes, for whose window the others are too long, and another, whose first result changes the
    predictions of all.
    """
    client, bag = patient(broker), "every-second"
    submit(client, bag, tasks, runtime=None)
    line = broker.line("worker")
    short, long = (BareWorker(SocketLine(enrolled(line, name)), name) for name in ("short", "long"))
    with watched(broker, f"every second of {tasks:,} tasks cancelled, the others predicted anew") as figures:
        for start in range(1, tasks, 2 * wire.BATCH_ROWS):
            client.ask("cancel", bag=bag, items=[*range(start, min(tasks, start + 2 * wire.BATCH_ROWS), 2)])
        short.join(uptime=30.0)
        long.join()
        (work,) = long.work()
        long.finish(work, elapsed=5.0)
        long.work()  # there is more when all have their new predictions
        cancel_all(client, bag)
    for peer in (client, short, long):
        peer.close()
    return figures


def forgotten(broker: BrokerProcess, bag: str) -> Figures:
    """A bag that is complete is forgotten, and its rows are gone."""
    client = patient(broker)
    with watched(broker, f"forgetting {bag}") as figures:
        assert client.ask("forget", bag=bag) == {}
        assert client.failed("progress", bag=bag) == f"no bag {bag}: see deskgrid bags"
        # Orders of one credential are carried out one after the other: this one behind the rows.
        client.ask("cancel", bag=client.submit([b"0"]))
    client.close()
    return figures


def predicted(broker: BrokerProcess, tasks: int, predictions: int) -> Figures:
    """So many of the tasks of a bag of one runtime get predictions of their own, in pages, in any order."""
    client, dice, bag = patient(broker), Random(5), "predict"
    submit(client, bag, tasks)
    items = dice.sample(range(tasks), predictions)
    with watched(broker, f"predictions for {predictions:,} of {tasks:,} tasks") as figures:
        for start in range(0, predictions, wire.BATCH_ROWS):
            part = items[start : start + wire.BATCH_ROWS]
            assert client.ask("runtimes", bag=bag, items=part, runtimes=[dice.uniform(1, 100) for _ in part]) == {}
    client.ask("cancel", bag=bag)
    client.close()
    return figures


def busy(broker: BrokerProcess, tasks: int, pcs: int) -> Figures:
    """So many PCs end tasks that take no time, as fast as they get them."""
    client = patient(broker)
    submit(client, "busy", tasks, Random(3))
    what = f"{pcs:,} PCs that end {tasks:,} tasks"
    with FakeWorkers(broker.home, pcs) as workers, watched(broker, what) as figures:
        figures.limit = BUSY_P99_S
        while workers.taken < tasks:
            workers.turn(0.1)
    client.close()
    return figures


def full_house(broker: BrokerProcess, bags: int, pcs: int) -> Figures:
    """The status of so many bags, half of which are complete, with so many PCs up."""
    client, other, stop = patient(broker), Client(SocketLine(admin_line(broker))), threading.Event()
    document: dict[str, Any] = {}
    with FakeWorkers(broker.home, pcs) as workers:

        def beat() -> None:
            while not stop.is_set():
                workers.turn(0.1)

        for number in range(bags // 2):
            client.submit([b"0"], name=f"short {number}")
        while workers.taken < bags // 2:
            workers.turn(0.1)
        thread = threading.Thread(target=beat, name="PCs")
        thread.start()
        try:
            for number in range(bags // 2):  # of another, because one submitter may have so many and no more
                other.submit([b"0"], name=f"open {number}", last=False)
            with watched(broker, f"status of {bags:,} bags and {pcs:,} PCs") as figures:
                for _ in range(LOOKS):
                    asked = time.perf_counter()
                    document = client.ask("status")
                    figures.looks.append(time.perf_counter() - asked)
        finally:
            stop.set()
            thread.join()
    assert document["totals"]["workers_up"] == pcs
    assert document["totals"]["bags_under_way"] + document["totals"]["bags_ended"] >= bags
    client.close()
    other.close()
    return figures


def check(figures: Sequence[Figures], slack: float = 1.0) -> list[str]:
    """What is not as it should be; ``slack``: how much longer it may take on a busy machine."""
    many = [each for each in figures if len(each.waits) >= ENOUGH]
    wrong = [str(each) for each in figures if max(each.waits) > WORST_S * slack]
    wrong += [str(each) for each in many if each.p99 > each.limit * slack]
    wrong += [str(each) for each in figures if each.looks and p99(each.looks) > STATUS_P99_S * slack]
    return wrong + [str(each) for each in figures if each.grown > MEMORY]


def main() -> int:
    """Print the figures; 1 when they are not as they should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.large", description="Operations on very large bags.")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--bags", type=int, default=BAGS)
    parser.add_argument("--pcs", type=int, default=PCS)
    asked = parser.parse_args()
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="deskgrid-large-") as home:
        broker = BrokerProcess(Path(home))
        try:
            runs: tuple[Callable[[], Figures], ...] = (
                lambda: cancelled(broker, asked.tasks),
                lambda: forgotten(broker, "cancel-False"),
                lambda: cancelled(broker, asked.tasks, distinct=True),
                lambda: every_second(broker, asked.tasks),
                lambda: predicted(broker, min(asked.tasks, 1_000_000), min(asked.tasks, 1_000_000) // 2),
                lambda: busy(broker, min(asked.tasks, 50_000), asked.pcs),
                lambda: full_house(broker, asked.bags, asked.pcs),
            )
            for run in runs:
                found.append(run())
                print(found[-1], flush=True)
        finally:
            broker.stop()
    wrong = check(found)
    print(*(f"too slow, or too large: {line}" for line in wrong), f"{len(found)} operations", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
