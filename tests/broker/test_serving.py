"""The live server over real sockets: restarts, large results, windows that change, and a clean stop."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.broker import loop as loop_module
from deskgrid.broker.loop import Loop
from deskgrid.broker.store.journal import Journal
from tests.live import BrokerProcess, LiveGrid, live_grid
from tests.peers import BareWorker, Client, SocketLine, enrolled
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path) as started:
        yield started


# --- restarts --------------------------------------------------------------------------------------------------------


class Halves:
    """A bag of which one half is done before something happens to the broker, and the other half after it."""

    def __init__(self, client: Client, worker: BareWorker) -> None:
        worker.join(slots=5)
        self.bag = client.submit([b"%d" % n for n in range(10)], runtime=60.0)
        before = worker.work(5)
        worker.finish(*before, payload=b"before")
        self.client_saw = client.watch(self.bag)
        self.held = worker.work(5)  # begun, and not done when it happens

    def finish(self, client: Client, worker: BareWorker) -> None:
        """The worker comes back with what it held; each result is there once."""
        held = tuple(wire.Running(work.task, work.number, work.slot, 1.0) for work in self.held)
        worker.join(slots=5, running=held)
        worker.finish(*self.held, payload=b"after")
        worker.finish(*self.held, payload=b"again")
        results = client.results(self.bag)
        assert sorted(result.item for result in results) == list(range(10))
        assert sorted(bytes(result.payload) for result in results) == [b"after"] * 5 + [b"before"] * 5
        rest = wire.results_in(client.watch(self.bag, self.client_saw.after))
        assert {result.payload for result in rest} == {b"after"}
        counters = client.ask("status")["counters"]
        assert (counters["adopted"], counters["attempts"], counters["losses"]) == (5, 0, 0)


def test_a_broker_started_again_on_its_home_carries_on(grid: LiveGrid) -> None:
    worker = grid.bare_worker()
    halves = Halves(grid.client(), worker)
    grid.restart()
    halves.finish(grid.client(), grid.bare_worker(worker.name, worker.session))


def test_a_broker_that_was_killed_carries_on(tmp_path: Path) -> None:
    first = BrokerProcess(tmp_path)
    try:
        pc = enrolled(first.line("worker"), "bare")
        client, worker = Client(SocketLine(first.line("client"))), BareWorker(SocketLine(pc))
        halves = Halves(client, worker)
    finally:
        first.kill()
    client.close()
    worker.close()
    second = BrokerProcess(tmp_path, first.address)
    try:
        client = Client(SocketLine(second.line("client")))
        worker = BareWorker(SocketLine(pc), worker.name, worker.session)
        halves.finish(client, worker)
        client.close()
        worker.close()
    finally:
        second.stop()


def test_a_stopping_broker_says_goodbye_to_everyone(grid: LiveGrid) -> None:
    worker, client, stranger = grid.bare_worker(), grid.client(), grid.client(greet=False)
    worker.join()
    grid.broker.stop()
    for peer in (worker, client):
        assert "start it again with the same home to continue" in peer.expect(wire.Goodbye).reason
    assert stranger.line.receive(0.0) is None


def test_peers_are_asked_who_they_are_when_the_broker_is_back(grid: LiveGrid) -> None:
    worker, client = grid.bare_worker(), grid.client()
    worker.join()
    grid.restart()
    for peer, message in ((worker, wire.Heartbeat(None, ())), (client, wire.Watch(1, "b", 0))):
        peer.expect(wire.Goodbye)
        peer.send(message)
        peer.expect(wire.Rejoin)
    worker.join()
    assert [row["state"] for row in grid.client().ask("status")["workers"]] == ["up"]


def test_what_a_client_was_told_is_accepted_survives(grid: LiveGrid) -> None:
    client = grid.client()
    bags = [client.submit([b"0", b"1"], name=f"bag {n}") for n in range(5)]
    open_bag = client.submit([b"0"], last=False)
    grid.restart()
    client = grid.client()
    rows = client.ask("bags")["bags"]
    assert [(row["bag"], row["total"], row["closed"]) for row in rows] == [
        *((bag, 2, True) for bag in bags),
        (open_bag, 1, False),
    ]


# --- workers that come and go ----------------------------------------------------------------------------------------


def test_a_worker_that_vanishes_is_lost_when_its_lease_ends_and_its_work_is_made_again(tmp_path: Path) -> None:
    with live_grid(tmp_path, lease_s=0.5) as grid:
        client, vanishing, _ = grid.client(), grid.bare_worker("vanishing"), grid.pc_line("other")
        vanishing.join()
        bag = client.submit([b"0"], runtime=60.0)
        (first,) = vanishing.work()
        vanishing.close()
        other = grid.bare_worker("other")
        other.join()
        # It has a lease, too: it must be heard while it waits for that of the other to end.
        while not other.line.receive(0.1):
            other.send(wire.Heartbeat(None, ()))
        assert client.ask("worker", name="other")["state"] == "up"
        status = client.ask("status", rows=False)
        assert (status["totals"]["workers_up"], status["totals"]["workers_lost"]) == (1, 0)
        assert (status["counters"]["losses"], status["counters"]["kills"]) == (1, 1)
        assert client.ask("progress", bag=bag)["running"] == 1
        assert first.task == 0


def test_two_workers_of_the_same_name_are_told_apart(grid: LiveGrid) -> None:
    names = [grid.bare_worker("pc1").join().name for _ in range(3)]
    assert names == ["pc1", "pc1~2", "pc1~3"]


# --- large results ---------------------------------------------------------------------------------------------------


def test_a_result_of_the_largest_size_passes(grid: LiveGrid) -> None:
    client, worker = grid.client(), grid.bare_worker()
    worker.join(slots=2)
    bag = client.submit([b"large", b"small"])
    large, small = worker.work(2)
    payload = os.urandom(1 << 20) * (wire.PAYLOAD_LIMIT >> 20)
    assert len(payload) == wire.PAYLOAD_LIMIT
    worker.finish(small, payload=b"small")
    worker.finish(large, payload=payload)
    outcomes = client.watch(bag)
    # The next would make the message too large.
    assert [result.payload for result in wire.results_in(outcomes)] == [b"small"]
    assert wire.results_in(client.watch(bag, outcomes.after))[0].payload == payload


# --- planned windows from the broker's home --------------------------------------------------------------------------


def test_a_change_of_the_windows_file_reaches_joined_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_module, "FILES_S", 0.01)
    monkeypatch.setattr(loop_module, "TICK_S", 0.02)
    caplog.set_level("INFO", "deskgrid.broker")
    file = tmp_path / "windows.toml"
    with live_grid(tmp_path) as grid:
        lab, other = grid.bare_worker("lab3-07"), grid.bare_worker("office")
        assert (lab.join().windows, other.join().windows) == (None, None)
        file.write_text('["lab3-*"]\nwindows = ["daily 18:00-08:00"]\n')
        assert lab.expect(wire.Planned).windows == '{"windows": ["daily 18:00-08:00"]}'
        assert eventually(lambda: "in_force='[lab3-*] daily 18:00-08:00 (local time)'" in caplog.text, PATIENCE_S)
        file.write_text('["lab3-*"]\nwindows = ["daily 25:00-08:00"]\n')
        assert eventually(lambda: "what it said before still counts" in caplog.text, PATIENCE_S)
        late = grid.bare_worker("lab3-08")
        assert late.join().windows == '{"windows": ["daily 18:00-08:00"]}'
        file.write_text('["lab3-*"]\nwindows = ["daily 19:00-08:00"]\n')
        for worker in (lab, late):
            assert worker.expect(wire.Planned).windows == '{"windows": ["daily 19:00-08:00"]}'
        file.unlink()
        assert lab.expect(wire.Planned).windows is None
        assert other.line.receive(0.0) is None


# --- the machine's clock ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0])
def test_it_follows_a_clock_that_jumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, jump_s: float
) -> None:
    monkeypatch.setattr(loop_module, "FILES_S", 0.01)
    caplog.set_level("INFO", "deskgrid.broker")
    with live_grid(tmp_path) as grid:
        worker, client = grid.bare_worker(), grid.client()
        worker.join()
        client.submit([b"0"], runtime=1.0)
        before = time.time()
        monkeypatch.setattr(Loop, "_posix", lambda loop: time.time() + jump_s)
        jumps = re.compile(r"clock-jumped by_s=(\S+)")
        assert eventually(lambda: bool(jumps.search(caplog.text)), PATIENCE_S)
        assert [float(by) for by in jumps.findall(caplog.text)] == [pytest.approx(jump_s, abs=5.0)]
        client.submit([b"0"], runtime=1.0)
        ages = [bag["age_s"] for bag in client.ask("status")["bags"]]
    assert caplog.text.count("clock-jumped") == 1
    assert min(ages) < 10.0
    assert max(ages) == pytest.approx(max(0.0, jump_s), abs=10.0)
    with closing(Journal(tmp_path)) as journal:
        ((opened, closed),) = journal.db.execute("SELECT opened, closed FROM windows").fetchall()
        created = [row.created for row in journal.recovery.bags()]
    assert 0.0 < closed - opened < 60.0
    assert created[1] - before == pytest.approx(jump_s, abs=30.0)


# --- without encryption ----------------------------------------------------------------------------------------------


def test_on_loopback_it_may_serve_without_keys(tmp_path: Path) -> None:
    with live_grid(tmp_path, insecure=True) as grid:
        assert grid.broker.line("worker").keys is None
        worker, client = grid.bare_worker(), grid.client()
        worker.join()
        bag = client.submit([b"0"])
        worker.finish(*worker.work(), payload=b"value")
        assert [result.payload for result in client.results(bag)] == [b"value"]
        assert not client.ask("status")["broker"]["encrypted"]
        assert not (tmp_path / "keys").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no such sockets there")
def test_on_a_local_socket_it_serves_without_keys_and_notices_who_goes(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    with live_grid(tmp_path, insecure=True, listen=f"ipc:{socket}") as grid:
        assert grid.broker.ready.client_line == f"client@ipc:{socket}"
        assert grid.broker.ready.address == f"ipc:{socket}"
        worker, client = grid.bare_worker(), grid.client()
        worker.join()
        bag = client.submit([b"0"])
        worker.finish(*worker.work(), payload=b"value")
        assert [result.payload for result in client.results(bag)] == [b"value"]
        worker.close()
        assert eventually(lambda: not client.ask("status")["workers"])
