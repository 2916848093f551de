"""Values that are too large, too deeply nested or not clean are refused on arrival, and by honest senders before."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.model.failed_attempts import with_crash_sites
from deskgrid.broker.store.rows import ResultRow
from tests.broker.office import Office
from tests.peers import BareWorker

# An account with a message nested 1,000 deep: it can be unpacked, and then not be printed or packed again.
NESTED = b"\x94\xa1k" + b"\x91" * 1000 + b"\x90\xa1t\xc4\x00"
UNREADABLE = "unreadable account: what the worker said of it cannot be read"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    office.close()


def joined(office: Office, name: str = "pc1", **changes: Any) -> BareWorker:
    worker = office.worker(name)
    worker.join(**changes)
    return worker


# --- accounts of failures --------------------------------------------------------------------------------------------


def test_a_crash_told_of_by_a_nested_account_does_not_end_the_broker(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"])
    worker = joined(office)
    for _ in range(3):
        worker.finish(*worker.work(), outcome=wire.Outcome.CRASH, payload=NESTED)
    (result,) = client.results(bag)
    assert wire.read_failure(result.payload).message.endswith("(crashed 3 times, on pc1, pc1, pc1)")
    assert client.ask("logs", bag=bag, item=0)["error"].startswith(UNREADABLE)


@pytest.mark.parametrize("payload", [NESTED, msgpack.packb({"kind": "k", "message": "m"}), bytes(2**20)])
def test_an_error_told_of_by_a_nested_account_can_be_asked_about(office: Office, payload: bytes) -> None:
    client = office.client()
    bag = client.submit([b"0"])
    worker = joined(office)
    worker.finish(*worker.work(), outcome=wire.Outcome.ERROR, payload=payload)
    assert client.ask("logs", bag=bag, item=0)["error"] == UNREADABLE


def test_an_account_that_an_older_broker_wrote_down_can_be_asked_about(tmp_path: Path) -> None:
    office = Office(tmp_path)
    client = office.client()
    bag = client.submit([b"0"])
    row = ResultRow(0, office.bag(bag).row.number, 0, 1, 0.5, "pc\x1b[2J", 1, NESTED, bytes(2**20), b"\x1b", 1.0)
    office.journal.add_results([row])
    office.close()
    office = Office(tmp_path)
    client = office.client()
    logs = client.ask("logs", bag=bag, item=0)
    assert logs["error"] == UNREADABLE
    assert len(logs["stdout"]) < wire.PRINTED_BYTES + 100
    assert f"{2**20 - wire.PRINTED_BYTES:,} bytes are left out" in logs["stdout"]
    (result,) = wire.results_in(client.watch(bag))
    assert result.worker == "pc?[2J"
    office.close()


def test_the_workers_of_a_crash_are_named_behind_the_longest_message() -> None:
    account = wire.Failure("Crash", "x" * 10**6).packed()
    message = wire.read_failure(with_crash_sites(account, ["n" * 255] * 3)).message
    assert message.endswith(f"(crashed 3 times, on {', '.join(['n' * 255] * 3)})")
    assert len(message) <= wire.ACCOUNT_CHARACTERS


# --- names and texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "9" * 5000}, "Join.name: a text of more than 255 bytes"),
        ({"site": "s" * 2**20}, "not a message that may have more than 1,048,576 bytes"),
        ({"site": "s" * 256}, "Join.site: a text of more than 255 bytes"),
        ({"session": "a b"}, "Join.session: not 1 to 64 letters"),
        ({"slots": 1025}, "Join.slots: not an integer from 1 to 1024: 1025"),
        ({"windows": ((1.0, 1.0),) * 65}, "Join.windows: 65 values where there are at most 64"),
        ({"running": ((1, 1, 1, None),) * 8_193}, "Join.running: 8,193 values where there are at most 8,192"),
    ],
)
def test_an_introduction_that_is_too_much_is_refused(office: Office, changes: dict[str, Any], reason: str) -> None:
    join = office.worker().introduction(**changes)
    if len(join.name) > wire.NAME_BYTES or len(join.site) > wire.NAME_BYTES:
        # Our own side would send its beginning.
        array = msgpack.unpackb(wire.encode(replace(join, name="", site="")))
        array[3], array[7] = join.name, join.site
        data = msgpack.packb(array)
    else:
        data = wire.encode(join)
    with pytest.raises(wire.ProtocolError, match=reason):
        wire.decode(data)


def test_text_is_clean_from_where_it_enters(office: Office) -> None:
    client = office.client()
    worker = joined(office, "pc1", host="pc\x1b[2J", site="\u202elab", plan="until\n18:30")
    bag = client.submit([b"0"], name="sweep\x07")
    told = client.ask("status")
    assert [(w["host"], w["site"], w["plan"]) for w in told["workers"]] == [("pc?[2J", "?lab", "until?18:30")]
    assert [row["name"] for row in told["bags"]] == ["sweep?"]
    worker.finish(*worker.work())
    assert len(client.results(bag)) == 1


def test_namesakes_with_the_longest_name_are_told_apart(office: Office) -> None:
    names = [joined(office, "n" * wire.NAME_BYTES).join().name for _ in range(12)]
    assert len(set(names)) == len(names)
    assert all(not wire.is_longer(name, wire.NAME_BYTES) for name in names)
    assert names[-1].endswith("...~12")


def test_a_reason_that_repeats_what_was_asked_is_short(office: Office) -> None:
    client = office.client()
    assert len(client.failed("weather" * 30, place="x" * 10_000)) < 500
    assert len(client.failed("policy", name="\x1b" * 100_000)) <= wire.LINE_BYTES


# --- templates -------------------------------------------------------------------------------------------------------


def test_a_template_of_many_small_things_is_known_by_its_beginning(office: Office) -> None:
    filled = b"\x82\xa4kind\xa7command\xa4argv\xdd\x00\x20\x00\x00" + b"\x90" * 2**21
    client = office.client()
    bag = client.submit([b"0"], template=filled)
    assert [row["bag"] for row in client.ask("bags")["bags"]] == [bag]


def test_an_answer_that_would_be_too_long_is_refused_with_a_reason(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = office.client()
    monkeypatch.setattr(wire, "ANSWER_BYTES", 100)
    assert client.failed("status") == "the answer has more than 100 bytes"
    assert json.dumps(client.ask("ping")) == "{}"
