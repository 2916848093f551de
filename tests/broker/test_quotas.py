"""One submitter does not fill the broker up: tasks that have not ended, and bytes that are kept, have limits."""

from hashlib import sha256

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker import quotas as quotas_module
from deskgrid.broker.auth.roles import Credential
from deskgrid.scheduler.trust import WIDER_S
from tests.broker.office import Office, OpenOffice

OTHER = Credential("other", "submitter")


def refusal(office: Office, items: list[bytes], who: Credential = OTHER) -> str:
    client = office.client(who)
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
        client = office.client()
    assert "bytes of arguments and results here, of 10000: forget some bags" in str(
        client.answer_to(client.batch("more", [bytes(1001)]))
    )
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
        client = office.client()
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
    assert "of 10000: forget some bags" in refusal(office, [bytes(1000)])
    assert isinstance(office.client().submit([bytes(1000)]), str), "others have a share of their own"
