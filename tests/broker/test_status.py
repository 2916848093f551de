"""The status document is what `deskgrid.wire.status` says it is, key by key, whatever state the grid is in."""

import types
import typing
from dataclasses import fields
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.client.template import PYTHON
from deskgrid.scheduler.metrics import Counters
from deskgrid.wire.status import WINDOW_ROWS, CounterValues, RunningTask, StatusDocument
from tests.broker.office import LEASE_S, Office
from tests.peers import Client


def differences(value: Any, hint: Any, where: str = "snapshot") -> list[str]:
    """How ``value``, out of JSON, differs from a declared shape."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if typing.is_typeddict(hint):
        return _of_table(value, hint, where)
    if isinstance(hint, types.UnionType):
        return min((differences(value, option, where) for option in arguments), key=len)
    if origin in (list, tuple) and isinstance(value, list):
        inner = arguments * len(value) if origin is list else arguments
        same_length = [] if len(inner) == len(value) else [f"{where}: {value!r}"]
        places = enumerate(zip(value, inner, strict=False))
        return same_length + [line for n, pair in places for line in differences(*pair, f"{where}[{n}]")]
    return [] if _is_plain(value, hint, where) else [f"{where}: {value!r}"]


def _is_plain(value: Any, hint: Any, where: str) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        # Of a slot, less than nothing may be left: it has more to do than its window holds.
        return type(value) in (int, float) and (value >= 0 or where.endswith("].left_s"))
    return type(value) is (typing.get_origin(hint) or hint)


def _of_table(value: Any, hint: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{where}: {value!r}"]
    hints = typing.get_type_hints(hint)
    found = [f"{where}.{name}: {'missing' if name in hints else 'unknown'}" for name in hints.keys() ^ value.keys()]
    for name in hints.keys() & value.keys():
        found += differences(value[name], hints[name], f"{where}.{name}")
    return found


@pytest.fixture
def client(office: Office) -> Client:
    return office.client()


def status(client: Client) -> Any:
    """The snapshot, which has the declared shape."""
    snapshot = client.ask("status")
    assert differences(snapshot, StatusDocument) == []
    return snapshot


def test_of_an_empty_grid(client: Client) -> None:
    snapshot = status(client)
    assert (snapshot["workers"], snapshot["bags"], snapshot["throughput"]) == ([], [], {"per_s": 0.0})
    assert snapshot["queues"] == {"regular": 0, "priority": 0, "longest_s": 0.0}
    broker = snapshot["broker"]
    assert (broker["policy"], broker["clients"], broker["address"]) == ("pgs", 1, "127.0.0.1:7077")
    assert (broker["version"], broker["python"], broker["encrypted"]) == (wire.VERSION, PYTHON, True)


def busy(office: Office, client: Client) -> None:
    """Workers of every kind and state; slots that run, hold ahead, queue and rest; bags in every state."""
    client.submit([b"0"] * 30, runtimes=tuple(float(n % 7) for n in range(30)), name="sweep")
    client.submit([b"0"] * 3, runtime=1e6, name="too long")
    client.submit([b"0"], runtime=None, last=False)
    week = tuple(wire.Window(3600.0 * n, 1800.0) for n in range(1, 20))
    lost = office.worker("lost")
    lost.join(uptime=50.0, windows=week)
    office.settle()
    office.now += LEASE_S / 2
    opened = office.worker("opened")
    opened.join(slots=3)
    office.worker("closing").join(slots=2, kind="until", uptime=12.5)
    office.worker("away").join(kind="windows", uptime=0.0, windows=week)
    office.worker("cycling").join(kind="cycle", uptime=3.0, windows=week)
    one, another, third = opened.work(3)
    opened.finish(one)
    opened.finish(another, outcome=wire.Outcome.ERROR, payload=msgpack.packb(["E", "", "", b""]))
    office.now += LEASE_S / 2 + 0.1
    assert third.template


def test_of_a_busy_grid(office: Office, client: Client) -> None:
    busy(office, client)
    office.settle()
    snapshot = status(client)
    workers = {worker["name"]: worker for worker in snapshot["workers"]}
    states = {name: worker["state"] for name, worker in workers.items()}
    assert states == {"lost": "lost", "opened": "up", "closing": "up", "away": "away", "cycling": "up"}
    assert {name: worker["kind"] for name, worker in workers.items()} == {
        "lost": "open-ended",
        "opened": "open-ended",
        "closing": "until",
        "away": "windows",
        "cycling": "cycle",
    }
    assert (workers["opened"]["uptime_s"], workers["away"]["uptime_s"], workers["lost"]["uptime_s"]) == (None, 0, 0)
    assert len(workers["away"]["windows"]) == WINDOW_ROWS < 19
    assert (workers["opened"]["ended"], workers["opened"]["host"], workers["opened"]["site"]) == (
        1,  # the task that failed is tried again elsewhere
        "lab3-07.example",
        "lab3",
    )
    assert workers["opened"]["opened_s"] == pytest.approx(LEASE_S / 2 + 0.1)
    assert [slot["slot"] for slot in workers["opened"]["slots"]] == [0, 1, 2]
    running = [slot["running"] for worker in snapshot["workers"] for slot in worker["slots"]]
    assert any(differences(task, RunningTask) == [] for task in running)
    assert all(slot["left_s"] is None for slot in workers["opened"]["slots"])
    assert all(slot["left_s"] <= 12.5 for slot in workers["closing"]["slots"])
    counters = snapshot["counters"]
    assert (counters["submitted"], counters["done"], counters["errors"], counters["losses"]) == (34, 1, 1, 1)
    assert [bag["name"] for bag in snapshot["bags"]] == ["sweep", "too long", "sweep"]
    assert snapshot["throughput"]["per_s"] > 0


def test_windows_move_as_time_goes(office: Office, client: Client) -> None:
    office.worker("pc1").join(uptime=100.0, windows=(wire.Window(500.0, 60.0),))
    office.now = 5.0
    (worker,) = status(client)["workers"]
    assert (worker["uptime_s"], worker["windows"], worker["silent_s"]) == (95.0, [[495.0, 60.0]], 5.0)


def test_a_worker_that_ends_for_good_is_no_longer_there(office: Office, client: Client) -> None:
    worker = office.worker("pc1")
    worker.join(uptime=100.0)
    worker.send(wire.Leave("stopped by its user", False, True, (), ()))
    snapshot = status(client)
    assert snapshot["workers"] == []
    assert snapshot["counters"]["departures"] == 1


def test_a_lost_worker_that_announced_nothing_is_no_longer_there(office: Office, client: Client) -> None:
    office.worker("pc1").join()
    office.now = LEASE_S + 1
    office.settle()
    snapshot = status(client)
    assert (snapshot["workers"], snapshot["counters"]["losses"]) == ([], 1)


def test_the_longest_durations_there_are_can_be_shown(office: Office, client: Client) -> None:
    office.worker("pc1").join(uptime=wire.SECONDS_LIMIT)
    client.submit([b"0"] * 1000, runtime=wire.SECONDS_LIMIT)
    office.settle()
    status(client)


def test_the_documented_counters_are_those_of_the_scheduler() -> None:
    assert set(typing.get_type_hints(CounterValues)) == {field.name for field in fields(Counters)}


def test_a_difference_from_the_documented_shape_is_found(client: Client) -> None:
    snapshot = client.ask("status")
    snapshot["broker"]["clients"] = "one"
    del snapshot["queues"]["longest_s"]
    snapshot["workers"] = [{}]
    snapshot["counters"]["wasted_s"] = -1.0
    found = "\n".join(differences(snapshot, StatusDocument))
    for name in ("broker.clients: 'one'", "queues.longest_s: missing", "workers[0].name: missing", "wasted_s: -1.0"):
        assert name in found
