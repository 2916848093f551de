"""Keys on a running broker, over real sockets: who is let in, who is cut off, and how a slow peer affects others."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from deskgrid import wire
from deskgrid.broker.auth.roles import Role
from deskgrid.broker.port import connections as limits
from deskgrid.client.grid import Grid
from deskgrid.errors import GridRefused
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys, Side, read_join_line
from tests.live import LiveGrid, live_grid
from tests.peers import BareWorker, Client, Peer, SocketLine
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGrid]:
    with live_grid(tmp_path_factory.mktemp("home")) as started:
        yield started


def new_line(grid: LiveGrid, role: Role, name: str) -> JoinLine:
    """The line of a credential that is added now."""
    public, secret = new_pair()
    side: Side = "worker" if role == "worker" else "client"
    line = grid.broker.line(side)
    assert line.keys is not None
    address = grid.admin().ask("keys add", role=role, name=name, public=public.hex())["address"]
    assert address == grid.broker.ready.address
    return JoinLine(side, line.host, line.port, Keys(line.keys.server, public, secret))


def is_let_in(line: JoinLine) -> bool:
    """Whether a connection by that line comes about."""
    with closing(SocketLine(line, monitored=True)) as connection:
        return connection.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED


def is_cut(line: SocketLine) -> bool:
    """Whether the connection ends, and is refused from then on."""
    return line.handshake() == zmq.EVENT_HANDSHAKE_FAILED_AUTH


def connected(line: JoinLine) -> tuple[SocketLine, Client]:
    """A client that was greeted, and its connection."""
    connection = SocketLine(line, monitored=True)
    assert connection.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
    return connection, Client(connection)


def test_an_added_key_is_let_in_at_once_and_after_a_restart(grid: LiveGrid) -> None:
    line = new_line(grid, "submitter", "ann")
    with closing(connected(line)[0]):
        pass
    grid.restart()
    assert is_let_in(line)


def test_a_revoked_key_is_cut_off_in_mid_connection_and_never_let_in_again(grid: LiveGrid) -> None:
    line = new_line(grid, "submitter", "ann")
    connection, ann = connected(line)
    with closing(connection):
        bag = ann.submit([b"0"])
        ann.send(wire.Watch(1, bag, 0))
        assert grid.admin().ask("keys revoke", name="ann")["connected"] == 1
        assert ann.refusal() == "the key 'ann' was revoked"
        ann.send(wire.Ask(2, "cancel", wire.pack_record({"bag": bag})))  # it may not know yet
        assert is_cut(connection)
        assert grid.admin().ask("progress", bag=bag)["cancelled"] == 0
    assert not is_let_in(line)
    grid.restart()
    assert not is_let_in(line)


def test_a_revoked_key_is_cut_off_although_its_peer_never_introduced_itself(grid: LiveGrid) -> None:
    line = new_line(grid, "submitter", "ann")
    with closing(SocketLine(line, monitored=True)) as connection:
        assert connection.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        peer = Peer(connection)
        peer.send(wire.Ask(1, "bags"))
        peer.expect(wire.Rejoin)
        grid.admin().ask("keys revoke", name="ann")
        assert is_cut(connection)


def test_a_revoked_worker_is_cut_off_and_its_work_goes_to_another_at_once(grid: LiveGrid) -> None:
    connection = SocketLine(new_line(grid, "worker", "lab-3"), monitored=True)
    with closing(connection):
        assert connection.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        worker = BareWorker(connection, "lab-3")
        worker.join()
        client = grid.client()
        bag = client.submit([b"0"])
        (work,) = worker.work()
        grid.admin().ask("keys revoke", name="lab-3")
        worker.send(wire.Finished((wire.Result(work.task, work.number, 0, 0.1, b"late", b"", b""),)))
        assert is_cut(connection)
    other = grid.bare_worker("other")
    other.join()
    other.finish(*other.work(), payload=b"right")
    assert [result.payload for result in client.results(bag)] == [b"right"]


@pytest.mark.parametrize("name", ["worker", "client", "admin"])
def test_a_key_of_the_home_that_is_revoked_is_worth_nothing_and_the_new_line_is(grid: LiveGrid, name: str) -> None:
    def line() -> JoinLine:
        return read_join_line(f"@{grid.home / name}.join", "worker" if name == "worker" else "client")

    before = line()
    with closing(SocketLine(before, monitored=True)) as connection:
        assert connection.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if name == "worker":
            Peer(connection).send(wire.Enrol(wire.VERSION, "pc1", new_pair()[0]))
            Peer(connection).expect(wire.Enrolled)
        else:
            Peer(connection).send(wire.Goodbye(""))
            Peer(connection).expect(wire.Rejoin)
        grid.admin().ask("keys revoke", name=name)
        assert is_cut(connection)
    assert line() != before
    assert is_let_in(line())
    assert not is_let_in(before)


def test_a_client_whose_key_is_revoked_while_it_is_away_is_told_so(tmp_path: Path) -> None:
    with live_grid(tmp_path) as own, Grid(own.broker.ready.client_line) as away:
        away.status()
        own.restart((tmp_path / "keys" / "client").unlink)
        with pytest.raises(GridRefused, match="does not know this key: was it revoked"):
            away.status()


def test_other_keys_do_not_notice_that_one_is_revoked(grid: LiveGrid) -> None:
    connection, ben = connected(new_line(grid, "submitter", "ben"))
    with closing(connection):
        new_line(grid, "submitter", "ann")
        grid.admin().ask("keys revoke", name="ann")
        with pytest.raises(AssertionError, match="no handshake"):
            connection.handshake(3 * limits.LAST_WORD_S)
        assert ben.ask("bags") == {"bags": [], "after": None}


def test_a_worker_process_whose_key_is_revoked_ends_and_says_why(grid: LiveGrid) -> None:
    worker = grid.start_worker("lab-3", line=new_line(grid, "worker", "lab-3"))
    assert grid.joined(worker)
    grid.admin().ask("keys revoke", name="lab-3")
    assert "the key 'lab-3' was revoked" in str(worker.failure())


# --- connections that are cut ----------------------------------------------------------------------------------------


def stranger(grid: LiveGrid) -> socket.socket:
    return socket.create_connection(("127.0.0.1", grid.broker.line("client").port), PATIENCE_S)


def has_ended(connection: socket.socket) -> bool:
    """Whether the broker has hung up, after what it sent."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_strangers_make_room_for_each_other_and_keep_nobody_out(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STRANGERS_LIMIT", 10)
    before = grid.client()
    crowd = [stranger(grid) for _ in range(40)]
    assert all(has_ended(each) for each in crowd[:20])
    assert before.ask("bags") == grid.client().ask("bags")
    for each in crowd:
        each.close()


def test_who_says_nothing_is_cut_off_in_time(grid: LiveGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FIRST_WORD_S", 0.3)
    with closing(stranger(grid)) as silent, closing(SocketLine(grid.broker.line("client"), monitored=True)) as mute:
        assert eventually(lambda: mute.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        assert has_ended(silent)
        # It was cut off, and dialled again; on a busy machine it may be cut off before it has shaken hands.
        assert eventually(lambda: mute.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED)


def test_one_address_that_dials_on_and_on_is_turned_away_until_the_second_is_over(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = grid.client()
    monkeypatch.setattr(limits, "HANDSHAKES_PER_S", 5)
    crowd = [stranger(grid) for _ in range(30)]
    assert sum(has_ended(each) for each in crowd[-5:]) == 5
    assert before.ask("bags") == {"bags": [], "after": None}
    # A client tries again, and introduces itself again: it may have been cut off just after it had.
    with Grid(grid.broker.ready.client_line) as late:
        assert late.bags() == []
    for each in crowd:
        each.close()


def test_a_client_that_hangs_up_without_a_word_is_forgotten(grid: LiveGrid) -> None:
    admin = grid.admin()
    for _ in range(5):
        connection, _client = connected(grid.broker.line("client"))
        connection.close()
    assert eventually(lambda: admin.ask("status")["broker"]["clients"] == 1, PATIENCE_S)


# --- slow peers ------------------------------------------------------------------------------------------------------


def test_a_client_that_reads_no_answers_holds_up_nobody_and_gets_them_when_it_reads(grid: LiveGrid) -> None:
    result = bytes(6 * 2**20)
    worker, slow, quick = grid.bare_worker(), grid.client(), grid.client()
    worker.join()
    bags = [slow.submit([b"0"]) for _ in range(5)]
    for _ in bags:
        worker.finish(*worker.work(), payload=result)
    for request, bag in enumerate(bags):
        slow.send(wire.Watch(1000 + request, bag, 0))
    for _ in range(20):
        assert len(quick.ask("bags")["bags"]) == len(bags)
    found = [slow.expect(wire.Outcomes) for _ in bags]
    assert {outcomes.bag for outcomes in found} == set(bags)
    assert {len(wire.results_in(outcomes)[0].payload) for outcomes in found} == {len(result)}
