"""Submitting: what is accepted, exactly once; what is refused, and why; what the submitter is told at once."""

import secrets
from dataclasses import replace
from hashlib import sha256
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.model.need_notes import NO_WORKER, WAIT
from deskgrid.broker.peers.watchers import RECEIPT_S
from tests.broker.office import ADMIN, Office
from tests.peers import COMMAND, Client

PYTHON: bytes = msgpack.packb({"kind": "python", "python": wire.this_system().python, "function": b"", "bundle": {}})
DIGEST = sha256(COMMAND).hexdigest()


@pytest.fixture
def client(office: Office) -> Client:
    """A client that has sent the template."""
    greeted = office.client()
    greeted.send(wire.Blob(DIGEST, COMMAND))
    return greeted


def reason(client: Client, submit: wire.Submit) -> str:
    answer = client.answer_to(submit)
    assert isinstance(answer, wire.Failed), answer
    assert answer.reason.isprintable()
    return answer.reason


def note(client: Client, submit: wire.Submit) -> str:
    answer = client.answer_to(submit)
    assert isinstance(answer, wire.Accepted), answer
    assert answer.bag == submit.bag
    return answer.note


def row(client: Client, bag: str) -> Any:
    return client.ask("progress", bag=bag)


def test_a_bag_in_one_batch(client: Client) -> None:
    note(client, client.batch("b1", [b"1", b"2"]))
    assert (row(client, "b1")["total"], row(client, "b1")["closed"]) == (2, True)


def test_a_bag_in_several_batches_is_open_until_the_last(client: Client) -> None:
    note(client, client.batch("b1", [b"0", b"1"], last=False))
    note(client, client.batch("b1", [b"2"], first=2, last=False))
    assert (row(client, "b1")["total"], row(client, "b1")["closed"]) == (3, False)
    note(client, client.batch("b1", [], first=3))
    assert (row(client, "b1")["total"], row(client, "b1")["closed"]) == (3, True)


def test_a_batch_sent_again_counts_once(client: Client) -> None:
    first = client.batch("b1", [b"0", b"1"], last=False)
    for _ in range(3):
        note(client, first)
    last = client.batch("b1", [b"2"], first=2)
    for _ in range(2):
        note(client, last)
    assert row(client, "b1")["total"] == 3


def test_a_batch_sent_again_after_its_bag_was_closed_is_accepted_and_changes_nothing(client: Client) -> None:
    batch = client.batch("b1", [b"0", b"1"])
    for _ in range(2):
        note(client, batch)
    assert row(client, "b1")["total"] == 2


def test_an_empty_bag_is_refused(client: Client) -> None:
    assert "the bag is empty" in reason(client, client.batch("b1", []))
    assert "no bag b1" in client.failed("progress", bag="b1")


def test_a_gap_is_refused_by_its_items(client: Client) -> None:
    note(client, client.batch("b1", [b"0", b"1"], last=False))
    assert "items 2 to 4 of bag b1 have not arrived" in reason(client, client.batch("b1", [b"5"], first=5))
    assert row(client, "b1")["total"] == 2


def test_a_later_batch_of_an_unknown_bag_is_refused(client: Client) -> None:
    assert "no bag b1" in reason(client, client.batch("b1", [b"2"], first=2))


def test_more_for_a_closed_bag_is_refused(client: Client) -> None:
    note(client, client.batch("b1", [b"0"]))
    assert "bag b1 is closed" in reason(client, client.batch("b1", [b"1"], first=1))


@pytest.mark.parametrize("runtimes", [(1.0,), (1.0, 2.0, 3.0)])
def test_runtimes_that_do_not_match_the_items_are_refused(client: Client, runtimes: tuple[float, ...]) -> None:
    said = reason(client, client.batch("b1", [b"0", b"1"], runtimes=runtimes))
    assert said == f"the batch has 2 items and {len(runtimes)} runtimes"


def test_runtimes_for_each_item_are_kept(client: Client) -> None:
    note(client, client.batch("b1", [b"0", b"1"], runtimes=(1.0, 2.5)))
    assert (row(client, "b1")["left_s"], row(client, "b1")["longest_s"]) == (3.5, 2.5)


def test_too_many_items_are_refused_and_the_bag_stays_as_it_was(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "BAG_LIMIT", 3)
    note(client, client.batch("b1", [b"0", b"1"], last=False))
    assert "at most 3 items" in reason(client, client.batch("b1", [b"2", b"3"], first=2))
    note(client, client.batch("b1", [b"2"], first=2))
    assert row(client, "b1")["total"] == 3


def test_a_first_batch_with_too_many_items_leaves_no_bag_behind(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "BAG_LIMIT", 1)
    assert "at most 1 items" in reason(client, client.batch("b1", [b"0", b"1"]))
    assert client.ask("bags") == {"bags": [], "after": None}


def test_a_batch_larger_than_ours_ever_are_harms_nobody(office: Office, client: Client) -> None:
    with pytest.raises(wire.ProtocolError, match="10,001 values where there are at most 10,000"):
        client.send(client.batch("b1", [b"0"] * (wire.BATCH_ROWS + 1)))
    assert client.ask("status")["schema"] == 2


def test_an_item_that_is_too_large_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PAYLOAD_LIMIT", 10)
    assert "larger than 10 bytes" in reason(client, client.batch("b1", [b"0", bytes(11)]))
    note(client, client.batch("b1", [b"0", bytes(10)]))


# --- templates -------------------------------------------------------------------------------------------------------


def test_a_bag_without_its_template_is_asked_for_it(office: Office) -> None:
    client = office.client()
    batch = client.batch("b1", [b"0"])
    assert reason(client, batch).startswith("template:")
    client.send(wire.Blob(DIGEST, COMMAND))
    note(client, batch)


@pytest.mark.parametrize(
    ("digest", "data"),
    [
        (DIGEST, COMMAND[:-1]),
        ("0" * 64, COMMAND),
        (sha256(b"").hexdigest(), b""),
        (sha256(b"\xc1").hexdigest(), b"\xc1"),
        (sha256(b"\x90").hexdigest(), b"\x90"),
        (sha256(b"\x91" * 5000).hexdigest(), b"\x91" * 5000),
        *[
            (sha256(data).hexdigest(), data)
            for data in map(msgpack.packb, ({"kind": "shell"}, {"kind": ["command"]}, {"kind": {}}, {"argv": ["true"]}))
        ],
    ],
)
def test_a_damaged_template_is_refused(office: Office, digest: str, data: bytes) -> None:
    client = office.client()
    client.send(wire.Blob(digest, data))
    assert "not a template, or it was damaged" in client.refusal()
    assert reason(client, client.batch("b1", [b"0"], template=digest)).startswith("template:")


def calls(client: Client, bag: str, python: str) -> wire.Submit:
    """The first batch of a bag of calls, whose program has this Python."""
    client.send(wire.Blob(sha256(PYTHON).hexdigest(), PYTHON))
    template = sha256(PYTHON).hexdigest()
    return client.batch(bag, [b"0"], template=template, options=wire.TaskOptions(python=python))


def test_functions_that_no_pc_can_load_are_refused_and_say_which_pythons_there_are(
    office: Office, client: Client
) -> None:
    office.worker("old").join(pythons=("3.9",))
    office.worker("new").join(pythons=("3.14", "3.11"))
    said = reason(client, calls(client, "b1", "3.12"))
    assert said.startswith("no PC has Python 3.12: they have 3.9, 3.11 and 3.14: run the program with a Python that")
    assert client.ask("bags") == {"bags": [], "after": None}
    assert note(client, calls(client, "b3", "3.11")) == ""


def test_functions_wait_for_a_pc_with_their_python_and_run_nowhere_else(office: Office, client: Client) -> None:
    assert note(client, calls(client, "b1", "3.12")).startswith(NO_WORKER)
    other, right = office.worker("other"), office.worker("right")
    other.join(pythons=("3.11",))
    office.settle()
    assert client.ask("explain", bag="b1", item=0)["text"][0] == (
        "no PC has Python 3.12: they have 3.11; the tasks wait until that changes"
    )
    right.join(pythons=("3.11", "3.12"))
    (work,) = right.work()
    assert work.options.python == "3.12"
    assert client.submit([b"1"]), "commands run on any"
    assert other.work()[0].options.python is None


# --- what is said at once --------------------------------------------------------------------------------------------


def test_a_bag_is_noted_to_wait_when_no_worker_is_known(office: Office, client: Client) -> None:
    assert note(client, client.batch("b1", [b"0"])) == f"{NO_WORKER}; {office.sessions.state.facts.joining}"


def test_whom_to_ask_for_the_line_of_pcs_is_said_and_without_keys_what_to_run(office: Office) -> None:
    facts = office.sessions.state.facts
    assert replace(facts, encrypted=True).joining.endswith(" from deskgrid keys add lab NAME")
    insecure = replace(facts, encrypted=False, address="127.0.0.1:7077")
    assert insecure.joining.endswith(" with deskgrid worker --broker 127.0.0.1:7077")


def test_nothing_is_noted_when_everything_fits(office: Office, client: Client) -> None:
    office.worker().join(uptime=100.0)
    assert note(client, client.batch("b1", [b"0"], runtime=10.0)) == ""


def test_nothing_is_noted_when_a_worker_is_open_ended(office: Office, client: Client) -> None:
    office.worker().join()
    assert note(client, client.batch("b1", [b"0"], runtime=1e9)) == ""


@pytest.mark.parametrize("open_now", [True, False])
def test_tasks_longer_than_any_window_are_accepted_and_counted(office: Office, client: Client, open_now: bool) -> None:
    if open_now:
        office.worker().join(uptime=100.0)
    else:
        office.worker().join(uptime=0.0, windows=(wire.Window(50.0, 100.0),))
    said = note(client, client.batch("b1", [b"0", b"1", b"2"], runtimes=(500.0, 5.0, 500.0)))
    assert said.startswith("2 of 3 tasks are longer than any window known: the longest is 1 min 40 s")
    assert row(client, "b1")["note"] == said
    said = note(client, client.batch("b2", [b"0", b"1"], runtime=500.0))
    assert said.startswith("2 of 2 tasks")


def test_the_note_of_tasks_too_long_says_for_which_speed_the_longest_window_counts(
    office: Office, client: Client
) -> None:
    office.worker().join(uptime=100.0, speed=0.5)
    said = note(client, client.batch("b1", [b"0"], runtime=500.0))
    assert said.startswith(
        "its task is longer than any window known: the longest is 50 s for a PC of speed 1 "
        "(1 min 40 s on one of speed 0.5), less 1 s"
    )


@pytest.mark.parametrize("has", [{"labels": ("gpu",)}, {"memory": 8 * 2**30}])
@pytest.mark.parametrize("away", [False, True])
def test_the_note_of_tasks_too_long_looks_only_at_pcs_that_have_what_they_need(
    office: Office, client: Client, has: dict[str, Any], away: bool
) -> None:
    office.worker("long").join(memory=2**30)
    short = office.worker("short")
    short.join(uptime=80.0, **has)
    if away:
        short.send(wire.Leave("window closes", True, False, (wire.Window(50.0, 80.0),), ()))
    options = wire.TaskOptions(**({"labels": ("gpu",)} if "labels" in has else {"memory": 4 * 2**30}))
    said = note(client, client.batch("b1", [b"0"], runtime=500.0, options=options))
    which = "the label gpu" if "labels" in has else "4 G of memory"
    assert said.startswith(f"its task is longer than any window known of PCs with {which}: the longest is 1 min 20 s")


def test_a_bag_that_was_submitted_before_any_pc_says_what_those_lack_that_have_come(
    office: Office, client: Client
) -> None:
    options = wire.TaskOptions(labels=("gpu",))
    bag = client.submit([b"0"], runtime=500.0, options=options)
    office.worker("plain").join()
    assert client.ask("bags")["bags"][0]["note"] == f"no PC has the label gpu; {WAIT}"
    office.worker("short").join(uptime=80.0, labels=("gpu",))
    (row,) = client.ask("bags")["bags"]
    assert row["bag"] == bag
    assert "longer than any window known of PCs with the label gpu" in row["note"]


def test_a_coming_window_that_is_long_enough_needs_no_note(office: Office, client: Client) -> None:
    office.worker().join(uptime=10.0, windows=(wire.Window(50.0, 1000.0),))
    assert note(client, client.batch("b1", [b"0"], runtime=500.0)) == ""


def test_a_policy_that_does_not_look_at_windows_notes_nothing(office: Office, client: Client) -> None:
    office.worker().join(uptime=100.0)
    office.client(ADMIN).ask("policy", name="fcfs")
    assert note(client, client.batch("b1", [b"0"], runtime=500.0)) == ""


# --- who submits -----------------------------------------------------------------------------------------------------


def test_a_client_that_was_not_greeted_is_asked_to_introduce_itself(office: Office) -> None:
    stranger = office.client(greet=False)
    for message in (stranger.batch("b1", [b"0"]), wire.Watch(1, "b1", 0), wire.Ask(2, "bags")):
        stranger.send(message)
        stranger.expect(wire.Rejoin)


def test_a_client_that_said_goodbye_is_a_stranger_again(client: Client) -> None:
    client.send(wire.Goodbye("done"), wire.Ask(1, "bags"))
    client.expect(wire.Rejoin)


def test_whoever_is_of_another_deskgrid_is_named_in_the_log(office: Office) -> None:
    worker, client = office.worker("lab3-07"), office.client(greet=False)
    worker.send(worker.introduction(version="0.0.9"))
    client.send(wire.Hello("0.0.8", "s", "ada"))
    both = [line for line in office.sessions.state.take_notices() if line.startswith("refused ")]
    assert [line.partition(" reason=")[0] for line in both] == [
        "refused name='lab3-07' version='0.0.9'",
        "refused name='ada' version='0.0.8'",
    ]


def test_a_client_of_another_deskgrid_is_refused_by_both_versions(office: Office) -> None:
    stranger = office.client(greet=False)
    stranger.send(wire.Hello("0.0.9", "s", "ada"))
    said = stranger.refusal()
    assert wire.VERSION in said
    assert "0.0.9" in said


def test_the_broker_tells_its_python(office: Office) -> None:
    stranger = office.client(greet=False)
    stranger.send(wire.Hello(wire.VERSION, "s", "ada"))
    assert stranger.expect(wire.Greeting) == wire.Greeting(wire.VERSION, "b" * 12)


# --- results ---------------------------------------------------------------------------------------------------------


def finish(office: Office, count: int, payload: bytes = b"value") -> None:
    """A worker of so many slots comes and does the work there is."""
    worker = office.worker(f"pc{secrets.token_hex(2)}")
    worker.join(slots=count)
    work = worker.work(count)
    office.now += 1.0
    worker.finish(*work, payload=payload)


def test_a_watcher_hears_of_what_has_ended_at_once(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0", b"1"]))
    finish(office, 2)
    outcomes = client.watch("b1")
    results = wire.results_in(outcomes)
    assert sorted(result.item for result in results) == [0, 1]
    assert {(result.outcome, result.elapsed, result.payload) for result in results} == {(0, 0.5, b"value")}
    assert (outcomes.settled, outcomes.total, outcomes.closed) == (2, 2, True)
    assert client.watch("b1", outcomes.after).results == ()


def test_a_watcher_waits_until_there_is_something(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0", b"1"]))
    client.send(wire.Watch(77, "b1", 0))
    assert client.line.receive(0.0) is None
    finish(office, 1)
    outcomes = client.expect(wire.Outcomes)
    assert (outcomes.request, len(outcomes.results), outcomes.settled, outcomes.total) == (77, 1, 1, 2)
    assert client.line.receive(0.0) is None


def test_a_repeated_watch_is_answered_once(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"]))
    for _ in range(3):
        client.send(wire.Watch(77, "b1", 0))
        assert client.line.receive(0.0) is None
    finish(office, 1)
    client.expect(wire.Outcomes)
    assert client.line.receive(0.0) is None


def test_several_watchers_each_get_what_they_have_not_seen(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0", b"1"]))
    worker = office.worker()
    worker.join(slots=2)
    one, another = worker.work(2)
    worker.finish(one)
    after = client.watch("b1").after
    other = office.client()
    client.send(wire.Watch(5, "b1", after))
    assert client.line.receive(0.0) is None
    other.send(wire.Watch(6, "b1", 0))
    assert len(other.expect(wire.Outcomes).results) == 1
    worker.finish(another)
    assert len(client.expect(wire.Outcomes).results) == 1


def test_a_watcher_of_an_open_bag_with_all_results_hears_when_it_is_closed(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"], last=False))
    finish(office, 1)
    after = client.watch("b1").after
    client.send(wire.Watch(5, "b1", after))
    assert client.line.receive(0.0) is None
    submit = client.batch("b1", [], first=1)
    client.send(submit)
    told = client.expect(wire.Outcomes)
    assert (told.closed, told.receipts) == (True, (submit.request,))


def add_and_wait(client: Client) -> None:
    """It waits for results of a bag, and adds to that: nothing is said yet."""
    note(client, client.batch("b1", [b"0"], last=False))
    client.send(wire.Watch(77, "b1", 0))
    client.send(client.batch("b1", [b"1"], first=1, last=False))
    assert client.line.receive(0.0) is None


def test_the_receipt_for_more_goes_with_the_results_that_are_waited_for(office: Office, client: Client) -> None:
    add_and_wait(client)
    finish(office, 1)
    told = client.expect(wire.Outcomes)
    assert (told.request, len(told.receipts)) == (77, 1)
    assert not office.sessions.owing
    assert client.line.receive(0.0) is None


def test_a_batch_can_ask_for_results_too(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"], last=False))
    submit = client.batch("b1", [b"1"], first=1, last=False, watch=78, after=0)
    client.send(submit)
    assert client.line.receive(0.0) is None
    finish(office, 1)
    told = client.expect(wire.Outcomes)
    assert (told.request, told.receipts) == (78, (submit.request,))


def test_a_batch_that_is_refused_asks_for_nothing(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"], last=False))
    client.send(client.batch("b1", [b"2"], first=2, last=False, watch=78, after=0))
    client.expect(wire.Failed)
    finish(office, 1)
    assert client.line.receive(0.0) is None
    assert not office.bag("b1").watchers


def test_what_there_is_to_say_of_a_batch_is_not_left_to_its_results(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"], last=False, runtime=1.0))
    client.send(wire.Watch(77, "b1", 0))
    client.send(client.batch("b1", [b"1"], first=1, last=False))
    assert client.line.receive(0.0) is None
    office.bag("b1").note = "look here"
    client.send(client.batch("b1", [], first=2, last=True))
    finish(office, 2)
    assert client.expect(wire.Outcomes).receipts == ()
    before = f"{NO_WORKER}; {office.sessions.state.facts.joining}"
    assert {client.expect(wire.Accepted).note for _ in range(2)} == {before, "look here"}


def test_the_receipt_for_more_does_not_wait_long_for_results(office: Office, client: Client) -> None:
    add_and_wait(client)
    assert office.sessions.owing
    office.now += RECEIPT_S
    client.expect(wire.Accepted)
    assert not office.sessions.owing


def test_a_broker_that_stops_leaves_no_receipt_unsent(office: Office, client: Client) -> None:
    add_and_wait(client)
    office.deliver(office.sessions.farewell("it stops"))
    client.expect(wire.Goodbye)
    client.expect(wire.Accepted)


def test_watching_an_unknown_bag_fails(client: Client) -> None:
    client.send(wire.Watch(5, "b1", 0))
    assert client.expect(wire.Failed) == wire.Failed(5, "no bag b1: see deskgrid bags")


def test_results_of_a_client_that_went_away_are_there_for_the_next(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"]))
    client.send(wire.Watch(5, "b1", 0), wire.Goodbye("done"))
    finish(office, 1)
    assert client.line.receive(0.0) is None
    assert len(office.client().results("b1")) == 1


def test_a_watcher_whose_connection_broke_costs_nothing(office: Office, client: Client) -> None:
    note(client, client.batch("b1", [b"0"]))
    client.send(wire.Watch(5, "b1", 0))
    client.close()
    finish(office, 1)
    other = office.client()
    assert len(other.results("b1")) == 1
    assert other.ask("status")["broker"]["clients"] == 1


def test_the_kinds_of_templates_are_those_that_a_worker_runs() -> None:
    assert wire.KINDS == ("python", "command")


def test_when_workers_have_come_the_note_that_there_are_none_is_made_anew(office: Office) -> None:
    client = office.client()
    for runtime in (10.0, 1000.0):
        client.submit([b"0", b"1"], runtime=runtime)
    assert all(row["note"].startswith(NO_WORKER) for row in client.ask("bags")["bags"])
    office.worker().join(uptime=100.0, kind="until")
    short, long = client.ask("bags")["bags"]
    assert short["note"] == ""
    assert long["note"].startswith("some of 2 tasks are longer than any window known: the longest is ")
