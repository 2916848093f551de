"""The agent against a real broker: it joins, runs, leaves when its window closes, and comes back."""

import os
import pickle
import signal
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker import loop as loop_module
from deskgrid.windows.weekly import DAY_NAMES
from deskgrid.worker import link as link_module
from deskgrid.worker.owner import watch
from deskgrid.worker.owner.policy import Courtesy, Presence
from deskgrid.worker.windows.clocks import read_clocks
from deskgrid.worker.windows.uptime import Cycle, parse_until
from tests.executor.rig import alive, call, python_template, written
from tests.live import LiveGrid, LiveWorker
from tests.peers import Client
from tests.waiting import PATIENCE_S, eventually
from tests.worker.machine import worker_process
from tests.worker.tasks import square, starts, submit_waiting, waiting


def values(client: Client, bag: str) -> list[Any]:
    """What the tasks of a bag returned, in the order of its items."""
    results = sorted(client.results(bag))
    assert all(result.outcome == wire.Outcome.DONE for result in results), results
    return [pickle.loads(bytes(result.payload)) for result in results]


def failure(result: wire.BagResult) -> tuple[wire.Outcome, str]:
    """How a task ended that failed, and the message."""
    assert result.outcome != wire.Outcome.DONE
    return wire.Outcome(result.outcome), msgpack.unpackb(result.payload)[1]


def counters(client: Client) -> Any:
    return client.ask("status")["counters"]


# --- running ---------------------------------------------------------------------------------------------------------


def test_it_joins_runs_tasks_and_says_so(grid: LiveGrid) -> None:
    worker = grid.worker("pc1", slots=2)
    client = grid.client()
    bag = client.submit([call(number) for number in range(50)], square())
    assert values(client, bag) == [number * number for number in range(50)]
    (row,) = client.ask("status")["workers"]
    assert (row["name"], row["state"], row["kind"], row["site"]) == ("pc1", "up", "open-ended", "lab")
    assert (row["host"], len(row["slots"]), row["ended"]) == (socket.gethostname(), 2, 50)
    said = [text for text in worker.said if not text.startswith("no answer")]  # a busy machine takes its time
    assert "from now on this PC needs no --join" in said[0]
    assert said[1:3] == ["planned uptime: open-ended", f"joined {grid.broker.ready.address} as pc1"]


def test_a_second_worker_of_a_pc_says_why_it_has_another_name(grid: LiveGrid) -> None:
    grid.worker("pc1")
    address = grid.broker.ready.address
    assert grid.worker("pc1").has_said(f"joined {address} as pc1~2, because another worker is called pc1 already")


def test_it_runs_commands_and_their_output_is_kept(grid: LiveGrid) -> None:
    grid.worker()
    client = grid.client()
    program = "import sys; print(sys.argv[1]); print('warning', file=sys.stderr)"
    bag = client.submit(
        [b"first item", b"second"], msgpack.packb({"kind": "command", "argv": [sys.executable, "-c", program, "{}"]})
    )
    client.results(bag)
    logs = client.ask("logs", bag=bag, item=0)
    assert (logs["state"], logs["stdout"], logs["stderr"]) == ("done", "first item\n", "warning\n")


def test_tasks_that_fail_end_as_they_should_and_the_slot_goes_on(grid: LiveGrid) -> None:
    def run(what: str) -> str:
        import os
        import threading

        if what == "raise":
            raise ValueError("on purpose")
        if what == "die":
            os._exit(3)
        if what == "hang":
            threading.Event().wait()
        return what

    grid.worker()
    client = grid.client()
    bag = client.submit([call(what) for what in ("raise", "die", "hang", "work")], python_template(run), timeout=1.0)
    results = sorted(client.results(bag))
    assert failure(results[0]) == (wire.Outcome.ERROR, "on purpose")
    assert failure(results[1])[0] == wire.Outcome.CRASH
    assert failure(results[2])[0] == wire.Outcome.TIMEOUT
    assert pickle.loads(bytes(results[3].payload)) == "work"
    assert "Traceback" in client.ask("logs", bag=bag, item=0)["error"]
    found = counters(client)
    assert (found["errors"], found["crashes"], found["timeouts"], found["done"]) == (1, 3, 1, 1)
    assert (found["departures"], found["losses"]) == (0, 0)


def test_a_result_that_is_too_large_fails_its_task_with_the_limit_and_the_grid_goes_on(grid: LiveGrid) -> None:
    def run(size: int) -> bytes:
        return bytes(size)

    grid.worker()
    client = grid.client()
    bag = client.submit([call(wire.VALUE_BYTES), call(7)], python_template(run))
    large, small = sorted(client.results(bag))
    outcome, message = failure(large)
    assert outcome == wire.Outcome.ERROR
    assert f"{wire.VALUE_BYTES:,}" in message
    assert pickle.loads(bytes(small.payload)) == bytes(7)


def test_a_cancelled_task_is_killed_and_its_slot_is_free(grid: LiveGrid, tmp_path: Path) -> None:
    grid.worker()
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "task")
    pid = int(written(tmp_path / "task.pid"))
    client.ask("cancel", bag=bag)
    assert values(client, client.submit([call(3)], square())) == [9]
    assert eventually(lambda: not alive(pid))
    assert not (tmp_path / "task.end").exists()


# --- windows ---------------------------------------------------------------------------------------------------------


def test_what_runs_when_a_window_closes_is_handed_back_and_done_elsewhere(grid: LiveGrid, tmp_path: Path) -> None:
    going = grid.worker("going", plan=parse_until("2", read_clocks()))
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "task", runtime=0.1)  # nobody knew that it takes longer
    pid = int(written(tmp_path / "task.pid"))
    staying = grid.worker("staying")
    going.wait()  # its plan is over, so it ends by itself
    assert not alive(pid)
    assert eventually(lambda: starts(tmp_path, "task") == 2, PATIENCE_S)
    (tmp_path / "go").touch()
    assert values(client, bag) == [2]
    assert client.results(bag)[0].worker == "staying"
    found = counters(client)
    assert (found["departures"], found["losses"], found["kills"], found["planned_kills"]) == (1, 0, 1, 1)
    assert (found["crashes"], found["errors"], found["attempts"]) == (0, 0, 2)
    assert going.has_said("no window will open again")
    assert not staying.ended


def test_what_runs_when_a_window_closes_may_end_in_the_grace_and_nothing_begins(grid: LiveGrid, tmp_path: Path) -> None:
    plan = parse_until("2", read_clocks())
    plan.grace_s = PATIENCE_S
    going = grid.worker("going", plan=plan)
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "task", runtime=0.1)
    written(tmp_path / "task.pid")
    is_over = "its window is over; 1 task runs to the end"
    assert eventually(lambda: client.ask("status")["workers"][0]["note"] == is_over, PATIENCE_S)
    later = client.submit([call(str(tmp_path), "later", "go")], waiting(), runtime=0.1)
    assert client.ask("explain", bag=later)["slots"][0]["reason"] == "drained"
    (tmp_path / "go").touch()
    assert values(client, bag) == [1]
    going.wait()
    assert starts(tmp_path, "later") == 0
    assert (counters(client)["kills"], counters(client)["departures"]) == (0, 1)


def test_a_worker_that_is_stopped_with_a_grace_lets_its_tasks_end(grid: LiveGrid, tmp_path: Path) -> None:
    worker = grid.worker("stopped", grace_s=PATIENCE_S)
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "task")
    written(tmp_path / "task.pid")
    worker.ask_to_stop()
    assert eventually(lambda: worker.has_said("tasks that run may end within"), PATIENCE_S)
    assert not worker.ended
    (tmp_path / "go").touch()
    worker.wait()
    assert values(client, bag) == [1]
    assert (counters(client)["kills"], counters(client)["losses"]) == (0, 0)


def test_a_worker_whose_windows_come_and_go_does_its_work_in_them(grid: LiveGrid) -> None:
    client = grid.client()
    grid.admin().ask("policy", name="pgs", options={"margin": 0.05})  # or nothing would fit
    worker = grid.worker("cycling", plan=Cycle([(0.6, 0.3)], read_clocks()))

    def run() -> None:
        import threading

        threading.Event().wait(0.1)

    bag = client.submit([call()] * 8, python_template(run), runtime=0.1)
    client.results(bag)
    assert eventually(lambda: client.ask("status")["workers"][0]["state"] == "away", PATIENCE_S)
    (row,) = client.ask("status")["workers"]
    assert (row["kind"], row["name"]) == ("cycle", "cycling")
    assert row["windows"]
    assert counters(client)["departures"] > 0
    assert counters(client)["losses"] == 0
    assert worker.has_said("joined")
    assert not worker.ended


def test_a_worker_that_is_stopped_hands_its_work_back_and_is_not_expected_again(grid: LiveGrid, tmp_path: Path) -> None:
    worker = grid.worker("stopped")
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "task")
    pid = int(written(tmp_path / "task.pid"))
    worker.stop()
    assert worker.said[-1] == "ended: stopped by its user"
    assert not alive(pid)
    assert eventually(lambda: client.ask("status")["workers"] == [], PATIENCE_S)
    assert client.ask("progress", bag=bag)["waiting"] == 1
    found = counters(client)
    assert (found["departures"], found["losses"], found["kills"], found["planned_kills"]) == (1, 0, 1, 0)
    (tmp_path / "go").touch()
    grid.worker("next")
    assert values(client, bag) == [2]


def test_results_are_delivered_before_a_stopped_worker_ends(grid: LiveGrid, tmp_path: Path) -> None:
    worker = grid.worker(slots=4)
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "a", "b", "c", "d")
    assert eventually(lambda: all((tmp_path / f"{name}.pid").exists() for name in "abcd"), PATIENCE_S)
    (tmp_path / "go").touch()
    assert eventually(lambda: all((tmp_path / f"{name}.end").exists() for name in "abcd"), PATIENCE_S)
    assert values(client, bag) == [1, 1, 1, 1]
    worker.stop()
    assert counters(client)["kills"] == 0


# --- windows from the broker -----------------------------------------------------------------------------------------


@pytest.fixture
def fast_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker looks at its windows file all the time."""
    monkeypatch.setattr(loop_module, "FILES_S", 0.01)
    monkeypatch.setattr(loop_module, "TICK_S", 0.02)


def closed_today() -> str:
    """A weekly window that is not open now, in no zone, and will not be within a day."""
    later = datetime.fromtimestamp(read_clocks().wall, UTC) + timedelta(days=3)
    return f"{DAY_NAMES[later.weekday()]} 10:00-11:00"


@pytest.mark.usefixtures("fast_windows")
def test_windows_of_the_broker_take_effect_as_they_change(grid: LiveGrid) -> None:
    worker, own = grid.worker("lab3-07"), grid.worker("lab3-08", plan=parse_until("3600", read_clocks()))
    file, client = grid.home / "windows.toml", grid.client()

    def states() -> dict[str, tuple[str, str]]:
        return {row["name"]: (row["state"], row["kind"]) for row in client.ask("status")["workers"]}

    assert states() == {"lab3-07": ("up", "open-ended"), "lab3-08": ("up", "until")}
    file.write_text(f'["lab3-*"]\nwindows = ["{closed_today()}"]\n')
    assert eventually(lambda: states()["lab3-07"] == ("away", "windows"), PATIENCE_S), states()
    assert worker.has_said("planned uptime, from the broker")
    file.write_text('["lab3-*"]\nwindows = ["daily all day"]\n')
    assert eventually(lambda: states()["lab3-07"] == ("up", "windows"), PATIENCE_S), states()
    file.unlink()
    assert eventually(lambda: states()["lab3-07"] == ("up", "open-ended"), PATIENCE_S), states()
    assert states()["lab3-08"] == ("up", "until")
    assert not own.has_said("from the broker")
    assert not worker.has_said("lost the broker")  # it introduces itself anew, over the same connection
    found = counters(client)
    assert (found["losses"], found["kills"]) == (0, 0)


@pytest.mark.usefixtures("fast_windows")
def test_windows_of_the_broker_are_followed_from_the_start(grid: LiveGrid) -> None:
    (grid.home / "windows.toml").write_text(f'["*"]\nwindows = ["{closed_today()}"]\n')
    client = grid.client()
    grid.worker("lab3-07")
    bag = client.submit([call(3)], square(), runtime=1.0)
    assert eventually(lambda: client.ask("status")["workers"][0]["kind"] == "windows", PATIENCE_S)
    (row,) = client.ask("status")["workers"]
    assert (row["state"], row["windows"][0][1]) == ("away", pytest.approx(3600.0))
    assert client.ask("progress", bag=bag)["waiting"] == 1


@pytest.mark.usefixtures("fast_windows")
def test_the_broker_says_what_becomes_of_tasks_while_the_owner_is_there_where_nobody_else_has(
    grid: LiveGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch.Probes, "ask", lambda probes, now: Presence(0.0, seated=True))
    file, client = grid.home / "windows.toml", grid.client()
    asked = grid.worker("lab3-07", courtesy=Courtesy("nice"))
    given = grid.worker("lab3-08", courtesy=Courtesy("nice", given=True))

    def states() -> dict[str, str]:
        return {row["name"]: row["state"] for row in client.ask("status")["workers"]}

    file.write_text('["lab3-*"]\nwindows = ["daily all day"]\nowner = "leave"\n')
    assert eventually(lambda: states() == {"lab3-07": "away", "lab3-08": "up"}, PATIENCE_S), states()
    assert asked.has_said("while the owner uses this PC, from the broker: leave")
    file.write_text('["lab3-*"]\nwindows = ["daily all day"]\n')
    assert eventually(lambda: states() == {"lab3-07": "up", "lab3-08": "up"}, PATIENCE_S), states()
    assert asked.has_said("the owner of this PC is treated in another way: its tasks go on")
    assert not given.has_said("while the owner uses this PC")


# --- a broker that is away -------------------------------------------------------------------------------------------


def test_what_runs_goes_on_while_the_broker_is_restarted_and_counts_once(grid: LiveGrid, tmp_path: Path) -> None:
    worker = grid.worker()
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "task")
    written(tmp_path / "task.pid")
    grid.restart()
    assert eventually(lambda: worker.has_said("joined", times=2), PATIENCE_S)
    client = grid.client()
    assert client.ask("progress", bag=bag)["running"] == 1
    (tmp_path / "go").touch()
    assert values(client, bag) == [1]
    assert worker.has_said("lost the broker")
    found = counters(client)
    assert (found["adopted"], found["attempts"], found["losses"], found["departures"]) == (1, 0, 0, 0)


def test_what_ends_while_the_broker_is_away_is_delivered_when_it_is_back(grid: LiveGrid, tmp_path: Path) -> None:
    grid.worker(slots=2)
    client = grid.client()
    bag = submit_waiting(client, tmp_path, "one", "two")
    written(tmp_path / "one.pid")
    written(tmp_path / "two.pid")

    def meanwhile() -> None:
        (tmp_path / "go").touch()
        assert eventually(lambda: (tmp_path / "one.end").exists() and (tmp_path / "two.end").exists(), PATIENCE_S)

    grid.restart(meanwhile)
    client = grid.client()
    assert values(client, bag) == [1, 1]
    assert counters(client)["attempts"] == 0


def test_a_worker_that_was_there_first_waits_for_its_broker(grid: LiveGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SILENCE_S", 0.1)
    waiting: list[LiveWorker] = []

    def meanwhile() -> None:
        waiting.append(grid.start_worker("early"))
        assert eventually(lambda: waiting[0].has_said("no answer from a broker"), PATIENCE_S)

    grid.restart(meanwhile)
    (worker,) = waiting
    assert eventually(lambda: worker.has_said("joined"), PATIENCE_S)
    client = grid.client()
    assert values(client, client.submit([call(5)], square())) == [25]


# --- what a task that kills the guard leaves -------------------------------------------------------------------------


def _kills_the_guard(note: str) -> None:
    """Leave a daemon, whose number is added to a file, and kill what would find it."""
    import os
    import signal
    import time

    with open(f"/proc/{os.getppid()}/stat") as file:
        guard = int(file.read().rpartition(")")[2].split()[1])
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        if not os.fork():
            os.write(write, f"{os.getpid()}\n".encode())
            time.sleep(1000)
        os._exit(0)
    os.wait()
    with open(note, "ab") as file:
        file.write(os.read(read, 100))
    os.kill(guard, signal.SIGKILL)
    time.sleep(1000)


def _left(note: Path) -> list[int]:
    """The daemons of all attempts."""
    return [int(pid) for pid in written(note).split()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has lost its parent")
def test_what_a_task_that_kills_the_guard_has_started_is_gone_when_it_has_ended(grid: LiveGrid, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    options = ["--join", grid.broker.ready.worker_line, "--home", str(tmp_path / "pc")]
    with worker_process(tmp_path / "log", *options) as worker:
        assert worker.joined(), worker.said
        client = grid.client()
        (result,) = client.results(client.submit([call(str(note))], python_template(_kills_the_guard), runtime=0.1))
        assert result.outcome == wire.Outcome.CRASH
        left = _left(note)
        try:
            assert not any(map(alive, left))
        finally:
            for pid in filter(alive, left):
                os.kill(pid, signal.SIGKILL)
        assert values(client, client.submit([call(2)], square())) == [4]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has lost its parent")
def test_what_a_shell_that_became_the_worker_has_started_stays_when_a_task_kills_the_guard(
    grid: LiveGrid, tmp_path: Path
) -> None:
    note, begin = tmp_path / "owners", 'setsid sleep 1000 & echo $! > "$0"; exec "$@"'
    options = ["--join", grid.broker.ready.worker_line, "--home", str(tmp_path / "pc")]
    with worker_process(tmp_path / "log", *options, prefix=["sh", "-c", begin, str(note)]) as worker:
        owners = int(written(note))
        try:
            assert worker.joined(), worker.said
            client, template = grid.client(), python_template(_kills_the_guard)
            (result,) = client.results(client.submit([call(str(tmp_path / "pid"))], template, runtime=0.1))
            assert result.outcome == wire.Outcome.CRASH
            assert values(client, client.submit([call(2)], square())) == [4]
            assert alive(owners)
        finally:
            for pid in filter(alive, [owners, *_left(tmp_path / "pid")]):
                os.kill(pid, signal.SIGKILL)
