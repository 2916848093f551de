"""Limits on what one peer can use of the broker: connections, handshakes, waiting bytes."""

from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import ANYBODY, Credential
from deskgrid.broker.peers import clients as clients_module
from deskgrid.broker.peers import watchers as watchers_module
from deskgrid.broker.port import connections as limits
from deskgrid.broker.port import send_queue as send_queue_module
from deskgrid.broker.port.connections import Connections
from deskgrid.broker.port.send_queue import MESSAGE_BYTES, OutstandingBytes, Parts, SendQueue, SendResult
from deskgrid.broker.work import attempts as attempts_module
from tests.broker.office import Office, OfficeLine
from tests.peers import BareWorker


class Cuts(Connections):
    """Connections whose cuts are noted, and end as ZeroMQ says they do."""

    def __init__(self, limit: int = limits.CONNECTIONS_LIMIT) -> None:
        self.cuts: list[int] = []
        super().__init__(self.cuts.append, limit)

    def let_in(self, fd: int, key: bytes = b"k", now: float = 0.0) -> bytes:
        """A peer that was accepted and has said something."""
        peer = f"peer {fd}".encode()
        self.accepted(fd, f"10.0.{fd // 100}.{fd % 100}", now)
        assert self.heard(peer, fd, key)
        return peer


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_is_a_strangers_until_it_says_something() -> None:
    connections = Cuts()
    connections.accepted(5, "10.0.0.1", 0.0)
    assert b"peer 5" not in connections
    assert connections.heard(b"peer 5", 5, b"k")
    assert b"peer 5" in connections
    assert len(connections) == 1
    connections.expire(10 * limits.FIRST_WORD_S)
    assert connections.cuts == []


def test_who_says_nothing_for_long_is_cut_off() -> None:
    connections = Cuts()
    connections.accepted(5, "10.0.0.1", 0.0)
    connections.expire(limits.FIRST_WORD_S - 0.1)
    assert connections.cuts == []
    connections.accepted(6, "10.0.0.1", 1.0)
    connections.expire(limits.FIRST_WORD_S)
    assert connections.cuts == [5]
    assert len(connections) == 1


def test_of_too_many_strangers_the_oldest_is_cut_off_and_no_peer() -> None:
    connections = Cuts()
    connections.let_in(1)
    for fd in range(2, 2 + limits.STRANGERS_LIMIT):
        connections.accepted(fd, f"10.1.{fd // 100}.{fd % 100}", 1.0)
    assert connections.cuts == []
    connections.accepted(9999, "10.2.0.1", 1.0)
    assert connections.cuts == [2]
    assert len(connections) == 1 + limits.STRANGERS_LIMIT


def test_one_address_can_begin_only_so_many_handshakes_in_a_second_and_others_still_can() -> None:
    connections = Cuts()
    for fd in range(limits.HANDSHAKES_PER_S):
        connections.accepted(fd, "10.0.0.1", 7.0)
        assert connections.heard(f"{fd}".encode(), fd, f"{fd}".encode())
    assert connections.cuts == []
    connections.accepted(1000, "10.0.0.1", 7.9)
    connections.accepted(1001, "10.0.0.2", 7.9)
    assert connections.cuts == [1000]
    connections.accepted(1002, "10.0.0.1", 8.0)
    assert connections.cuts == [1000]
    assert connections.turned_away == 1


def test_beyond_the_limit_of_connections_newcomers_are_cut_off() -> None:
    connections = Cuts(limit=4)
    peers = [connections.let_in(fd, b"%d" % (fd % 2)) for fd in range(4)]
    connections.accepted(9, "10.0.0.9", 0.0)
    assert connections.cuts == [9]
    assert connections.ended(0) == peers[0]
    connections.accepted(10, "10.0.0.9", 0.0)
    assert connections.cuts == [9]


def test_no_key_takes_more_than_its_share_of_the_connections() -> None:
    connections = Cuts(limit=6)
    for fd in range(3):
        connections.let_in(fd, b"greedy")
    connections.accepted(3, "10.0.0.3", 0.0)
    assert not connections.heard(b"peer 3", 3, b"greedy")
    assert connections.cuts == [3]
    assert b"peer 3" not in connections
    connections.let_in(4, b"other")
    connections.ended(0)
    connections.ended(3)
    connections.let_in(5, b"greedy")


def test_a_connection_that_ended_is_forgotten_and_its_number_may_come_again() -> None:
    connections = Cuts()
    peer = connections.let_in(5)
    assert connections.ended(5) == peer
    assert connections.ended(5) is None
    assert peer not in connections
    assert len(connections) == 0
    connections.all_read()
    connections.let_in(5, b"another", now=40.0)
    connections.expire(1000.0)
    assert connections.cuts == []


def test_those_of_a_revoked_key_are_cut_off_after_a_last_word_and_no_others() -> None:
    connections = Cuts()
    for fd, key in ((1, b"revoked"), (2, b"good"), (3, b"revoked")):
        connections.let_in(fd, key)
    for now in (100.0, 100.1):
        connections.look_up(lambda key: ANYBODY if key == b"good" else None, now)
    connections.ended(3)
    connections.expire(100.0)
    assert connections.cuts == []
    connections.expire(100.0 + limits.LAST_WORD_S)
    connections.expire(101.0)
    assert connections.cuts == [1]


def test_a_peer_can_be_cut_off_and_one_that_is_gone_need_not() -> None:
    connections = Cuts()
    peer = connections.let_in(5)
    connections.cut_off(peer)
    connections.cut_off(b"nobody")
    assert connections.cuts == [5]
    assert len(connections) == 0
    assert not connections.heard(peer, 5, b"k")
    assert connections.ended(5) is None


def test_what_a_peer_said_before_it_went_is_read_and_registers_nobody() -> None:
    connections = Cuts(limit=2)
    for fd in range(5, 15):
        peer = connections.let_in(fd)
        connections.ended(fd)
        assert connections.heard(peer, fd, b"k")
        assert peer not in connections
    assert len(connections) == 0
    connections.all_read()
    assert not connections.heard(b"peer 5", 5, b"k")
    connections.let_in(15)  # a key's connections are counted as they are


def test_of_a_stranger_that_was_turned_away_nothing_is_read() -> None:
    connections = Cuts()
    connections.accepted(5, "10.0.0.1", 0.0)
    connections.expire(limits.FIRST_WORD_S)
    assert not connections.heard(b"peer 5", 5, b"k")
    assert len(connections) == 0


def test_a_number_that_is_given_again_before_its_first_message_was_read_is_one_connection() -> None:
    connections = Cuts(limit=2)
    for _ in range(2):
        connections.accepted(5, "10.0.0.1", 0.0)
        connections.ended(5)
    connections.accepted(5, "10.0.0.1", 0.0)
    assert connections.heard(b"earlier", 5, b"k")
    assert connections.heard(b"later", 5, b"k")
    assert b"earlier" not in connections
    assert len(connections) == 1
    assert connections.ended(5) == b"later"
    assert len(connections) == 0


def test_what_one_said_that_ended_unheard_is_not_taken_for_the_next_with_its_number() -> None:
    connections = Cuts()
    connections.accepted(5, "10.0.0.1", 0.0, handshakes=0)
    connections.ended(5)
    connections.accepted(5, "10.0.0.1", 0.0, handshakes=1)
    for _ in range(2):
        assert not connections.heard(b"earlier", 5, b"k", handshake=1)
    assert connections.heard(b"later", 5, b"k", handshake=2)
    assert not connections.heard(b"earlier", 5, b"k", handshake=1)
    assert (b"earlier" in connections, b"later" in connections, connections.cuts) == (False, True, [])


def test_what_one_said_that_ended_does_not_cut_off_the_next_with_its_number() -> None:
    connections = Cuts()
    connections.accepted(5, "10.0.0.1", 0.0, handshakes=0)
    assert connections.heard(b"earlier", 5, b"k", handshake=1)
    connections.ended(5)
    connections.accepted(5, "10.0.0.1", 0.0, handshakes=1)
    assert connections.heard(b"later", 5, b"k", handshake=2)
    connections.all_read()
    assert not connections.heard(b"earlier", 5, b"k", handshake=1)  # what ZeroMQ still had of it
    connections.cut_off(b"earlier")
    assert (b"later" in connections, connections.cuts) == (True, [])


def test_a_key_that_is_revoked_counts_no_more_for_what_was_said_before_its_connection_ended() -> None:
    connections = Cuts()
    for fd in (5, 6):
        connections.accepted(fd, "10.0.0.1", 0.0)
        assert connections.heard(b"peer %d" % fd, fd, b"k", user=f"k{fd}", who=ANYBODY)
    connections.ended(5)
    connections.look_up(lambda key: None, 1.0)
    for fd in (5, 6):
        found = connections.find(b"peer %d" % fd, f"k{fd}")
        assert found is not None
        assert (found.key, found.who) == (b"k", None)


def test_who_takes_the_name_of_a_peer_that_left_is_not_taken_for_it() -> None:
    connections = Cuts()
    connections.accepted(5, "10.0.0.1", 0.0)
    earlier = connections.heard(b"name", 5, b"k", user="k1", who=ANYBODY)
    assert connections.find(b"name", "k1") is earlier is not None
    assert connections.find(b"name", "other2") is None
    connections.ended(5)
    connections.accepted(6, "10.0.0.2", 0.0, handshakes=1)
    later = connections.heard(b"name", 6, b"other", handshake=2, user="other2")
    assert later is not earlier
    assert (connections.find(b"name", "other2"), connections.find(b"name", "k1")) == (later, earlier)
    connections.all_read()
    assert connections.find(b"name", "k1") is None


def test_a_submitter_has_fewer_connections_than_a_key_that_all_pcs_share() -> None:
    connections = Cuts()
    for fd in range(limits.PROGRAMS_LIMIT + 1):
        connections.accepted(fd, f"10.0.{fd}.1", 0.0)
        let_in = connections.heard(f"{fd}".encode(), fd, b"submitter", limits.PROGRAMS_LIMIT)
        assert (let_in is not None) == (fd < limits.PROGRAMS_LIMIT)
    assert connections.cuts == [limits.PROGRAMS_LIMIT]


# --- what waits ------------------------------------------------------------------------------------------------------


class Network:
    """Peers that take so many messages; those that are not there are gone."""

    def __init__(self, **takes: int) -> None:
        self.takes = {name.encode(): count for name, count in takes.items()}
        self.taken: list[tuple[bytes, ...]] = []
        self.outstanding = OutstandingBytes()
        self.outgoing = SendQueue(self._hand_over, self.outstanding)

    def waiting(self, peer: bytes) -> int:
        """Bytes that wait for a peer."""
        return self.outstanding.of_peer(peer)

    def _hand_over(self, peer: bytes, parts: Parts) -> SendResult:
        if peer not in self.takes:
            return SendResult.GONE
        if not self.takes[peer]:
            return SendResult.WOULD_BLOCK
        self.takes[peer] -= 1
        self.taken.append((peer, *map(bytes, parts)))
        return SendResult.SENT


def test_what_a_slow_peer_does_not_take_waits_in_order_and_nobody_else_does() -> None:
    network = Network(slow=1, quick=99)
    for data in (b"1", b"22", b"333"):
        assert network.outgoing.put(b"slow", [data])
        assert network.outgoing.put(b"quick", [data])
    assert [data for peer, data in network.taken if peer == b"quick"] == [b"1", b"22", b"333"]
    assert (network.waiting(b"slow"), network.waiting(b"quick")) == (5 + 2 * MESSAGE_BYTES, 0)
    network.takes[b"slow"] = 1
    assert network.outgoing.flush() == []
    assert network.waiting(b"slow") == 3 + MESSAGE_BYTES
    network.takes[b"slow"] = 9
    assert network.outgoing.put(b"slow", [b"4444"])  # behind what waits
    assert network.outgoing.flush() == []
    assert [data for peer, data in network.taken if peer == b"slow"] == [b"1", b"22", b"333", b"4444"]
    assert not network.outgoing


def test_a_peer_for_which_too_much_would_wait_is_given_up_and_nothing_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_queue_module, "WAITING_LIMIT", 10 + MESSAGE_BYTES)
    network = Network(stuck=0, slow=0)
    assert network.outgoing.put(b"slow", [b"x"])
    assert network.outgoing.put(b"stuck", [bytes(10)])
    assert not network.outgoing.put(b"stuck", [b"x"])
    assert (network.waiting(b"stuck"), network.waiting(b"slow")) == (0, 1 + MESSAGE_BYTES)


def test_what_waits_for_all_connections_of_a_key_has_a_limit_of_its_own() -> None:
    network = Network(one=0, two=0, other=0)
    most = 2 * (10 + MESSAGE_BYTES)
    assert network.outgoing.put(b"one", [bytes(10)], b"key", most)
    assert network.outgoing.put(b"two", [bytes(10)], b"key", most)
    assert not network.outgoing.put(b"two", [b"x"], b"key", most)
    assert network.outgoing.put(b"other", [bytes(10)], b"another key", most)
    assert network.outstanding.of_key == {b"key": 10 + MESSAGE_BYTES, b"another key": 10 + MESSAGE_BYTES}


def test_of_too_much_in_all_that_goes_which_waits_for_the_key_with_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_queue_module, "ALL_WAITING_LIMIT", 1000)
    network = Network(a=0, b=0, c=0)
    assert network.outgoing.put(b"a", [bytes(10)], b"greedy")
    assert network.outgoing.put(b"b", [bytes(10)], b"greedy")
    assert network.outgoing.too_many() == []
    assert network.outgoing.put(b"c", [bytes(400)], b"modest")
    assert network.outstanding.total > 1000
    assert network.outgoing.too_many() == [b"c"]
    for peer in network.outgoing.too_many():
        network.outgoing.drop(peer)
    assert network.outgoing.too_many() == []
    assert network.outstanding.total == 2 * (10 + MESSAGE_BYTES)


def test_a_peer_that_is_gone_is_said_to_be_at_once_or_at_the_next_look() -> None:
    network = Network(leaves=0)
    assert not network.outgoing.put(b"nobody", [b"x"])
    assert network.outgoing.put(b"leaves", [b"x"])
    del network.takes[b"leaves"]
    assert network.outgoing.flush() == [b"leaves"]
    assert network.outgoing.flush() == []
    assert not network.outgoing


# --- what is made for a peer that takes nothing ----------------------------------------------------------------------


class Backpressure:
    """How many bytes each peer has left outstanding, set by the test."""

    def __init__(self, office: Office) -> None:
        self._bytes: dict[bytes, int] = {}
        office.sessions.state.waiting = lambda peer: self._bytes.get(peer, 0)

    def leave(self, line: Any, count: int) -> None:
        assert isinstance(line, OfficeLine)
        self._bytes[line.peer] = count


def test_a_large_result_is_written_only_for_who_was_given_the_work(office: Office) -> None:
    asked = office.worker("asked")
    asked.join()
    office.client().submit([b"0"])
    (work,) = asked.work()
    unasked = office.worker("unasked")
    unasked.join()
    payload = wire.payload_of(bytes(wire.LARGE_BYTES))

    def written(worker: BareWorker, number: int) -> bool:
        assert isinstance(worker.line, OfficeLine)
        result = wire.Result(work.task, number, wire.Outcome.DONE, 0.0, payload, b"", b"")
        who = Credential(worker.name, "worker")
        return office.sessions.records(worker.line.peer, who, wire.Finished((result,)))

    found = [written(worker, number) for worker in (asked, unasked) for number in (work.number, work.number + 1)]
    assert found == [True, False, False, False]


def test_results_are_not_read_from_the_disk_for_a_client_that_takes_none(office: Office) -> None:
    outstanding, worker, client = Backpressure(office), office.worker(), office.client()
    worker.join()
    bag = client.submit([b"0"])
    worker.finish(*worker.work(), payload=b"result")
    outstanding.leave(client.line, wire.BATCH_BYTES)
    client.send(wire.Watch(99, bag, 0))
    for _ in range(3):
        assert client.line.receive(0.0) is None
    outstanding.leave(client.line, wire.BATCH_BYTES - 1)
    assert wire.results_in(client.expect(wire.Outcomes))[0].payload == b"result"


def test_a_slow_client_has_its_results_one_answer_after_the_other(office: Office) -> None:
    worker, client = office.worker(), office.client()
    worker.join(slots=4)
    bags = [client.submit([b"0"]) for _ in range(3)]
    for work in worker.work(3):
        worker.finish(work, payload=bytes(wire.BATCH_BYTES))
    for request, bag in enumerate(bags):
        client.send(wire.Watch(1000 + request, bag, 0))
    leaving = office.sessions.settle(office.now)
    assert [type(message) for _, message in leaving.words] == [wire.Outcomes]
    office.deliver(leaving)
    assert {client.expect(wire.Outcomes).bag for _ in range(3)} == set(bags)


def test_whoever_asks_on_and_on_without_reading_is_not_answered_until_they_read(office: Office) -> None:
    outstanding, client, other = Backpressure(office), office.client(), office.client()
    outstanding.leave(client.line, clients_module.UNREAD_LIMIT)
    client.send(wire.Ask(1, "bags"))
    assert client.line.receive(0.0) is None
    assert other.ask("bags") == {"bags": [], "after": None}
    outstanding.leave(client.line, 0)
    assert client.ask("bags") == {"bags": [], "after": None}


def test_answers_of_one_turn_count_as_not_taken(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "UNREAD_LIMIT", 1000)
    client = office.client()
    for request in range(100):
        client.send(wire.Ask(request, "bags"))
    assert 5 < len(office.sessions.settle(office.now).words) < 15


def test_requests_for_the_results_of_a_bag_that_wait_are_few(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers_module, "WATCHES_LIMIT", 3)
    client = office.client()
    bag = client.submit([b"0"])
    for request in (1001, 1002, 1003, 1003, 1004):
        client.send(wire.Watch(request, bag, 0))
    said = f"3 requests for the results of bag {bag} are pending already: retry when some have been answered"
    assert client.expect(wire.Failed) == wire.Failed(1004, said)
    assert [*office.sessions.state.book.by_id[bag].watchers.values()] == [{1001: 0, 1002: 0, 1003: 0}]


def test_a_worker_that_takes_nothing_is_given_no_more_and_one_that_does_gets_it_all(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 3 * wire.BATCH_BYTES
    monkeypatch.setattr(attempts_module, "UNTAKEN_LIMIT", limit)
    worker, client = office.worker(), office.client()
    line: Any = worker.line
    office.sessions.state.waiting = lambda peer: sum(map(len, office.lines[peer].inbox))
    worker.join(slots=10)
    bag = client.submit([b"%d" % item + bytes(wire.BATCH_BYTES) for item in range(8)], runtime=1.0)
    for _ in range(5):
        office.settle()
        office.sessions.state.scheduler.check(office.now)
        assert sum(map(len, line.inbox)) < limit + 2 * wire.BATCH_BYTES
    for _ in range(8):
        worker.finish(*worker.work())
    assert len(client.results(bag)) == 8


@pytest.mark.parametrize("kind", [wire.Outcomes, wire.Assign, wire.Blob, wire.Answer, wire.Checkpoint])
def test_the_weight_of_what_can_be_large_is_about_what_it_is_encoded(kind: type[wire.Message]) -> None:
    payloads = [b"%04d" % row * 250 for row in range(1000)]
    results = wire.pack_columns(([*range(1000)], [0], [0.5], ["pc"], payloads))
    work = tuple([wire.Work(1, 1, 0, "d" * 64, 1.0, wire.TaskOptions(), 0, payload) for payload in payloads])
    large: dict[type[wire.Message], wire.Message] = {
        wire.Outcomes: wire.Outcomes(1, "b", (results,), (), 1, 1, 1, True),
        wire.Assign: wire.Assign(1, 0.0, work),
        wire.Blob: wire.Blob("d" * 64, bytes(1000_000)),
        wire.Answer: wire.Answer(1, "x" * 1000_000),
        wire.Checkpoint: wire.Checkpoint(1, 1, 1, 0, 1000_000, bytes(1000_000)),
    }
    assert wire.weight(large[kind]) == pytest.approx(len(wire.encode(large[kind])), rel=0.1)
    assert wire.weight(wire.Rejoin()) < 1000
