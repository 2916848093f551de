"""A bag of a million items through a live server: a measurement, printed with ``pytest -s``, and no tight claim."""

import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from random import Random

import pytest

from deskgrid import wire
from tests.live import BrokerProcess
from tests.peers import Client, SocketLine

ITEMS = 1_000_000
# Batches on their way, as of the real client.
WINDOW = 8
# What a waiting task may cost the broker, bytes. It costs 2 to 3 % of that: a runtime, a state, a place in the queue.
PER_TASK = 1000

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")]


def memory(pid: int) -> int:
    """Bytes of a process that are in memory now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def submit(client: Client, bag: str, dice: Random | None) -> None:
    """A bag in batches of full size, several at a time; with ``dice``, each item has a runtime of its own."""
    waiting: deque[int] = deque()
    for first in range(0, ITEMS, wire.BATCH_ROWS):
        items = range(first, first + wire.BATCH_ROWS)
        runtimes = () if dice is None else tuple(dice.uniform(1.0, 100.0) for _ in items)
        last = items.stop >= ITEMS
        batch = client.batch(bag, [b"%d" % item for item in items], first=first, runtimes=runtimes, last=last)
        waiting.append(batch.request)
        client.send(batch)
        while waiting and (last or len(waiting) == WINDOW):
            assert client.expect(wire.Accepted).request == waiting.popleft()


@pytest.mark.parametrize("runtimes", ["one for all", "one for each"])
def test_a_bag_of_a_million_items_is_taken_in_seconds(tmp_path: Path, runtimes: str) -> None:
    broker = BrokerProcess(tmp_path)
    try:
        client = Client(SocketLine(broker.line("client")))
        client.submit([b"0"])  # so that what is loaded at the first bag is loaded
        before, began = memory(broker.pid), time.perf_counter()
        submit(client, "million", None if runtimes == "one for all" else Random(7))
        seconds, grown = time.perf_counter() - began, memory(broker.pid) - before
        asked = time.perf_counter()
        row = client.ask("progress", bag="million")
        answered = time.perf_counter() - asked
        explained = time.perf_counter()
        client.ask("explain", bag="million")
        print(
            json.dumps(
                {
                    "items": ITEMS,
                    "runtimes": runtimes,
                    "seconds": round(seconds, 2),
                    "per_s": round(ITEMS / seconds),
                    "bytes_per_task": round(grown / ITEMS, 1),
                    "journal_bytes_per_task": round(
                        sum(path.stat().st_size for path in tmp_path.glob("journal*")) / ITEMS, 1
                    ),
                    "progress_ms": round(answered * 1000, 1),
                    "explain_ms": round((time.perf_counter() - explained) * 1000, 1),
                }
            )
        )
        client.close()
    finally:
        broker.stop()
    assert (row["total"], row["waiting"], row["closed"]) == (ITEMS, ITEMS, True)
    assert grown / ITEMS < PER_TASK
