"""Cancel only the tasks that have not begun, as `Executor.shutdown(cancel_futures=True)` does."""

import time
from pathlib import Path

from deskgrid.client.grid import Grid
from deskgrid.client.task import task
from tests.broker.office import Office, OpenOffice
from tests.live import live_grid
from tests.waiting import eventually

# Longer than a worker is given work ahead for, so that only one call is at the worker.
LONG_S = 1000.0


def test_what_is_at_a_worker_is_left_alone(office: Office) -> None:
    client, worker = office.client(), office.worker()
    bag = client.submit([b"0", b"1", b"2"], runtime=100.0, last=False)
    worker.join()
    (work,) = worker.work()
    assert client.ask("cancel", bag=bag, items=None, running=False) == {"cancelled": 2}
    row = client.ask("progress", bag=bag)
    assert (row["running"], row["cancelled"], row["closed"]) == (1, 2, True)
    worker.finish(work, payload=b"ended")
    assert sorted((result.item, result.payload) for result in client.results(bag)) == [
        (0, b"ended"),
        (1, b""),
        (2, b""),
    ]


def test_what_ran_when_the_broker_was_restarted_is_left_alone(open_office: OpenOffice) -> None:
    office = open_office()
    bag = office.client().submit([b"0", b"1"], runtime=100.0)
    worker = office.worker("pc1")
    worker.join()
    (work,) = worker.work()
    office.settle()
    office.close()
    office = open_office()
    assert office.client().ask("cancel", bag=bag, items=None, running=False) == {"cancelled": 1}
    back = office.worker("pc1", worker.session)
    back.join()
    back.finish(work, payload=b"late")
    assert {result.payload for result in office.client().results(bag)} == {b"late", b""}


def test_what_runs_is_cancelled_too_when_nothing_else_is_said(office: Office) -> None:
    client, worker = office.client(), office.worker()
    bag = client.submit([b"0", b"1"], runtime=100.0)
    worker.join()
    worker.work()
    assert client.ask("cancel", bag=bag, items=None) == {"cancelled": 2}


def test_a_running_call_ends_normally_when_its_grid_shuts_down_and_cancels_the_others(tmp_path: Path) -> None:
    def until_released(file: str) -> str:
        while not Path(file).exists():
            time.sleep(0.01)
        return "ended"

    with live_grid(tmp_path / "home", workers=1) as live:
        release = tmp_path / "release"
        grid = Grid(live.broker.ready.client_line)
        futures = [grid.submit(task(until_released, LONG_S), str(release)) for _ in range(4)]
        client = live.client()
        assert eventually(lambda: [row["running"] for row in client.ask("bags")["bags"]] == [1])
        grid.shutdown(wait=False, cancel_futures=True)
        assert eventually(lambda: sum(future.cancelled() for future in futures) == 3)
        assert not futures[0].done()
        release.touch()
        assert futures[0].result(20) == "ended"
