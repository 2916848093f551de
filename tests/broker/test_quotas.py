"""One submitter cannot fill the broker up: its unfinished tasks and its stored bytes have limits."""

import re
from hashlib import sha256
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker import quotas as quotas_module
from deskgrid.broker.auth.roles import Credential
from deskgrid.scheduler.handlers.trust import WIDER_S
from tests.broker.office import CLIENT, Office, OpenOffice
from tests.peers import COMMAND, Client

OTHER = Credential("other", "submitter")


def knowing(client: Client) -> Client:
    """A client that has sent the template of its bags."""
    client.send(wire.Blob(sha256(COMMAND).hexdigest(), COMMAND))
    return client


def refusal(office: Office, items: list[bytes], who: Credential = OTHER) -> str:
    client = knowing(office.client(who))
    answer = client.answer_to(client.batch("more", items))
    return answer.reason if isinstance(answer, wire.Failed) else ""


@pytest.mark.parametrize("again", [False, True])
def test_tasks_that_have_not_ended_are_bounded_for_each_submitter(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(quotas_module, "TASKS_LIMIT", 5)
    office = open_office()
    client = office.client()
    client.submit([b"0"] * 4)
    if again:
        office.settle()
        office = open_office()
        client = office.client()
    said = client.answer_to(client.batch("more", [b"0"] * 2))
    assert isinstance(said, wire.Failed)
    assert "client has 4 tasks that have not ended, of 5: try again later" in said.reason
    assert refusal(office, [b"0"] * 5) == "", "others have a share of their own"
    worker = office.worker()
    worker.join(slots=9)
    office.now += 2 * WIDER_S  # a new worker has all its slots used by then
    worker.finish(*[work for work in worker.work(9) if work.task < 4])
    assert isinstance(client.answer_to(client.batch("now", [b"0"] * 5)), wire.Accepted)


@pytest.mark.parametrize("again", [False, True])
def test_arguments_are_bounded_for_each_submitter_until_bags_are_forgotten(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 10_000)
    office = open_office()
    client = office.client()
    bag = client.submit([bytes(900)] * 10)
    if again:
        office.settle()
        office = open_office()
        client = knowing(office.client())
    reason = str(client.answer_to(client.batch("more", [bytes(1001)])))
    assert "bytes of arguments and results here, of 10000; " in reason
    assert "are free: forget some bags" in reason
    assert refusal(office, [bytes(9000)]) == "", "others have a share of their own"
    client.ask("cancel", bag=bag)
    client.ask("forget", bag=bag)
    assert isinstance(client.answer_to(client.batch("now", [bytes(9000)])), wire.Accepted)


@pytest.mark.parametrize("again", [False, True])
def test_results_count_as_arguments_do(open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 10_000)
    office = open_office()
    client, worker = office.client(), office.worker()
    bag = client.submit([b"0", b"1"])
    worker.join()
    for size in (4_000, 5_000):
        worker.finish(*worker.work(), payload=bytes(size))
    if again:
        office.settle()
        office = open_office()
        client = knowing(office.client())
    assert "bytes of arguments and results here, of 10000" in str(
        client.answer_to(client.batch("more", [bytes(1_000)]))
    )
    client.ask("forget", bag=bag)
    assert isinstance(client.answer_to(client.batch("now", [bytes(9_000)])), wire.Accepted)


def test_what_was_accepted_once_is_accepted_again(open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    office = open_office()
    client = office.client()
    client.submit([b"0"])  # and with it, the template
    batch = client.batch("bag", [b"0"] * 3)
    assert isinstance(client.answer_to(batch), wire.Accepted)
    monkeypatch.setattr(quotas_module, "TASKS_LIMIT", 3)
    assert isinstance(client.answer_to(batch), wire.Accepted)


def test_templates_of_which_no_bag_comes_do_not_fill_the_disk(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 10_000)
    office = open_office()
    client = office.client(OTHER)
    templates = [msgpack.packb({"kind": "command", "argv": [str(number) * 3000]}) for number in range(9)]
    digests = [sha256(template).hexdigest() for template in templates]
    for digest, template in zip(digests, templates, strict=True):
        client.send(wire.Blob(digest, template))
        client.send(wire.Blob(digest, template))
    office.settle()
    assert [office.journal.template(digest) is not None for digest in digests] == [True] * 3 + [False] * 6
    assert re.search("of 10000; 8[0-9][0-9] are free: forget some bags", refusal(office, [bytes(1000)]))
    assert isinstance(office.client().submit([bytes(1000)]), str), "others have a share of their own"


def template_of(size: int, letter: str = "x") -> tuple[str, bytes]:
    """A template of about that many bytes, and its digest."""
    template: bytes = msgpack.packb({"kind": "command", "argv": [letter * size]})
    return sha256(template).hexdigest(), template


def test_a_template_over_the_quota_is_refused_with_the_reason_and_does_not_count(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 10_000)
    client = open_office().client()
    small, small_template = template_of(10)
    client.submit([bytes(900)] * 6, small_template)
    large, large_template = template_of(8_000)
    for bag in ("more", "again"):
        client.send(wire.Blob(large, large_template))
        answer = client.answer_to(client.batch(bag, [b"0"], template=large))
        assert isinstance(answer, wire.Failed)
        assert answer.reason == (
            f"bag {bag} was rejected: its template has {len(large_template)} bytes; client has "
            f"{5_400 + len(small_template)} bytes of arguments and results here, of 10000; "
            f"{4_600 - len(small_template)} are free: forget some bags"
        )
    free = bytes(4_600 - len(small_template))
    assert isinstance(client.answer_to(client.batch("fits", [free], template=small)), wire.Accepted)


def test_a_template_for_which_there_is_room_by_now_is_asked_for_again(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 10_000)
    client = open_office().client()
    bag = client.submit([bytes(5_000)])
    digest, template = template_of(8_000)
    client.send(wire.Blob(digest, template))
    client.ask("cancel", bag=bag)
    client.ask("forget", bag=bag)
    answer = client.answer_to(client.batch("more", [b"0"], template=digest))
    assert isinstance(answer, wire.Failed)
    assert answer.reason == "template: send it first"
    client.send(wire.Blob(digest, template))
    assert isinstance(client.answer_to(client.batch("more", [b"0"], template=digest)), wire.Accepted)


def test_a_template_counts_until_the_last_bag_that_uses_it_is_forgotten(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas_module, "BYTES_LIMIT", 10_000)
    office = open_office()
    client = office.client()
    for letter in "abc":
        _, template = template_of(6_000, letter)
        for bag in [client.submit([b"0"], template) for _ in range(2)]:
            assert "are free: forget some bags" in refusal(office, [bytes(5_000)], CLIENT)
            client.ask("cancel", bag=bag)
            client.ask("forget", bag=bag)
            client.ask("status")  # by then, all orders of this client were carried out
    assert isinstance(client.submit([bytes(9_000)]), str), "nothing counts any more"


def one_by_one(client: Client, *bags: str, each: int = 4, **changes: Any) -> list[str]:
    """Submit tasks one by one, to the bags in turn; why they were refused."""
    answers = [
        client.answer_to(client.batch(bag, [f"{bag}{item}".encode()], first=item, last=False, **changes))
        for item in range(each)
        for bag in bags
    ]
    return [answer.reason for answer in answers if isinstance(answer, wire.Failed)]


@pytest.mark.parametrize("again", [False, True])
def test_tasks_that_are_submitted_one_by_one_make_one_batch_with_all_that_is_known_of_each(
    open_office: OpenOffice, again: bool
) -> None:
    office = open_office()
    client = office.client()
    client.submit([b"0"])
    assert one_by_one(client, "bag") == []
    client.ask("runtimes", bag="bag", items=[1, 3], runtimes=[5.0, 7.0])
    assert isinstance(client.answer_to(client.batch("bag", [b"bag4"], first=4)), wire.Accepted)
    if again:
        office.settle()
        office = open_office()
    assert len(office.bag("bag").batches) == 1
    tasks = office.sessions.state.scheduler.grid.tasks
    assert [tasks.runtime(1 + item) for item in range(5)] == [1.0, 5.0, 1.0, 7.0, 1.0]
    worker = office.worker()
    worker.join(slots=6)
    office.now += 2 * WIDER_S
    assert [work.payload for work in sorted(worker.work(6))] == [b"0", *(f"bag{n}".encode() for n in range(5))]
    tasks.check()


@pytest.mark.parametrize("again", [False, True])
def test_batches_are_bounded_for_each_submitter_and_for_all_but_those_that_join_others_count_once(
    open_office: OpenOffice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(quotas_module, "BATCHES_LIMIT", 9)
    monkeypatch.setattr(quotas_module, "BATCHES_LIMIT_ALL", 11)
    office = open_office()
    client = office.client()
    client.submit([b"0"])
    assert one_by_one(client, "long", each=20) == []
    assert one_by_one(client, "in", "turns", each=3) == []
    if again:
        office.settle()
        office = open_office()
        client = office.client()
    assert one_by_one(client, "one", "two", each=1) == [
        "bag two was rejected: client has submitted 9 batches that are here, of 9: "
        "submit more tasks at once, and forget some bags that have ended"
    ]
    assert isinstance(client.answer_to(client.batch("one", [b"0"], first=1)), wire.Accepted), "it joins the last one"
    assert refusal(office, [b"0"]) == "", "others have a share of their own"
    others = knowing(office.client(Credential("third", "submitter")))
    assert one_by_one(others, "three", "four", each=1) == [
        "bag four was rejected: there are 11 batches here, of 11: some bags have to be forgotten"
    ]
    client.ask("cancel", bag="in")
    client.ask("forget", bag="in")
    assert one_by_one(others, "four", each=1) == []
    assert one_by_one(client, "two", each=1) == []
