"""Stored files at the broker: what is offered, sent and asked for, by whom, and how long it stays."""

import os
from collections import deque
from hashlib import sha256
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model import quotas as quotas_module
from deskgrid.broker.model.state import TRANSFER_BYTES_PER_S
from deskgrid.broker.peers import transfers as transfers_module
from deskgrid.broker.peers.transfers import HOLD_BYTES, SWEEP_S, UPLOADS_KEPT_S
from tests.broker.office import ADMIN, CLIENT, Office, OfficeLine, OpenOffice
from tests.peers import COMMAND, BareWorker, Client, Peer

BEN = Credential("ben", "submitter")
ONE, TWO = b"one" * 100, b"two" * 100


def digest(data: bytes) -> bytes:
    return sha256(data).digest()


def offer(peer: Peer, holder: str, *parts: bytes, first: int = 0, each: int = 0, request: int = 1) -> wire.Message:
    """What the broker says to an offer."""
    peer.send(wire.Offer(request, holder, b"".join(map(digest, parts)), sum(map(len, parts)), first, each))
    return _answer(peer)


def _answer(peer: Peer) -> wire.Message:
    while isinstance(message := peer.receive(), wire.Assign | wire.Blob | wire.Taken):
        continue
    return message


def lacked(peer: Peer, holder: str, *parts: bytes) -> list[bytes]:
    """The parts that the broker lacks, of those that are offered."""
    answer = offer(peer, holder, *parts)
    assert isinstance(answer, wire.Lacks), answer
    return [part for part in parts if digest(part) in wire.split_digests(answer.parts)]


def send(peer: Peer, holder: str, part: bytes, named: bytes | None = None) -> wire.Message:
    """What the broker says to a part."""
    peer.send(wire.Part(2, holder, digest(part) if named is None else named, wire.payload_of(part)))
    return _answer(peer)


def fetched(peer: Peer, holder: str, part: bytes) -> bytes | str:
    """A part from the broker, or why it does not come."""
    peer.send(wire.Want(3, holder, digest(part)))
    message = _answer(peer)
    if isinstance(message, wire.Failed):
        return message.reason
    assert isinstance(message, wire.Part)
    assert (message.request, message.holder, message.digest) == (3, holder, digest(part))
    return bytes(message.data)


def store(peer: Peer, holder: str, *parts: bytes) -> None:
    for part in lacked(peer, holder, *parts):
        assert send(peer, holder, part) == wire.Kept(2)


def attempt(worker: BareWorker) -> tuple[str, wire.Work]:
    """An attempt that a worker is given, as messages name it."""
    (work,) = worker.work()
    return f"{work.task}.{work.number}", work


@pytest.fixture
def client(office: Office) -> Client:
    return office.client()


# --- what travels ----------------------------------------------------------------------------------------------------


def test_only_what_the_broker_lacks_is_asked_for_and_it_comes_back_as_it_was(client: Client) -> None:
    assert lacked(client, "bag", ONE, TWO) == [ONE, TWO]
    assert send(client, "bag", ONE) == wire.Kept(2)
    assert lacked(client, "bag", ONE, TWO) == [TWO]
    assert lacked(client, "another", ONE) == []
    assert fetched(client, "another", ONE) == ONE


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_confirmed_is_there_after_a_restart(open_office: OpenOffice, killed: bool) -> None:
    office = open_office()
    store(office.client(), "bag", ONE)
    if not killed:
        office.close()
    client = open_office().client()
    assert lacked(client, "bag", ONE, TWO) == [TWO]
    assert fetched(client, "bag", ONE) == ONE


def test_a_part_that_is_not_what_its_digest_says_is_refused_and_not_kept(client: Client) -> None:
    assert isinstance(offer(client, "bag", ONE), wire.Lacks)
    assert "the file changed while it was sent" in str(send(client, "bag", TWO, digest(ONE)))
    assert lacked(client, "bag", ONE, TWO) == [ONE, TWO]


def test_a_part_that_nobody_offered_is_refused(client: Client) -> None:
    assert "offer the parts of a file before" in str(send(client, "bag", ONE))


def test_a_part_that_comes_twice_counts_once(office: Office, client: Client) -> None:
    store(client, "bag", ONE)
    before = office.sessions.state.quotas._bytes["client"]
    assert send(client, "bag", ONE) == wire.Kept(2)
    assert office.sessions.state.quotas._bytes["client"] == before == len(ONE) + HOLD_BYTES


# --- whose they are --------------------------------------------------------------------------------------------------


def test_what_others_have_is_nobodys_business(office: Office, client: Client) -> None:
    store(client, "bag", ONE)
    ben = office.client(BEN)
    assert "does not have this part" in str(fetched(ben, "bens", ONE))
    assert lacked(ben, "bens", ONE) == [ONE], "nor does the broker tell that somebody has it"
    store(ben, "bens", ONE)
    assert fetched(ben, "bens", ONE) == ONE
    assert office.journal.db.execute("SELECT count(*) FROM parts").fetchone() == (1,)


def test_nobody_adds_to_or_fetches_from_the_bag_of_somebody_else(office: Office, client: Client) -> None:
    bag = client.submit([b"0"])
    store(client, bag, ONE)
    ben = office.client(BEN)
    for answer in (offer(ben, bag, ONE), send(ben, bag, ONE), fetched(ben, bag, ONE)):
        assert "belongs to client" in str(answer)
    assert fetched(office.client(ADMIN), bag, ONE) == ONE


def test_a_worker_sends_and_fetches_for_the_attempts_that_it_was_given(office: Office, client: Client) -> None:
    bag = client.submit([b"0"])
    store(client, bag, ONE)
    worker, other = office.worker("pc1"), office.worker("pc2")
    worker.join()
    holder, work = attempt(worker)
    other.join()
    assert fetched(worker, holder, ONE) == ONE
    store(worker, holder, TWO)
    assert fetched(client, bag, TWO) == TWO, "they belong to the owner of the bag"
    for strange in (holder, bag, "999.1", f"{work.task}.{work.number + 1}", "1.", "x"):
        for answer in (offer(other, strange, ONE), send(other, strange, ONE), fetched(other, strange, ONE)):
            assert "does not hold that attempt" in str(answer)
    worker.finish(work)
    assert "does not hold that attempt" in str(fetched(worker, holder, ONE)), "it has ended"


def test_whoever_did_not_introduce_himself_is_asked_to(office: Office) -> None:
    stranger = office.client(greet=False)
    assert offer(stranger, "bag", ONE) == wire.Rejoin()
    for who in (BEN, Credential("pc1", "worker")):
        assert not office.sessions.records(b"peer", who, part_of(ONE)), "nothing is written for a stranger"


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_files_count_in_their_owners_quota_each_part_once(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 3_000)
    office = open_office()
    client = office.client()
    store(client, "one", bytes(1_000))
    store(client, "two", bytes(1_000))
    if again:
        office.settle()
        office = open_office()
        client = office.client()
    size = 1_000 + 2 * HOLD_BYTES
    assert office.sessions.state.quotas._bytes["client"] == size
    large = bytes(3_000 - size)
    assert "the files of bag one were rejected: client has" in str(offer(client, "one", large))
    assert "the files of bag one were rejected: client has" in str(send(client, "one", large))
    (peer,) = office.sessions.clients.by_peer
    assert office.sessions.records(peer, CLIENT, part_of(ONE))
    assert not office.sessions.records(peer, CLIENT, part_of(bytes(3_000))), "it is not even written"
    store(office.client(BEN), "bens", large)


def part_of(data: bytes) -> wire.Part:
    return wire.Part(1, "bag", digest(data), data)


def test_bags_with_files_are_bounded_for_each_submitter(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "HOLDERS_LIMIT", 2)
    client = office.client()
    for name in ("a", "b", "a"):
        assert isinstance(offer(client, name, ONE), wire.Lacks)
    assert "has files here for 2 bags" in str(offer(client, "c", ONE))
    assert isinstance(offer(office.client(BEN), "c", ONE), wire.Lacks)


def test_a_peer_that_asks_without_end_gets_a_few_parts_at_a_time(office: Office, client: Client) -> None:
    """And so does everybody else meanwhile: credentials take turns."""
    state, transfers = office.sessions.state, office.sessions.transfers
    store(client, "bag", ONE)
    taken = {"room": True}
    state.waiting = lambda peer: 0 if taken["room"] else 2 * transfers_module.ROOM_BYTES
    taken["room"] = False
    for _ in range(100):
        client.send(wire.Want(3, "bag", digest(ONE)))
    office.settle()
    assert transfers._wanted
    assert sum(len(wanted) for peers in transfers._wanted.values() for wanted in peers.values()) == 16
    ben = office.client(BEN)
    store(ben, "bens", ONE)
    taken["room"] = True
    ben.send(wire.Want(3, "bens", digest(ONE)))
    sent: list[bytes] = []
    monitor = state.hand_out
    state.hand_out = lambda peer, message: (sent.append(peer), monitor(peer, message))[1]  # type: ignore[method-assign,func-returns-value]
    transfers.send_some()
    assert len(set(sent[:2])) == 2, "the other one is second at the latest"
    assert len(sent) == 16
    transfers.send_some()
    assert not transfers._wanted


def test_nothing_waits_for_a_peer_that_is_gone(office: Office, client: Client) -> None:
    store(client, "bag", ONE)
    office.sessions.state.waiting = lambda peer: 2 * transfers_module.ROOM_BYTES
    client.send(wire.Want(3, "bag", digest(ONE)))
    client.close()
    (peer,) = office.sessions.clients.by_peer
    office.sessions.gone(peer)
    assert not office.sessions.transfers._wanted


def test_on_a_disk_without_room_a_client_is_told_and_a_worker_asks_again(office: Office, client: Client) -> None:
    client.submit([b"0"])
    worker = office.worker()
    worker.join()
    holder, _ = attempt(worker)
    disk = office.sessions.state.disk
    disk._become("low", "0 KiB free", 0.0)
    disk._look_at = 1e9
    assert "is nearly full" in str(offer(client, "bag", ONE))
    worker.send(wire.Offer(1, holder, digest(ONE), len(ONE), 0, 0))
    disk._become("full", "no room", 0.0)
    assert "is full" in str(offer(client, "bag", ONE))
    worker.send(wire.Offer(1, holder, digest(ONE), len(ONE), 0, 0))
    disk._become("ok", "", 0.0)
    assert lacked(worker, holder, ONE) == [ONE], "this is the first answer"
    said = [event for event in client.ask("events")["events"] if event["event"] == "files-wait"]
    assert len(said) == 1, "once a minute"
    assert "is nearly full" in said[0]["facts"]["why"]


# --- whose they are ---------------------------------------------------------------------------------------------------


def command(*trees: bytes) -> bytes:
    """A template that names these trees as inputs."""
    packed: bytes = msgpack.packb({"kind": "command", "argv": ["true"], "inputs": b"".join(trees), "outputs": []})
    return packed


def refusal(client: Client, template: bytes, payload: wire.Payload = b"0", *, sent: bool = True) -> str:
    """Why a bag is refused; empty if it is not."""
    name = sha256(template).hexdigest()
    if sent:
        client.send(wire.Blob(name, template))
    answer = client.answer_to(client.batch("new", [bytes(payload)], template=name))
    return answer.reason if isinstance(answer, wire.Failed) else ""


NOT_SENT = "bag new was rejected: it names files that ben has not sent to this broker, or not lately"


def named(tree: bytes) -> list[tuple[bytes, wire.Payload]]:
    """All ways in which a bag can name a tree, as templates and arguments."""
    build = wire.Build("3.12", "linux_x86_64", 2, 35, tree, 1, 1)
    packed = wire.Environment("libraries", (build,)).packed()
    environment: bytes = msgpack.packb({"kind": "command", "environment": packed, "argv": ["true"]})
    source: bytes = msgpack.packb({"kind": "command", "argv": ["true"], "source": tree})
    large = wire.wrap([tree], wire.payload_of(bytes(wire.LARGE_BYTES)))
    return [
        (command(tree), b"0"),
        (environment, b"0"),
        (source, b"0"),
        (COMMAND, wire.wrap([tree], b"0")),
        (COMMAND, wire.wrap([tree], b"0", whole=True)),
        (COMMAND, large),
    ]


@pytest.mark.parametrize("way", range(6))
def test_a_bag_is_taken_only_if_its_owner_has_sent_the_trees_that_it_names(
    office: Office, client: Client, way: int
) -> None:
    template, payload = named(digest(ONE))[way]
    store(client, "bag", ONE)
    ben = office.client(BEN)
    assert refusal(ben, template, payload) == NOT_SENT
    assert lacked(ben, "new", ONE) == [ONE]
    assert refusal(ben, template, payload) == NOT_SENT, "an offer is no proof"
    assert send(ben, "new", ONE) == wire.Kept(2)
    assert refusal(ben, template, payload) == ""


def test_a_later_batch_names_no_files_of_others_either(office: Office, client: Client) -> None:
    store(client, "bag", ONE)
    ben = office.client(BEN)
    ben.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    assert isinstance(ben.answer_to(ben.batch("new", [b"0"], last=False)), wire.Accepted)
    answer = ben.answer_to(ben.batch("new", [bytes(wire.wrap([digest(ONE)], b"1"))], first=1))
    assert isinstance(answer, wire.Failed)
    assert answer.reason == NOT_SENT
    assert isinstance(ben.answer_to(ben.batch("new", [b"1"], first=1)), wire.Accepted)


def test_a_batch_that_was_accepted_is_accepted_again_when_its_files_have_gone(office: Office, client: Client) -> None:
    store(client, "new", ONE)
    assert refusal(client, COMMAND, wire.wrap([digest(ONE)], b"0")) == ""
    office.sessions.transfers.release("new", "client", [digest(ONE)])
    assert refusal(client, COMMAND, wire.wrap([digest(ONE)], b"0")) == ""


@pytest.mark.parametrize("again", [False, True])
def test_the_digest_of_a_template_lets_nobody_else_use_it(open_office: OpenOffice, again: bool) -> None:
    """The code of a bag, and what it refers to, is in its template."""
    office = open_office()
    office.client().submit([b"0"])
    if again:
        office.settle()
        office = open_office()
    ben = office.client(BEN)
    assert refusal(ben, COMMAND, sent=False) == "template: send it first"
    assert refusal(office.client(), COMMAND, sent=False) == "", "it is that of a bag of this client"
    assert refusal(ben, COMMAND).startswith("bag new belongs to client"), "it has sent it"


def test_templates_that_were_sent_are_forgotten_one_by_one_unless_a_bag_has_them(
    office: Office, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.broker.peers.clients.SENT_TEMPLATES", 2)
    store(client, "bag", ONE)
    client.submit([b"0"])
    for _ in range(3):
        client.send(wire.Blob(sha256(command()).hexdigest(), command()))
        client.send(wire.Blob(sha256(command(digest(ONE))).hexdigest(), command(digest(ONE))))
    client.send(wire.Blob(sha256(b"").hexdigest(), b""))
    assert isinstance(client.receive(), wire.Refused)
    assert refusal(client, COMMAND, sent=False) == ""
    assert office.sessions.clients._sent["client"].keys() == {
        sha256(command()).hexdigest(),
        sha256(command(digest(ONE))).hexdigest(),
    }


def test_a_worker_is_told_what_the_owner_of_its_attempt_lacks(office: Office, client: Client) -> None:
    store(client, "bag", ONE)
    ben, worker = office.client(BEN), office.worker()
    store(ben, "bens", TWO)
    ben.submit([b"0"])
    worker.join()
    holder, _ = attempt(worker)
    worker.send(wire.Claim(7, holder, digest(ONE) + digest(TWO)))
    assert _answer(worker) == wire.Lacks(7, digest(ONE))
    assert isinstance(fetched(worker, holder, ONE), str)
    worker.send(wire.Claim(8, "99.1", digest(TWO)))
    assert _answer(worker) == wire.Failed(8, "this worker does not hold that attempt")
    ben.send(wire.Claim(9, "bens", digest(TWO)))
    assert isinstance(ben.receive(), wire.Refused)


def test_a_worker_gets_no_template_of_which_it_was_given_no_work(office: Office, client: Client) -> None:
    """A worker that joins again may have forgotten one that it needs."""
    secret = command()
    name = sha256(secret).hexdigest()
    client.send(wire.Blob(name, secret))
    client.submit([b"0"])
    worker, other = office.worker(), office.worker("other")
    worker.join()
    (work,) = worker.work()
    other.join()
    for each, template in ((worker, name), (other, name), (other, work.template)):
        each.send(wire.Fetch(template))
        office.settle()
        assert isinstance(each.line, OfficeLine)
        assert each.line.inbox == deque()
    worker.send(wire.Fetch(work.template))
    office.settle()
    assert worker.receive() == wire.Blob(work.template, COMMAND)


# --- how long they stay ----------------------------------------------------------------------------------------------


def held(office: Office) -> list[int]:
    """How many parts, holds and holders there are."""
    tables = ("parts", "holds", "holders")
    return [office.journal.db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]


def later(office: Office, seconds: float = 2 * SWEEP_S) -> None:
    office.now += seconds
    for _ in range(5):
        office.settle()


@pytest.mark.parametrize("again", [False, True])
def test_the_files_of_a_forgotten_bag_go_unless_another_needs_them(open_office: OpenOffice, again: bool) -> None:
    office = open_office()
    client = office.client()
    first, second = (client.submit([b"0"]) for _ in range(2))
    store(client, first, ONE, TWO)
    store(client, second, ONE)
    client.ask("cancel", bag=first)
    client.ask("forget", bag=first)
    if again:
        office.settle()
        office = open_office()
        client = office.client()
    later(office)
    assert held(office) == [1, 1, 1]
    assert office.sessions.state.quotas._bytes["client"] <= 2_000 + len(ONE) + HOLD_BYTES
    assert fetched(client, second, ONE) == ONE
    client.ask("cancel", bag=second)
    client.ask("forget", bag=second)
    later(office)
    assert held(office) == [0, 0, 0]


@pytest.mark.parametrize("again", [False, True])
def test_a_result_keeps_its_parts_when_the_libraries_of_its_tasks_go(open_office: OpenOffice, again: bool) -> None:
    """A task may leave one of its wheels, or of its input files, as a result."""
    office = open_office()
    client, worker = office.client(), office.worker()
    bag = client.submit([b"0"])
    store(client, bag, ONE, TWO)
    worker.join()
    holder, work = attempt(worker)
    assert lacked(worker, holder, ONE) == [], "it does not travel again"
    worker.finish(work)
    if again:
        office.settle()
        office = open_office()
        client = office.client()
    assert office.sessions.transfers.release(bag, "client", [digest(ONE), digest(TWO)]) == len(TWO)
    assert fetched(client, bag, ONE) == ONE
    assert "does not have this part" in str(fetched(client, bag, TWO))
    client.ask("forget", bag=bag)
    later(office)
    assert held(office) == [0, 0, 0]


def test_uploads_of_another_for_a_bag_of_the_same_id_stay_when_it_is_forgotten(open_office: OpenOffice) -> None:
    office = open_office()
    ben, client = office.client(BEN), office.client()
    bag = client.batch("same", [b"0"])
    store(ben, "same", ONE)
    client.send(wire.Blob(bag.template, COMMAND))
    assert isinstance(client.answer_to(bag), wire.Accepted)
    client.ask("cancel", bag="same")
    client.ask("forget", bag="same")
    office = open_office()
    office.now += SWEEP_S
    office.settle()
    assert lacked(office.client(BEN), "same", ONE) == []


def test_uploads_for_a_bag_that_never_comes_stay_for_a_day(open_office: OpenOffice) -> None:
    office = open_office()
    store(office.client(), "bag", ONE)
    later(office, UPLOADS_KEPT_S - 100.0)
    assert held(office) == [1, 1, 1]
    client = office.client()
    assert lacked(client, "bag", ONE) == [], "and this touches them"
    later(office, UPLOADS_KEPT_S - 100.0)
    assert held(office) == [1, 1, 1]
    later(office, 200.0)
    assert held(office) == [0, 0, 0]
    assert office.sessions.state.quotas._bytes["client"] == 0


@pytest.mark.parametrize("again", [False, True])
def test_what_the_tasks_of_a_bag_needed_goes_a_day_after_it_was_sent_if_all_have_ended(
    open_office: OpenOffice, again: bool
) -> None:
    office = open_office()
    client = office.client()
    ended, other = client.submit([b"0"]), client.submit([b"0"])
    store(client, ended, ONE, TWO)
    store(client, other, ONE)
    client.ask("cancel", bag=ended)
    if again:
        office.settle()
        office = open_office()
        client = office.client()
    later(office, UPLOADS_KEPT_S - 100.0)
    assert held(office) == [2, 3, 2]
    later(office, 200.0)
    assert held(office) == [1, 1, 1], "the other bag still needs one of them"
    assert office.client().ask("progress", bag=ended)["total"] == 1


def test_a_large_part_is_a_file_that_goes_with_it(office: Office, client: Client) -> None:
    data = os.urandom(wire.LARGE_BYTES)
    value = wire.Chunks([memoryview(data)])
    office.journal.values.keep(value)
    offer(client, "bag", data)
    (peer,) = office.sessions.clients.by_peer
    # The loop writes the file before the message is handled.
    office.sessions.receive(peer, CLIENT, wire.Part(2, "bag", digest(data), value), office.now)
    assert client.receive() == wire.Kept(2)
    assert office.journal.values.size_of(value.file) == len(data)
    assert office.journal.parts.part(digest(data)) is not None
    later(office, 2 * UPLOADS_KEPT_S)
    assert held(office) == [0, 0, 0]
    assert office.journal.values.size_of(value.file) == 0


# --- time ------------------------------------------------------------------------------------------------------------


def runtimes(office: Office, batch: int = 0) -> list[float]:
    its = office.bag("bag").batches[batch]
    return list(office.sessions.state.scheduler.grid.tasks.known(its.first).runtimes)


@pytest.fixture
def slow(office: Office, client: Client) -> Client:
    """A client whose next bag "bag" has tasks that need ten seconds of transfer, and one if they are not the first."""
    offer(client, "bag", ONE, first=int(10 * TRANSFER_BYTES_PER_S), each=int(TRANSFER_BYTES_PER_S))
    client.submit([b"0"], runtime=1.0)
    return client


@pytest.mark.parametrize("given", [{"runtime": 5.0}, {"runtime": None, "runtimes": (5.0,) * 70}])
def test_the_transfer_of_its_files_counts_in_a_tasks_time(slow: Client, office: Office, given: dict[str, Any]) -> None:
    assert isinstance(slow.answer_to(slow.batch("bag", [b"0"] * 70, last=False, **given)), wire.Accepted)
    assert runtimes(office) == [15.0] * 64 + [6.0] * 6, "files that tasks share count for the first on each slot"
    more = slow.batch("bag", [b"0"] * 2, first=70, runtime=5.0)
    assert isinstance(slow.answer_to(more), wire.Accepted)
    assert set(runtimes(office, 1)) == {6.0}


def test_a_grid_of_many_slots_has_as_many_first_tasks(slow: Client, office: Office) -> None:
    office.worker().join(slots=66)
    assert isinstance(slow.answer_to(slow.batch("bag", [b"0"] * 70, runtime=5.0)), wire.Accepted)
    assert runtimes(office) == [15.0] * 66 + [6.0] * 4


@pytest.mark.parametrize("again", [False, True])
def test_a_task_is_not_taken_back_while_its_files_travel(open_office: OpenOffice, again: bool) -> None:
    office = open_office()
    client = office.client()
    offer(client, "bag", ONE, first=int(10 * TRANSFER_BYTES_PER_S))
    client.submit([b"0"], runtime=1.0)
    assert isinstance(client.answer_to(client.batch("bag", [b"0"], timeout=3.0)), wire.Accepted)
    if again:
        office.settle()
        office = open_office()
    task = office.bag("bag").batches[0].first
    assert office.sessions.state.scheduler.grid.tasks.known(task).bag.timeout == 103.0


def test_the_transfer_counts_in_what_is_learned_of_a_bag(slow: Client, office: Office) -> None:
    assert isinstance(slow.answer_to(slow.batch("bag", [b"0"] * 2, runtime=None)), wire.Accepted)
    assert runtimes(office) == [70.0, 70.0]
    office.sessions.state.estimate(office.bag("bag").row.number, 2.0, office.now)
    assert set(runtimes(office)) == {3.0}


def test_after_a_restart_the_transfer_still_counts_for_a_bag_that_nobody_predicted(open_office: OpenOffice) -> None:
    office = open_office()
    client = office.client()
    offer(client, "bag", ONE, first=int(10 * TRANSFER_BYTES_PER_S), each=int(TRANSFER_BYTES_PER_S))
    client.submit([b"0"], runtime=1.0)
    assert isinstance(client.answer_to(client.batch("bag", [b"0"] * 70, runtime=None)), wire.Accepted)
    before = runtimes(office)
    office.settle()
    assert runtimes(open_office()) == before == [70.0] * 64 + [61.0] * 6
