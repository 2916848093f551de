"""Questions and orders: each kind of `Ask`, its answer, and the error if it makes no sense."""

import json
import math
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.work.live_output import PATIENCE_S
from deskgrid.scheduler.handlers.retrying import AT_ONCE
from tests.broker.office import ADMIN, Office
from tests.peers import BareWorker, Client


@pytest.fixture
def client(office: Office) -> Client:
    return office.client()


def joined(office: Office, slots: int = 1, name: str = "pc1", **changes: Any) -> BareWorker:
    worker = office.worker(name)
    worker.join(slots=slots, **changes)
    return worker


def counts(client: Client, bag: str) -> dict[str, int]:
    """The counts of a bag that are not 0."""
    row = client.ask("progress", bag=bag)
    names = ("done", "failed", "cancelled", "running", "waiting")
    assert sum(row[name] for name in names) == row["total"]
    return {name: row[name] for name in names if row[name]}


def test_a_sign_of_life_is_an_answer_with_nothing_in_it(client: Client) -> None:
    assert client.ask("ping") == {}


# --- bags and progress -----------------------------------------------------------------------------------------------


def test_progress_counts_each_task_once(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2", b"3", b"4"], runtime=10.0)
    assert counts(client, bag) == {"waiting": 5}
    worker = joined(office, 3)
    first, second, third = worker.work(3)
    assert counts(client, bag) == {"running": 3, "waiting": 2}
    worker.finish(first)
    worker.finish(second, outcome=wire.Outcome.ERROR, payload=msgpack.packb(["E", "m", "", b""]))
    client.ask("cancel", bag=bag, items=[4])
    office.settle()
    assert counts(client, bag) == {"done": 1, "failed": 1, "cancelled": 1, "running": 2}
    assert third.slot in (0, 1, 2)


def test_progress_predicts_what_is_left(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2", b"3"], runtime=10.0)
    joined(office, 2)
    office.settle()
    row = client.ask("progress", bag=bag)
    assert (row["left_s"], row["longest_s"], row["eta_s"]) == (40.0, 10.0, None), "nobody has asked for an estimate"
    row = client.ask("progress", bag=bag, eta=True)
    assert 10.0 < row["eta_low_s"] < 20.0 < row["eta_s"] < 40.0 < row["eta_high_s"] < 120.0
    office.now = 5.0
    assert client.ask("progress", bag=bag)["age_s"] == 5.0


def test_bags_are_listed_in_the_order_they_came(client: Client) -> None:
    made = [client.submit([b"0"], name=f"bag {n}") for n in range(3)]
    rows = client.ask("bags")["bags"]
    assert [(row["bag"], row["name"]) for row in rows] == [(bag, f"bag {n}") for n, bag in enumerate(made)]
    assert rows[1] == client.ask("progress", bag=made[1])


@pytest.mark.parametrize("what", ["progress", "cancel", "explain", "logs", "forget", "runtimes"])
def test_an_unknown_bag_is_named(client: Client, what: str) -> None:
    all_more: dict[str, dict[str, Any]] = {"logs": {"item": 0}, "runtimes": {"items": [0], "runtimes": [1.0]}}
    more = all_more.get(what, {})
    assert client.failed(what, bag="b1", **more) == "no bag b1: see deskgrid bags"
    assert client.failed(what) == "bag is missing"
    assert client.failed(what, bag=7) == "bag: expected str, got int"


@pytest.mark.parametrize("args", [b"", b"\x81", b"\x90", b"\x01", b"\xc0", msgpack.packb("text"), b"\x91" * 100_000])
def test_arguments_that_are_no_map_are_refused(client: Client, args: bytes) -> None:
    client.send(wire.Ask(5, "bags", args))
    answer = client.expect(wire.Failed)
    assert answer.request == 5
    assert answer.reason.startswith(("not a packed map", "expected a map"))


def test_a_question_that_does_not_exist_is_refused(client: Client) -> None:
    assert client.failed("weather") == "this broker does not know the question 'weather'"


def test_what_is_no_id_is_not_looked_up(client: Client) -> None:
    assert client.failed("progress", bag="a b") == "bag: not the id of a bag"


def test_half_a_surrogate_pair_in_a_question_harms_nobody(client: Client) -> None:
    assert client.failed("progress", bag="\ud800") == "no bag ?: see deskgrid bags"


# --- cancel and forget -----------------------------------------------------------------------------------------------


def test_cancelling_a_bag_stops_what_runs_and_closes_it(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2"], last=False)
    worker = joined(office)
    (work,) = worker.work()
    assert client.ask("cancel", bag=bag) == {"cancelled": 3}
    assert counts(client, bag) == {"cancelled": 3}
    assert client.ask("progress", bag=bag)["closed"]
    assert worker.expect(wire.Stop).attempts == (wire.Ref(work.task, work.number),)
    assert {result.outcome for result in client.results(bag)} == {wire.Outcome.CANCELLED}
    assert client.ask("cancel", bag=bag) == {"cancelled": 0}


def test_cancelling_some_items_leaves_the_others_and_the_bag_open(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2"], last=False)
    assert client.ask("cancel", bag=bag, items=[0, 2]) == {"cancelled": 2}
    assert counts(client, bag) == {"cancelled": 2, "waiting": 1}
    assert not client.ask("progress", bag=bag)["closed"]


def test_an_item_named_twice_is_cancelled_once(client: Client) -> None:
    bag = client.submit([b"0", b"1"])
    assert client.ask("cancel", bag=bag, items=[1, 1, 1]) == {"cancelled": 1}


def test_what_a_worker_says_of_a_cancelled_task_is_not_recorded(office: Office, client: Client) -> None:
    bag = client.submit([b"0"])
    worker = joined(office)
    work = worker.work()
    client.ask("cancel", bag=bag)
    office.settle()
    worker.expect(wire.Stop)
    worker.finish(*work)
    assert [result.outcome for result in client.results(bag)] == [wire.Outcome.CANCELLED]


@pytest.mark.parametrize("items", [[5], [0, 2], [-1], ["0"], [None], [True], [0.0], 2, "01", {}, [[0]], [2**64 - 1]])
def test_items_that_do_not_exist_are_refused_and_nothing_is_cancelled(client: Client, items: object) -> None:
    bag = client.submit([b"0", b"1"])
    said = client.failed("cancel", bag=bag, items=items)
    whole = items in ([5], [0, 2])
    assert (f"bag {bag} has no item" if whole else "items: ") in said
    assert ("items are numbered from 0, and it has 2" if whole else "") in said
    assert counts(client, bag) == {"waiting": 2}


def test_a_bag_that_is_not_finished_is_not_forgotten(client: Client) -> None:
    bag = client.submit([b"0"])
    assert "has not ended; cancel it first" in client.failed("forget", bag=bag)
    bag = client.submit([b"0"], last=False)
    client.ask("cancel", bag=bag, items=[0])
    assert "has not ended" in client.failed("forget", bag=bag)


def test_a_forgotten_bag_is_unknown_and_others_are_as_before(office: Office, client: Client) -> None:
    first, second = client.submit([b"0"]), client.submit([b"1"])
    worker = joined(office, 2)
    one, other = worker.work(2)
    worker.finish(one)
    assert client.ask("forget", bag=first) == {}
    assert client.failed("progress", bag=first) == f"no bag {first}: see deskgrid bags"
    assert client.failed("forget", bag=first) == f"no bag {first}: see deskgrid bags"
    worker.finish(other)
    assert [result.item for result in client.results(second)] == [0]


def test_cancelling_and_forgetting_in_one_breath(office: Office, client: Client) -> None:
    bag = client.submit([b"0"])
    for request, what in ((5, "cancel"), (6, "forget"), (7, "bags")):
        client.send(wire.Ask(request, what, wire.pack_record({} if what == "bags" else {"bag": bag})))
    answers = [client.expect(wire.Answer) for _ in range(3)]
    assert [json.loads(answer.body) for answer in answers] == [{"cancelled": 1}, {}, {"bags": [], "after": None}]


def test_a_worker_that_leaves_with_a_task_of_a_forgotten_bag_harms_nobody(office: Office, client: Client) -> None:
    bag = client.submit([b"0"])
    worker = joined(office)
    (work,) = worker.work()
    client.ask("cancel", bag=bag)
    client.ask("forget", bag=bag)
    worker.send(wire.Leave("its window closed", True, False, (), (wire.Running(work.task, work.number, 0, 99.0),)))
    office.settle()
    assert client.ask("status")["workers"][0]["state"] == "away"


# --- explain ---------------------------------------------------------------------------------------------------------


def test_a_task_waits_because_nobody_is_there(client: Client) -> None:
    bag = client.submit([b"0"], runtime=30.0)
    answer = client.ask("explain", bag=bag, item=0)
    assert answer["text"] == ["task 0 (predicted 30 s) waits: no worker is connected"]
    assert (answer["waiting"], answer["longest_s"], answer["slots"], answer["coming"]) == (1, 30.0, [], [])


def test_a_task_waits_because_windows_are_too_short(office: Office, client: Client) -> None:
    joined(office, uptime=100.0, windows=(wire.Window(1000.0, 200.0), wire.Window(5000.0, 900.0)))
    bag = client.submit([b"0"], runtime=500.0)
    office.settle()
    answer = client.ask("explain", bag=bag, item=0)
    (slot,) = answer["slots"]
    assert (slot["worker"], slot["slot"], slot["left_s"], slot["reason"]) == ("pc1", 0, 100.0, "too short")
    assert 400.0 <= slot["short_s"] < 402.0
    assert [(w["worker"], w["starts_in_s"], w["lasts_s"], w["fits"]) for w in answer["coming"]] == [
        ("pc1", 5000.0, 900.0, True),
    ]
    text = "\n".join(answer["text"])
    assert "pc1 slot 0: 1 min 40 s left" in text
    assert "pc1: window in 1 h 23 min for 15 min: fits" in text


def test_a_task_longer_than_any_window_is_told_so(office: Office, client: Client) -> None:
    joined(office, uptime=100.0)
    bag = client.submit([b"0"], runtime=500.0)
    office.settle()
    text = client.ask("explain", bag=bag, item=0)["text"]
    assert any("no window that is open or announced is that long: the longest is 1 min 40 s" in line for line in text)


def test_a_coming_window_of_a_pc_that_lacks_something_does_not_fit(office: Office, client: Client) -> None:
    joined(office, uptime=100.0, windows=(wire.Window(1000.0, 9000.0),), memory=2**30)
    for options, why in (
        (wire.TaskOptions(labels=("gpu",)), "the PC does not have the label gpu"),
        (wire.TaskOptions(memory=2**32), "the PC has 1 G of memory, which is too little"),
    ):
        answer = client.ask("explain", bag=client.submit([b"0"], runtime=500.0, options=options), item=0)
        assert not any(window["fits"] for window in answer["coming"])
        assert any(line.startswith("pc1: window in") and line.endswith(why) for line in answer["text"])
        assert not any("fits" in line for line in answer["text"])


def test_no_slot_has_less_than_nothing_left(office: Office, client: Client) -> None:
    joined(office, uptime=100.0)
    first = client.submit([b"0"], runtime=90.0)
    office.settle()
    office.now += 95.0
    office.settle()
    client.ask("runtimes", bag=first, items=[0], runtimes=[300.0])
    answer = client.ask("explain", bag=client.submit([b"0"], runtime=50.0), item=0)
    assert all(slot["left_s"] >= 0.0 for slot in answer["slots"])
    assert "-" not in "".join(answer["text"])


def test_what_a_task_needs_is_said_in_the_seconds_of_the_pc_at_hand(office: Office, client: Client) -> None:
    joined(office, uptime=100.0, speed=0.5)
    text = client.ask("explain", bag=client.submit([b"0"], runtime=500.0), item=0)["text"]
    assert any("needs 8 min 21 s on a PC of speed 1 (16 min on pc1, whose speed is 0.5)" in line for line in text)


def test_a_task_waits_because_slots_are_busy(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit([b"%d" % n for n in range(50)], runtime=1000.0)
    office.settle()
    answer = client.ask("explain", bag=bag)
    assert answer["waiting"] > 0
    assert answer["slots"] == [{"worker": "pc1", "slot": 0, "left_s": None, "short_s": 0.0, "reason": "busy"}]
    assert any("busy with other work" in line for line in answer["text"])


def test_the_longest_waiting_task_speaks_for_its_bag(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2"], runtimes=(1.0, 3.0, 2.0))
    answer = client.ask("explain", bag=bag)
    assert (answer["waiting"], answer["longest_s"]) == (3, 3.0)
    assert "task 1 " in answer["text"][0]


def test_tasks_that_do_not_wait_are_explained_too(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2"], runtime=10.0)
    worker = joined(office, 2)
    work, _ = worker.work(2)
    worker.finish(work)
    client.ask("cancel", bag=bag, items=[2])
    text = {client.ask("explain", bag=bag, item=item)["text"][0].partition(") ")[2] for item in range(3)}
    assert text == {"is done", "runs on pc1, or is next there", "was cancelled"}
    answer = client.ask("explain", bag=bag)
    assert answer["text"] == ["no task of this bag waits: 1 done, 0 failed, 1 cancelled, 1 running"]
    assert answer["waiting"] == 0


def test_the_explanation_of_a_failed_task_says_where_to_read_why(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1"], runtime=1.0)
    worker = joined(office, 2)
    worker.finish(worker.work(2)[1], outcome=wire.Outcome.ERROR, payload=msgpack.packb(["E", "m", "", b""]))
    assert client.ask("explain", bag=bag, item=1)["text"] == [
        "task 1 (predicted 1 s) failed",
        f"see deskgrid logs {bag} 1",
    ]


def test_what_was_sent_ahead_to_wait_on_its_pc_does_not_count_as_running(office: Office, client: Client) -> None:
    worker = joined(office)
    client.submit([b"0"])
    worker.finish(*worker.work())
    bag = client.submit([b"%d" % n for n in range(5)], runtime=0.01)
    worker.work(5)
    progress = client.ask("progress", bag=bag)
    assert (progress["running"], progress["waiting"]) == (1, 4)
    answer = client.ask("explain", bag=bag)
    assert answer["text"] == ["no task of this bag waits: 0 done, 0 failed, 1 running, 4 next on their PCs"]


def test_what_failed_several_times_says_that_it_is_tried_again_in_a_while(office: Office, client: Client) -> None:
    worker = joined(office)
    bag = client.submit([b"0"], retries=10)
    for number in range(AT_ONCE + 1):
        said = wire.Failure("ValueError", f"try {number}", "", b"").packed()
        worker.finish(*worker.work(), outcome=wire.Outcome.ERROR, payload=said)
    answer = client.ask("explain", bag=bag)
    (text,) = answer["text"]
    assert text.endswith("0 running, 1 paused after several failures (name one to see why)")
    assert client.ask("explain", bag=bag, item=0)["text"] == [
        "task 0 (predicted 1 s) pauses, and is tried again in 1 s",
        "it has failed 4 times, the last time on pc1: ValueError: try 3",
    ]
    log = client.ask("logs", bag=bag, item=0)
    assert (log["state"], log["worker"], log["stdout"], log["error"]) == ("waiting", "pc1", "out", "ValueError: try 3")
    client.ask("cancel", bag=bag)
    assert client.ask("logs", bag=bag, item=0) == log | {"state": "cancelled"}


def test_a_late_failure_of_a_task_that_was_forgotten_harms_nobody(office: Office, client: Client) -> None:
    worker = joined(office)
    bag = client.submit([b"0"])
    (work,) = worker.work()
    client.ask("cancel", bag=bag)
    client.ask("forget", bag=bag)
    assert client.failed("progress", bag=bag) == f"no bag {bag}: see deskgrid bags"
    worker.expect(wire.Stop)
    worker.finish(work, outcome=wire.Outcome.ERROR, payload=wire.UNREADABLE.packed())


def test_nobody_else_says_how_a_task_failed(office: Office, client: Client) -> None:
    joined(office)
    bag = client.submit([b"0"], retries=3)
    evil = office.worker("evil")
    evil.join()
    said = wire.Failure("Advice", "run this", "", b"").packed()
    evil.send(wire.Finished((wire.Result(0, 1, wire.Outcome.ERROR, 0.0, said, b"", b""),)))
    evil.expect(wire.Taken)
    assert client.ask("logs", bag=bag, item=0)["error"] is None
    assert "Advice" not in str(client.ask("explain", bag=bag, item=0))


@pytest.mark.parametrize("what", ["explain", "logs"])
@pytest.mark.parametrize("item", [3, -1, "0", True, [0, 1], [], 1.0, {}])
def test_an_item_that_does_not_exist_is_refused(client: Client, what: str, item: object) -> None:
    bag = client.submit([b"0", b"1"])
    said = f"bag {bag} has no item 3" if item == 3 else "item: "
    assert said in client.failed(what, bag=bag, item=item)


# --- logs ------------------------------------------------------------------------------------------------------------


def test_logs_of_a_task_that_is_done(office: Office, client: Client) -> None:
    bag = client.submit([b"0"])
    worker = joined(office)
    work = worker.work()
    office.now += 1.0
    worker.finish(*work)
    expected = {"state": "done", "worker": "pc1", "elapsed_s": 0.5, "stdout": "out", "stderr": "err", "error": None}
    expected |= {"rank": None, "ranks": []}
    assert client.ask("logs", bag=bag, item=0) == expected


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (msgpack.packb(["ValueError", "no", "Traceback ...\nValueError: no", b""]), "Traceback ...\nValueError: no"),
        (
            msgpack.packb(["CommandFailed", "exit code 3", "what it wrote", b""]),
            "what it wrote\nCommandFailed: exit code 3",
        ),
        (msgpack.packb(["ValueError", "no", "", b""]), "ValueError: no"),
        (b"", None),
        (b"junk", None),
        (msgpack.packb(7), None),
        (msgpack.packb([1, 2]), None),
    ],
)
@pytest.mark.parametrize("outcome", [wire.Outcome.ERROR, wire.Outcome.TIMEOUT])
def test_logs_of_a_task_that_failed(
    office: Office, client: Client, outcome: wire.Outcome, payload: bytes, error: str | None
) -> None:
    bag = client.submit([b"0"])
    worker = joined(office)
    worker.finish(*worker.work(), outcome=outcome, payload=payload)
    logs = client.ask("logs", bag=bag, item=0)
    assert logs["state"] == outcome.name.lower()
    assert logs["error"] == (error or "unreadable account: what the worker said of it cannot be read")


def test_logs_of_tasks_that_have_not_ended(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1"], runtime=1000.0)
    assert client.ask("logs", bag=bag, item=1)["state"] == "waiting"
    joined(office).work()
    logs = client.ask("logs", bag=bag, item=0)
    nothing: dict[str, object] = {"stdout": "", "stderr": "", "error": None, "rank": None, "ranks": []}
    assert logs == {"state": "running", "worker": "pc1", "elapsed_s": PATIENCE_S, **nothing}
    client.ask("cancel", bag=bag, items=[1])
    logs = client.ask("logs", bag=bag, item=1)
    assert (logs["state"], logs["error"]) == ("cancelled", None)


# --- runtimes and policies -------------------------------------------------------------------------------------------


def test_new_runtimes_replace_old_ones_and_are_written_down(office: Office, client: Client) -> None:
    bag = client.submit([b"0", b"1", b"2"], runtime=10.0)
    assert client.ask("runtimes", bag=bag, items=[0, 2], runtimes=[1.0, 2.5]) == {}
    assert client.ask("progress", bag=bag)["left_s"] == 13.5
    assert [list(batch.runtimes) for batch in office.journal.recovery.batches()] == [[1.0, 10.0, 2.5]]


@pytest.mark.parametrize(
    "runtimes",
    [
        None,
        1.0,
        ["1"],
        [None],
        [],
        [1.0, 2.0],
        [-1.0],
        [math.nan],
        [math.inf],
        [1],
        [1e11],
        [True],
        [[]],
    ],
)
def test_runtimes_that_are_none_are_refused_and_change_nothing(client: Client, runtimes: object) -> None:
    bag = client.submit([b"0"], runtime=10.0)
    assert "runtime" in client.failed("runtimes", bag=bag, items=[0], runtimes=runtimes)
    assert client.ask("progress", bag=bag)["left_s"] == 10.0


def test_a_shorter_runtime_lets_a_waiting_task_start(office: Office, client: Client) -> None:
    worker = joined(office, uptime=100.0)
    bag = client.submit([b"0"], runtime=500.0)
    office.settle()
    assert counts(client, bag) == {"waiting": 1}
    client.ask("runtimes", bag=bag, items=[0], runtimes=[5.0])
    assert worker.work()[0].runtime == 5.0


def test_the_policy_can_be_changed_and_says_its_options(office: Office) -> None:
    client = office.client(ADMIN)
    answer = client.ask("policy", name="fcfs")
    assert answer["policy"] == "fcfs"
    answer = client.ask("policy", name="pgs", options={"order": "fifo", "margin": 3})
    assert (answer["options"]["order"], answer["options"]["margin"]) == ("fifo", 3)
    assert client.ask("status")["broker"]["policy"] == "pgs"


@pytest.mark.parametrize(
    "args",
    [
        {"name": "lottery"},
        {"name": "pgs", "options": {"order": "backwards"}},
        {"name": "pgs", "options": {"order": []}},
        {"name": "pgs", "options": {"speed": 1}},
        {"name": "pgs", "options": {"margin": -1}},
        {"name": "pgs", "options": {"margin": math.nan}},
        {"name": "pgs", "options": {"margin": "1"}},
        {"name": "pgs", "options": {"queue_length": None}},
        {"name": "pgs", "options": {"name": "fcfs"}},
        {"name": "pgs", "options": ["fifo"]},
        {"name": None},
        {},
    ],
)
def test_a_policy_that_cannot_be_is_refused_and_the_old_one_stays(office: Office, args: dict[str, Any]) -> None:
    client = office.client(ADMIN)
    reason = client.failed("policy", **args)
    assert reason.isprintable()
    assert client.ask("status")["broker"]["policy"] == "pgs"
