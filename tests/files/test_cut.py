"""A broker or a worker that is killed in the middle of a transfer: nothing is lost, and little travels twice."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.port.sockets import Sockets
from deskgrid.client.grid import Grid
from deskgrid.client.link import Link
from tests.chaos.proxy import Proxy
from tests.files.fakes import content
from tests.live import ROOT, WORKER, BrokerProcess, live_grid
from tests.waiting import PATIENCE_S, eventually

PARTS = 12
BIG = os.urandom(PARTS * wire.PART_BYTES)


@pytest.fixture
def big(tmp_path: Path) -> str:
    path = tmp_path / "big"
    path.write_bytes(BIG)
    return str(path)


@contextmanager
def worker_of(line: Any, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    own = ["--join", str(line), "--home", str(home), "--slots", "1"]
    argv = [sys.executable, "-m", "deskgrid.cli", *WORKER, *own]
    with subprocess.Popen([*argv, "--until-stdin-closes"], cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


class Uploads:
    """The parts that programs of this process send. Before the one in the middle: ``at_half()``, and ``gate`` opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_half: Callable[[], object] = bool) -> None:
        self.sent: Counter[bytes] = Counter()
        self.gate = threading.Event()
        send = Link.send

        def noted(link: Link, message: Any, *args: Any, **more: Any) -> None:
            if isinstance(message, wire.Part):
                self.sent[message.digest] += 1
                if self.sent.total() == PARTS // 2:
                    at_half()
                    self.gate.set()
            send(link, message, *args, **more)

        monkeypatch.setattr(Link, "send", noted)


@contextmanager
def submitting(grid: Grid, big: str) -> Iterator[list[Any]]:
    """Submit a bag with a large file meanwhile; the list has the bag afterwards."""
    bags: list[Any] = []
    thread = threading.Thread(target=lambda: bags.append(grid.command(["true"], [""], inputs=[big], outputs=["big"])))
    thread.start()
    yield bags
    thread.join(PATIENCE_S)
    assert len(bags) == 1


def test_an_upload_whose_connection_was_cut_repeats_one_part_at_most(
    tmp_path: Path, big: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_grid(tmp_path / "home", workers=1, durability="process") as live:
        line = live.broker.line("client")
        cable = Proxy(line)
        # However late this thread is, the part in the middle is on its way when the cable is cut.
        uploads = Uploads(monkeypatch, cable.stall)
        try:
            with Grid(str(cable.dialled(line))) as grid:
                with submitting(grid, big) as bags:
                    assert uploads.gate.wait(PATIENCE_S)
                    cable.cut()
                    cable.mend()
                assert uploads.sent.total() > PARTS + 1, "the cut came in the middle"
                assert cable.carried < (PARTS + 1.1) * wire.PART_BYTES, "each part, and at most one part again"
                bags[0].fetch(tmp_path / "to", 0)
        finally:
            cable.close()
    assert content(tmp_path / "to") == {"big": BIG}


def test_a_broker_that_is_killed_in_mid_upload_has_what_it_confirmed(
    tmp_path: Path, big: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = Uploads(monkeypatch)
    broker = BrokerProcess(tmp_path / "home")
    with Grid(str(broker.line("client"))) as grid:
        with submitting(grid, big) as bags:
            assert uploads.gate.wait(PATIENCE_S)
            os.kill(broker.pid, signal.SIGKILL)
            broker.outlive()
            broker = BrokerProcess(tmp_path / "home", broker.address)
        try:
            assert uploads.sent.total() <= PARTS + 1 + 1, "each part, the list of files, and one part again"
            with worker_of(broker.line("worker"), tmp_path / "pc"):
                bags[0].fetch(tmp_path / "to", 0)
        finally:
            grid.shutdown()
            broker.stop()
    assert content(tmp_path / "to") == {"big": BIG}


def parts_sent(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """The parts that brokers in this process send."""
    sent: Counter[bytes] = Counter()
    send = Sockets.send

    def noted(self: Sockets, peer: bytes, parts: Any) -> bool:
        if len(parts) == 2 and len(parts[1]) == wire.PART_BYTES:
            sent[wire.sha256_of(parts[1]).encode()] += 1
        return send(self, peer, parts)

    monkeypatch.setattr(Sockets, "send", noted)
    return sent


def test_a_worker_that_is_killed_in_mid_download_goes_on_where_it_stopped(
    tmp_path: Path, big: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = parts_sent(monkeypatch)
    with live_grid(tmp_path / "home", durability="process", lease_s=1.0) as live:
        line, home = live.broker.line("worker"), tmp_path / "pc"
        with Grid(live.broker.ready.client_line) as grid, worker_of(line, home) as first:
            bag = grid.command(["cp", "big", "out"], [""], runtime=1, inputs=[big], outputs=["out"])
            assert eventually(lambda: sent.total() >= PARTS // 2, PATIENCE_S)
            first.kill()
            first.wait()
            before = sent.total()
            with worker_of(line, home):
                bag.fetch(tmp_path / "to", 0)
            # Those that were on their way when it was killed, and then the client's fetch.
            assert sent.total() <= PARTS + min(4, before) + PARTS
    assert content(tmp_path / "to") == {"out": BIG}


def test_a_broker_that_is_killed_while_a_task_leaves_files_loses_none(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys, time\n"
        f"pathlib.Path('out').write_bytes(os.urandom({PARTS} * {wire.PART_BYTES}))\n"
        "import hashlib; print(hashlib.sha256(pathlib.Path('out').read_bytes()).hexdigest())\n"
    )
    broker = BrokerProcess(tmp_path / "home", lease_s=20.0)
    values = tmp_path / "home" / "values"
    with worker_of(broker.line("worker"), tmp_path / "pc"), Grid(str(broker.line("client"))) as grid:
        bag = grid.command([sys.executable, "-c", script], [""], runtime=60, outputs=["out"])
        assert eventually(lambda: len([*values.iterdir()]) >= 3, PATIENCE_S)
        os.kill(broker.pid, signal.SIGKILL)
        broker.outlive()
        broker = BrokerProcess(tmp_path / "home", broker.address, lease_s=20.0)
        try:
            (printed,) = bag.results()
            (path,) = bag.fetch(tmp_path / "to", 0)
            assert wire.sha256_of(path.read_bytes()) == printed.strip()
        finally:
            grid.shutdown()
            broker.stop()
