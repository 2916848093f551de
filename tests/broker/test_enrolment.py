"""PCs that enrol with the lab's line: what the holder of the line can do, and cannot do."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import zmq

from deskgrid import wire
from deskgrid.broker.auth.keys import KeyRing
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.peers import enrolment as enrolment_module
from deskgrid.wire.dealer import new_pair
from tests.broker.office import ADMIN, LAB, Office, OfficeLine
from tests.broker.test_any_conversation import message
from tests.live import LiveGrid, live_grid
from tests.peers import BareWorker, Client, Peer, SocketLine

# --- without sockets -------------------------------------------------------------------------------------------------


@pytest.fixture
def keyed(office: Office, tmp_path: Path) -> Office:
    """A broker with keys."""
    office.sessions.state.credentials = KeyRing(tmp_path)
    return office


def enrol(name: str = "pc1", **changes: object) -> wire.Enrol:
    fields = {"version": wire.VERSION, "name": name, "public": new_pair()[0]}
    return wire.Enrol(**(fields | changes))  # type: ignore[arg-type]


def holder(office: Office) -> Peer:
    """Somebody with the lab's line."""
    return Peer(OfficeLine(office, LAB))


def keys_of(office: Office) -> list[str]:
    return [row["name"] for row in office.client(ADMIN).ask("keys")["keys"] if row["role"] == "worker"]


def test_a_pc_is_written_down_before_it_is_told_so(keyed: Office, tmp_path: Path) -> None:
    peer, request = holder(keyed), enrol()
    peer.send(request)
    assert not KeyRing(tmp_path).who(request.public)
    now = keyed.sessions.state.wall.posix(keyed.now)
    assert peer.expect(wire.Enrolled) == wire.Enrolled("pc1", request.public, now)
    assert KeyRing(tmp_path).who(request.public) == Credential("pc1", "worker")


def test_the_log_names_each_pc_and_the_line_it_came_by(keyed: Office) -> None:
    peer = holder(keyed)
    peer.send(enrol())
    peer.expect(wire.Enrolled)
    assert keyed.sessions.state.take_notices() == ["worker-enrolled name='pc1' line='worker'"]


@pytest.mark.parametrize(
    "kind", [kind for kind in wire.MESSAGES if kind is not wire.Enrol], ids=lambda kind: kind.__name__
)
def test_the_labs_line_can_do_nothing_but_enrol(keyed: Office, kind: type[wire.Message]) -> None:
    peer = holder(keyed)
    if kind in (*wire.FROM_WORKER, *wire.FROM_CLIENT):
        peer.send(message(kind, Random(1)))
        assert peer.refusal() == f"a lab's line may not send {kind.__name__}"
    assert not keyed.sessions.workers.by_name
    assert not keyed.sessions.clients.by_peer


@pytest.mark.parametrize("who", [Credential("ann", "submitter"), ADMIN], ids=lambda who: who.name)
def test_only_by_the_labs_line_can_one_enrol(keyed: Office, who: Credential) -> None:
    peer = Peer(OfficeLine(keyed, who))
    peer.send(enrol())
    assert peer.refusal().endswith("may not send Enrol")
    assert keys_of(keyed) == []


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (enrol(name="x" * 256), "a name is 1 to 64 letters"),
        (enrol(name="ä" * 128), "a name is 1 to 64 letters"),
        (enrol(name="x" * 1_000_000), "a name is 1 to 64 letters"),
        (enrol(public=b""), "that is not a public key"),
        (enrol(public=bytes(31)), "that is not a public key"),
        (enrol(name="x" * 65), "a name is 1 to 64 letters"),
        (enrol(name="\x1b]0;evil\x07"), "a name is 1 to 64 letters"),
        (enrol(name="../../evil"), "a name is 1 to 64 letters"),
        (enrol(name="pc1~2"), "a name is 1 to 64 letters"),
        (enrol(version="0.0.9"), "you are older than this broker"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_short_printable_line(
    keyed: Office, request_: wire.Enrol, reason: str
) -> None:
    peer = holder(keyed)
    peer.send(request_)
    said = peer.refusal()
    assert reason in said
    assert said.isprintable()
    assert len(said) < 300
    assert keys_of(keyed) == []
    assert all(len(notice) < 1000 and notice.isprintable() for notice in keyed.sessions.state.take_notices())


@pytest.mark.parametrize("size", [33, 1_000_000])
def test_a_key_that_is_too_long_is_no_message(size: int) -> None:
    with pytest.raises(wire.ProtocolError, match="more than 32 bytes"):
        wire.decode(wire.encode(enrol(public=bytes(size))))


def test_whoever_makes_names_up_is_served_some_in_a_second_and_others_do_not_wait_for_it(keyed: Office) -> None:
    peers = [holder(keyed) for _ in range(3 * enrolment_module.PER_S)]
    for number, peer in enumerate(peers):
        peer.send(enrol(f"evil{number}"))
    keyed.settle()
    assert len(keys_of(keyed)) < enrolment_module.PER_S / 2  # the question took turns, too
    for _ in range(100):
        keyed.settle()
    assert len(keys_of(keyed)) == enrolment_module.PER_S
    assert not keyed.sessions.unfinished  # the loop may rest until there is room again
    for second in (1.0, 2.0):
        keyed.now = second
        for _ in range(100):
            keyed.settle()
    assert len(keys_of(keyed)) == len(peers)


def test_a_connection_has_one_request_at_a_time(keyed: Office) -> None:
    peer = holder(keyed)
    peer.send(*[enrol(f"evil{number}") for number in range(1000)])
    keyed.settle()
    assert keys_of(keyed) == ["evil999"]


def test_refusals_do_not_fill_the_log(keyed: Office) -> None:
    for _ in range(10 * enrolment_module.PER_S):
        holder(keyed).send(enrol("a b"))
        keyed.sessions.settle(keyed.now)
    assert len(keyed.sessions.state.take_notices()) == enrolment_module.PER_S


def test_who_hangs_up_before_its_turn_does_not_enrol(keyed: Office) -> None:
    peer = holder(keyed)
    peer.send(enrol())
    assert isinstance(peer.line, OfficeLine)
    keyed.sessions.gone(peer.line.peer)
    keyed.settle()
    assert keys_of(keyed) == []


def test_what_was_asked_by_a_line_that_is_revoked_before_its_turn_is_refused(keyed: Office) -> None:
    admin, before = keyed.client(ADMIN), [holder(keyed) for _ in range(2 * enrolment_module.PER_TURN)]
    peer = holder(keyed)
    for number, each in enumerate([*before, peer]):
        each.send(enrol(f"pc{number}"))
    admin.send(wire.Ask(1, "keys revoke", wire.pack_record({"name": "worker"})))
    for _ in range(4):
        keyed.settle()
    assert peer.refusal() == "the key 'worker' was revoked"
    assert f"pc{len(before)}" not in keys_of(keyed)


def test_on_a_full_disk_who_enrols_waits(keyed: Office) -> None:
    peer = holder(keyed)
    peer.send(enrol())
    disk = keyed.sessions.state.disk
    disk.failed("full", keyed.now)
    keyed.settle()
    assert not keyed.sessions.unfinished
    assert not any(keyed.sessions.state.take_leaving())


def test_the_events_say_that_enrolment_is_on_or_off(keyed: Office) -> None:
    admin = keyed.client(ADMIN)
    for on in (False, True):
        admin.ask("keys enrol", on=on)
    events = [row for row in admin.ask("events all", after=0)["events"] if row["event"] == "enrolment"]
    assert [row["facts"] for row in events] == [{"turned": "off"}, {"turned": "on"}]


@pytest.mark.parametrize("on", [None, 1, "on", [], {}])
def test_enrolment_is_on_or_off(keyed: Office, on: object) -> None:
    assert keyed.client(ADMIN).failed("keys enrol", on=on).startswith(("on: expected bool, got ", "on: no plain value"))


# --- a PC joins under its own name -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pc2", "pc1~2", "PC1", ""])
def test_a_pc_joins_under_its_own_name_only(office: Office, name: str) -> None:
    pc2 = office.worker("pc2")
    pc2.join()
    thief = office.worker("pc1")
    thief.send(thief.introduction(name=name, session=pc2.session))
    assert thief.refusal() == "this PC is enrolled as pc1: it cannot join under another name"
    assert {worker.who.name for worker in office.sessions.workers.by_name.values()} == {"pc2"}


def test_two_workers_of_one_pc_have_a_name_each_and_both_go_when_it_is_revoked(keyed: Office) -> None:
    store = keyed.sessions.state.credentials
    assert store is not None
    store.add(Credential("pc1", "worker"), new_pair()[0], 0.0)
    first, second = keyed.worker("pc1"), keyed.worker("pc1")
    assert [first.join().name, second.join().name] == ["pc1", "pc1~2"]
    assert keyed.client(ADMIN).ask("keys revoke", name="pc1")["connected"] == 2
    keyed.settle()
    assert first.refusal() == second.refusal() == "the key 'pc1' was revoked"
    assert not keyed.sessions.workers.by_name


# --- over real sockets -----------------------------------------------------------------------------------------------


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path / "home") as started:
        yield started


def test_after_a_restart_a_thief_with_the_labs_line_does_not_get_another_pcs_name(grid: LiveGrid) -> None:
    honest = grid.bare_worker("lab3-07")
    assert honest.join().name == "lab3-07"
    grid.restart()
    thief = BareWorker(SocketLine(grid.broker.line("worker")), "lab3-07")
    with closing(thief):
        thief.send(thief.introduction())
        assert thief.refusal() == "a lab's line may not send Join"
        thief.send(enrol("lab3-07"))
        assert "lab3-07 is enrolled with another key" in thief.refusal()
    assert grid.client().ask("status")["workers"] == []
    assert grid.bare_worker("lab3-07", honest.session).join().name == "lab3-07"


def test_a_new_pc_is_let_in_by_its_key_as_soon_as_it_is_told_so(grid: LiveGrid) -> None:
    for number in range(20):
        worker = grid.bare_worker(f"pc{number}")
        assert worker.join().name == f"pc{number}"


def test_of_two_pcs_one_is_revoked_and_the_other_goes_on(grid: LiveGrid) -> None:
    other = grid.bare_worker("pc2")
    other.join()
    connection = SocketLine(grid.pc_line("pc1"), monitored=True)
    with closing(connection):
        worker = BareWorker(connection, "pc1")
        assert connection.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED
        worker.join()
        assert grid.admin().ask("keys revoke", name="pc1")["connected"] == 1
        assert worker.refusal() == "the key 'pc1' was revoked"
        assert connection.handshake() == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    client = grid.client()
    bag = client.submit([b"0"])
    other.finish(*other.work(), payload=b"right")
    assert [result.payload for result in client.results(bag)] == [b"right"]


def test_a_new_line_of_the_lab_leaves_pcs_in_and_the_old_one_is_worth_nothing(grid: LiveGrid) -> None:
    worker, lab = grid.bare_worker("pc1"), grid.broker.line("worker")
    worker.join()
    grid.admin().ask("keys revoke", name="worker")
    client = grid.client()
    bag = client.submit([b"0"])
    worker.finish(*worker.work(), payload=b"right")
    assert client.results(bag)
    with closing(SocketLine(lab, monitored=True)) as old:
        assert old.handshake() == zmq.EVENT_HANDSHAKE_FAILED_AUTH
    with closing(SocketLine(grid.pc_line("pc1"), monitored=True)) as own:
        assert own.handshake() == zmq.EVENT_HANDSHAKE_SUCCEEDED


def test_a_holder_of_the_labs_line_that_enrols_in_a_loop_holds_up_nobody(grid: LiveGrid) -> None:
    client = grid.client()
    thief = Peer(SocketLine(grid.broker.line("worker")))
    with closing(thief):
        for number in range(2000):
            thief.send(enrol(f"evil{number}"))
        worker = grid.bare_worker("pc1")
        worker.join()
        bag = client.submit([b"0"])
        worker.finish(*worker.work(), payload=b"right")
        assert client.results(bag)
    assert isinstance(client, Client)
    assert len(grid.admin().ask("keys")["keys"]) < 500
