"""What people who watch the grid can ask: its last events, one worker, the tasks of one bag, and the grid alone."""

import re

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.answers.task_logs import OUTPUT_ROWS, TASK_ROWS
from deskgrid.broker.auth.roles import Credential
from deskgrid.broker.model import event_log
from deskgrid.broker.model.event_log import EVENT_ROWS, FACT_CHARACTERS, KEPT, SEEN_BY, EventLog
from deskgrid.broker.work.worker_health import EVENTS
from tests.broker.office import ADMIN, Office, OpenOffice
from tests.live import ROOT
from tests.peers import BareWorker, Client

# Notes that nobody is shown as events: bags have views of their own, and the rest is about the broker's own faults.
LOG_ONLY = {"windows-file", "home-files", "question-failed", "forecast-failed"} | {
    f"bag-{what}" for what in ("deserted", "opened", "expired", "forgotten")
}
ERROR = msgpack.packb(["E", "m", "", b""])


def joined(office: Office, slots: int = 1, name: str = "pc1") -> BareWorker:
    worker = office.worker(name)
    worker.join(slots=slots)
    return worker


def events(client: Client, what: str = "events", after: int | None = None) -> list[tuple[str, str]]:
    """Each event, and the worker or whoever it names."""
    return [(row["event"], row["facts"].get("name", "")) for row in client.ask(what, after=after)["events"]]


# --- events ----------------------------------------------------------------------------------------------------------


def test_every_note_is_decided() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "broker").rglob("*.py"))
    noted = (set(re.findall(r'tate\.note\(\s*f?"([a-z-]+)', code)) - {"disk-"}).union(EVENTS.values())
    assert noted - SEEN_BY.keys() == LOG_ONLY, (
        "give each note a line in SEEN_BY (broker/model/event_log.py), or in LOG_ONLY"
    )
    assert {what for what in SEEN_BY if not what.startswith("disk-")} <= noted


def test_a_bag_that_is_cancelled_is_an_event_and_one_that_is_forgotten_is_only_in_the_log(office: Office) -> None:
    client = office.client()
    bag, other = client.submit([b"0"], name="mine"), client.submit([b"0", b"1"], name="other")
    client.ask("cancel", bag=other, items=[0])
    for _ in range(2):
        client.ask("cancel", bag=bag)
    assert events(client) == [("bag-cancelled", "mine")]
    client.ask("forget", bag=bag)
    assert events(client) == [("bag-cancelled", "mine")]


def test_joins_departures_losses_and_crashes_are_events_that_everybody_sees(office: Office) -> None:
    client = office.client()
    worker = joined(office)
    client.submit([b"0"])
    worker.finish(*worker.work(), outcome=wire.Outcome.CRASH, payload=ERROR)
    worker.send(wire.Leave("its window closed", planned=True, stopping=False, held=(), windows=()))
    joined(office, name="pc2")
    office.now += 60.0
    office.settle()
    assert events(client) == [
        ("worker-joined", "pc1"),
        ("task-crashed", "pc1"),
        ("worker-left", "pc1"),
        ("worker-joined", "pc2"),
        ("worker-lost", "pc2"),
    ]
    first = client.ask("events")["events"][0]
    assert (first["age_s"], first["facts"]["slots"]) == (60.0, "1")


def test_a_crash_names_its_task(office: Office) -> None:
    client, worker = office.client(), joined(office, 2)
    bag = client.submit([b"0", b"1"])
    worker.finish(*worker.work(2), outcome=wire.Outcome.CRASH, payload=ERROR)
    (crash,) = (row for row in client.ask("events")["events"] if row["event"] == "task-crashed")
    assert crash["facts"] == {"name": "pc1", "bag": bag, "item": "0", "crashes": "2"}


def test_refused_peers_are_seen_by_admins_only(office: Office) -> None:
    stranger = office.worker("old")
    stranger.send(stranger.introduction(version="0.0.1"))
    stranger.expect(wire.Refused)
    assert events(office.client()) == []
    assert events(office.client(ADMIN)) == []
    assert events(office.client(ADMIN), "events all") == [("refused", "old")]


def test_only_what_came_after_the_last_answer_is_told(office: Office) -> None:
    client = office.client()
    joined(office)
    after = client.ask("events")["after"]
    assert client.ask("events", after=after) == {"events": [], "after": after}
    joined(office, name="pc2")
    assert events(client, after=after) == [("worker-joined", "pc2")]


def test_events_of_a_later_life_of_the_broker_have_larger_numbers(open_office: OpenOffice) -> None:
    first = open_office()
    joined(first)
    after = first.client().ask("events")["after"]
    second = open_office()
    joined(second)
    assert events(second.client(), after=after) == [("worker-joined", "pc1")]


def test_both_lists_are_bounded_and_neither_pushes_anything_out_of_the_other() -> None:
    log = EventLog(first=1)
    for number in range(2 * KEPT):
        log.add("worker-joined", {"name": number}, 1.0)
        log.add("refused", {"reason": "x" * 10_000, "name": "y" * FACT_CHARACTERS}, 1.0)
    log.add("bag-opened", {}, 1.0)
    found, after = [], 0
    while (page := log.page(after, 1.0, everything=True))["events"]:
        assert len(page["events"]) <= EVENT_ROWS
        found += page["events"]
        after = page["after"]
    assert len(found) == 2 * KEPT
    assert [row["number"] for row in found] == sorted(row["number"] for row in found)
    assert max(len(text) for row in found for text in row["facts"].values()) == FACT_CHARACTERS
    assert {row["facts"]["reason"][-2:] for row in found if row["event"] == "refused"} == {"x…"}, "it is seen to be cut"
    assert {row["facts"]["name"][-1] for row in found if row["event"] == "refused"} == {"y"}
    assert len(event_log.EventLog(1).page(0, 0.0, everything=False)["events"]) == 0


# --- one worker, one bag, the grid alone -----------------------------------------------------------------------------


def test_a_worker_is_told_with_all_its_slots(office: Office) -> None:
    client = office.client()
    joined(office, 3)
    row = client.ask("worker", name="pc1")
    assert (row["name"], row["slot_count"], len(row["slots"])) == ("pc1", 3, 3)
    assert row == client.ask("status")["workers"][0]
    assert client.failed("worker", name="pc2") == "no worker pc2"


def test_the_grid_alone_is_the_status_without_its_rows(office: Office) -> None:
    client = office.client()
    joined(office)
    client.submit([b"0"])
    whole = client.ask("status")
    assert client.ask("status", rows=False) == {name: whole[name] for name in whole if name not in ("workers", "bags")}
    assert client.ask("status", rows=True) == whole


def test_the_tasks_of_a_bag_are_told_by_their_state(office: Office) -> None:
    client, worker = office.client(), joined(office, 2)
    bag = client.submit([b"0"] * 8, runtime=10.0)
    first, second = worker.work(2)
    worker.finish(first)
    worker.finish(second, outcome=wire.Outcome.ERROR, payload=ERROR)
    worker.work(2)
    client.ask("cancel", bag=bag, items=[7])
    office.now += 3.0
    office.settle()

    def told(state: str) -> list[tuple[int, str, str | None, float | None]]:
        rows = client.ask("tasks", bag=bag, state=state)["tasks"]
        return [(row["item"], row["state"], row["worker"], row["elapsed_s"]) for row in rows]

    assert told("done") == [(0, "done", None, None)]
    assert told("failed") == [(1, "failed", None, None)]
    assert told("cancelled") == [(7, "cancelled", None, None)]
    at_work = told("running")
    assert [(item, state) for item, state, _, _ in at_work][:2] == [(2, "running"), (3, "running")]
    assert {(worker, elapsed) for _, state, worker, elapsed in at_work if state == "running"} == {("pc1", 3.0)}
    waiting = told("waiting")
    assert sorted(item for item, *_ in [*at_work, *waiting]) == [2, 3, 4, 5, 6]
    assert client.failed("tasks", bag=bag, state="lost") == "state: not a state of tasks"


def test_a_task_on_a_slow_pc_is_shown_as_long_as_it_takes_there(office: Office) -> None:
    client, worker = office.client(), office.worker()
    worker.join(speed=0.5)
    bag = client.submit([b"0"] * 2, runtime=300.0)
    worker.work()
    shown = {row["state"]: row["runtime_s"] for row in client.ask("tasks", bag=bag, state="running")["tasks"]}
    shown |= {row["state"]: row["runtime_s"] for row in client.ask("tasks", bag=bag, state="waiting")["tasks"]}
    assert shown == {"running": 600.0, "waiting": 300.0}


def test_the_tasks_of_a_large_bag_come_in_pages(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"] * (2 * TASK_ROWS + 5), runtime=10.0)
    found, after = list[int](), None
    while True:
        page = client.ask("tasks", bag=bag, state="waiting", after=after)
        found += [row["item"] for row in page["tasks"]]
        assert len(page["tasks"]) <= TASK_ROWS
        if (after := page["after"]) is None:
            break
    assert found == list(range(2 * TASK_ROWS + 5))


@pytest.mark.parametrize("what", ["tasks", "explain"])
def test_nobody_else_sees_the_tasks(office: Office, what: str) -> None:
    bag = office.client().submit([b"0"])
    other = office.client(Credential("ben", "submitter"))
    arguments = {"state": "waiting"} if what == "tasks" else {}
    assert "belongs to client" in other.failed(what, bag=bag, **arguments)


# --- what a bag prints -----------------------------------------------------------------------------------------------


def printed(client: Client, bag: str, after: int | None = None) -> list[tuple[int, str, str]]:
    rows = client.ask("output", bag=bag, after=after)["output"]
    return [(row["item"], row["state"], row["stdout"]) for row in rows]


def test_what_ended_last_is_told_once_each(office: Office) -> None:
    client, worker = office.client(), joined(office, 3)
    bag, other = client.submit([b"0"] * 2), client.submit([b"0"])
    works = worker.work(3)
    assert client.ask("output", bag=bag) == {"output": [], "after": 0}
    worker.finish(works[1], outcome=wire.Outcome.ERROR, payload=ERROR)
    after = client.ask("output", bag=bag)["after"]
    assert client.ask("output", bag=bag)["output"][0]["error"] == "E: m"
    worker.finish(works[0])
    worker.finish(works[2])
    assert printed(client, bag) == [(1, "error", "out"), (0, "done", "out")]
    assert printed(client, bag, after) == [(0, "done", "out")]
    assert printed(client, other) == [(0, "done", "out")]


def test_of_many_tasks_that_ended_the_last_ones_are_told(office: Office) -> None:
    client, worker = office.client(), joined(office)
    bag = client.submit([b"0"] * (2 * OUTPUT_ROWS), runtime=0.001)
    for _ in range(2 * OUTPUT_ROWS):
        worker.finish(*worker.work())
    found = printed(client, bag)
    assert 0 < len(found) <= OUTPUT_ROWS
    assert found[-1][0] == 2 * OUTPUT_ROWS - 1
    assert [item for item, *_ in found] == sorted(item for item, *_ in found)


def test_a_cancelled_task_printed_nothing(office: Office) -> None:
    client = office.client()
    bag = client.submit([b"0"])
    client.ask("cancel", bag=bag)
    assert printed(client, bag) == []


# --- what is planned -------------------------------------------------------------------------------------------------


def test_the_plan_of_a_policy_that_has_one_is_told_while_tasks_wait(open_office: OpenOffice) -> None:
    office = open_office(policy="packing")
    client = office.client()
    assert client.ask("plan") == {"planned": []}
    office.worker("pc1").join(uptime=5.0, windows=(wire.Window(100.0, 1000.0), wire.Window(2000.0, 1000.0)))
    bag = client.submit([b"0", b"1"], runtime=300.0)
    office.settle()
    assert client.ask("plan") == {"planned": [{"worker": "pc1", "starts_in": 100.0, "lasts": 600.0}]}
    client.ask("cancel", bag=bag)
    assert client.ask("plan") == {"planned": []}


def test_a_policy_without_plans_tells_none(office: Office) -> None:
    client = office.client()
    client.submit([b"0"])
    assert client.ask("plan") == {"planned": []}
