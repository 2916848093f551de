"""PCs that an admin drains: what runs ends, then they leave, until the time has come or somebody undoes it."""

from typing import Any

import pytest

from deskgrid import wire
from deskgrid.wire.saving import ENDING_S
from tests.broker.office import ADMIN, Office, OpenOffice
from tests.peers import BareWorker, Client


@pytest.fixture
def office(open_office: OpenOffice) -> Office:
    return open_office()


def row(client: Client, name: str) -> Any:
    """What the status says of a worker."""
    return next(row for row in client.ask("status")["workers"] if row["name"] == name)


def told(worker: BareWorker) -> list[float | None]:
    """For how long the worker has to know that its PC is drained, as often as it was told."""
    found = []
    while isinstance(message := worker.receive(0.0), wire.Planned):
        found.append(message.drained)
    return found


def at_work(office: Office, name: str = "lab3-01") -> tuple[Client, BareWorker, wire.Work, str]:
    """An admin, and a worker that runs the first of three tasks."""
    admin, worker = office.client(ADMIN), office.worker(name)
    worker.join()
    bag = admin.submit([b"0", b"1", b"2"], runtime=60.0)
    (work,) = worker.work()
    return admin, worker, work, bag


def next_told(office: Office, worker: BareWorker) -> float | None:
    office.wait(1.0, worker)
    return worker.expect(wire.Planned).drained


def test_a_drained_pc_ends_what_runs_gets_nothing_new_and_then_is_told_to_leave(office: Office) -> None:
    admin, worker, work, bag = at_work(office)
    assert admin.ask("drain", pcs=["LAB3-*"]) == {"pcs": ["lab3-01"], "running": 1}
    assert row(admin, "lab3-01")["note"] == "drained by admin until undone; 1 task runs to the end"
    assert (row(admin, "lab3-01")["drained_by"], row(admin, "lab3-01")["drained_s"]) == ("admin", None)
    office.wait(1.0, worker)
    worker.finish(work)
    assert next_told(office, worker) == wire.SECONDS_LIMIT
    worker.send(wire.Leave("drained", True, False, (), ()))
    assert row(admin, "lab3-01")["state"] == "away"
    assert row(admin, "lab3-01")["note"] == "drained by admin until undone"
    text = admin.ask("explain", bag=bag)["text"]
    assert text[0] == "PCs that get nothing new: lab3-01 (drained by admin until undone)"
    assert admin.ask("progress", bag=bag)["note"] == "1 of 1 workers are drained, and get nothing new"
    assert admin.ask("drain undo", pcs=["lab3-01"]) == {"pcs": ["lab3-01"]}
    assert worker.expect(wire.Planned).drained is None
    worker.join()
    worker.work()


def test_a_slot_that_is_drained_says_so(office: Office) -> None:
    admin, _, _, bag = at_work(office)
    admin.ask("drain", pcs=["lab3-01"])
    told = admin.ask("explain", bag=bag)
    assert "lab3-01 slot 0: drained: it ends what it runs, and gets nothing new" in told["text"]
    assert [slot["reason"] for slot in told["slots"]] == ["drained"]


def test_with_now_a_worker_is_told_at_once_and_its_task_waits_again(office: Office) -> None:
    admin, worker, work, bag = at_work(office)
    admin.ask("drain", pcs=["lab3-01"])
    admin.ask("drain", pcs=["lab3-01"], seconds=90.0, now=True)
    assert worker.expect(wire.Planned).drained == pytest.approx(90.0)
    held = (wire.Running(work.task, work.number, 0, 1.0),)
    worker.send(wire.Leave("its window closed", True, False, (wire.Window(90.0, 1e5),), held))
    counters = admin.ask("status")["counters"]
    assert (counters["departures"], counters["kills"], counters["planned_kills"]) == (1, 1, 0)
    other = office.worker("lab3-02")
    other.join()
    assert other.work()[0].task == work.task
    assert admin.ask("progress", bag=bag)["note"] == "1 of 2 workers are drained, and get nothing new"


def test_a_drain_survives_restarts_of_broker_and_worker(open_office: OpenOffice) -> None:
    office = open_office()
    admin, worker, _, _ = at_work(office)
    admin.ask("drain", pcs=["lab3-01"], seconds=100.0)
    office = open_office()
    admin, worker = office.client(ADMIN), office.worker("lab3-01")
    assert worker.join().drained == pytest.approx(100.0)
    assert row(admin, "lab3-01")["state"] == "away"
    worker.join(uptime=0.0, windows=())
    (found,) = admin.ask("drains")["drains"]
    assert (found["pc"], found["by"], found["left_s"]) == ("lab3-01", "admin", pytest.approx(100.0))


def test_a_worker_that_comes_back_with_work_ends_it_first(open_office: OpenOffice) -> None:
    office = open_office()
    admin, worker, work, _ = at_work(office)
    admin.ask("drain", pcs=["lab3-01"])
    session, office = worker.session, open_office()
    admin, worker = office.client(ADMIN), office.worker("lab3-01", session)
    welcome = worker.join(running=(wire.Running(work.task, work.number, 0, 1.0),))
    assert welcome.drained is None
    assert row(admin, "lab3-01")["note"] == "drained by admin until undone; 1 task runs to the end"
    worker.finish(work)
    assert next_told(office, worker) == wire.SECONDS_LIMIT


def test_when_its_time_has_come_a_drain_is_over_and_what_still_runs_goes_on(office: Office) -> None:
    admin, worker, work, _ = at_work(office)
    admin.ask("drain", pcs=["lab3-01"], seconds=5.0)
    office.wait(4.0, worker)
    assert [found["left_s"] for found in admin.ask("drains")["drains"]] == [1.0]
    assert next_told(office, worker) is None
    assert admin.ask("drains") == {"drains": []}
    worker.finish(work)
    worker.work()


def test_a_pc_that_is_away_is_drained_for_when_it_comes_back_with_all_its_workers(office: Office) -> None:
    admin, worker = office.client(ADMIN), office.worker("lab3-01")
    worker.join(uptime=0.0, windows=(wire.Window(50.0, 100.0),))
    admin.ask("drain", pcs=["lab3-01"])
    second = office.worker("lab3-01")
    assert second.join().drained == wire.SECONDS_LIMIT
    assert worker.join(uptime=100.0).drained == wire.SECONDS_LIMIT
    admin.submit([b"0"])
    office.wait(1.0, worker, second)
    assert told(worker) == told(second) == []


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["lab3-11"], "no PC matches 'lab3-11': did you mean lab3-01?"),
        (["lab3-01", "q*"], "no PC matches 'q*': there are lab3-01"),
        ([], "name a PC"),
    ],
)
def test_a_pattern_that_matches_nobody_drains_nobody_and_names_those_alike(
    office: Office, patterns: list[str], said: str
) -> None:
    admin, _, _, _ = at_work(office)
    assert admin.failed("drain", pcs=patterns) == said
    assert admin.ask("drains") == {"drains": []}
    assert admin.failed("drain undo", pcs=["*"]) == "no drained PC matches '*': there is none"


def test_only_admins_drain_and_everybody_sees_it(office: Office) -> None:
    at_work(office)
    client = office.client()
    assert client.failed("drain", pcs=["*"]) == "'drain' is for admins; you are connected as client, a submitter"
    assert client.failed("drain undo", pcs=["*"]).startswith("'drain undo' is for admins")
    office.client(ADMIN).ask("drain", pcs=["*"])
    assert [found["pc"] for found in client.ask("drains")["drains"]] == ["lab3-01"]
    assert "pc-drained" in [event["event"] for event in client.ask("events")["events"]]


def test_many_drained_pcs_are_summed_up(office: Office) -> None:
    admin = office.client(ADMIN)
    for number in range(7):
        office.worker(f"pc{number}").join()
    admin.ask("drain", pcs=["*"])
    bag = admin.submit([b"1"])
    (line, *_) = admin.ask("explain", bag=bag)["text"]
    assert line.endswith("pc4 (drained by admin until undone) and 2 more")
    assert admin.failed("drain", pcs=["zz"]) == "no PC matches 'zz': there are pc0, pc1, pc2, pc3, pc4 and 2 more"


def test_a_worker_whose_window_is_over_ends_what_runs_and_gets_nothing_new(office: Office) -> None:
    admin, worker, work, bag = at_work(office)
    worker.send(wire.Heartbeat(ENDING_S, None))
    office.wait(1.0)
    told = admin.ask("explain", bag=bag)
    assert "lab3-01 slot 0: drained: it ends what it runs, and gets nothing new" in told["text"]
    assert row(admin, "lab3-01")["note"] == "its window is over; 1 task runs to the end"
    worker.finish(work)
    office.settle()
    assert not worker.line.inbox, "nothing new"  # type: ignore[attr-defined]
    admin.ask("drain", pcs=["lab3-01"])
    admin.ask("drain undo", pcs=["lab3-01"])
    assert "gets nothing new" in " ".join(admin.ask("explain", bag=bag)["text"])
    assert worker.expect(wire.Planned).drained is None
    worker.send(wire.Heartbeat(None, None))
    worker.work()


def test_a_worker_that_comes_back_after_its_window_gets_nothing_new(office: Office) -> None:
    worker = office.worker("lab3-01")
    worker.join(uptime=ENDING_S)
    bag = office.client(ADMIN).submit([b"0"], runtime=None)
    office.wait(1.0)
    assert "gets nothing new" in " ".join(office.client(ADMIN).ask("explain", bag=bag)["text"])
    worker.join(uptime=600.0)
    worker.work()
