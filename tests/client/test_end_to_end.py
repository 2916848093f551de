"""The client on a real grid: a broker and workers over real sockets, tasks in processes of their own."""

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

from deskgrid.client.bag import Bag
from deskgrid.client.futures import Futures
from deskgrid.client.grid import Grid
from deskgrid.client.replies import Waiter, ask
from deskgrid.client.task import task
from deskgrid.errors import (
    BagRejected,
    GridUnreachable,
    RemoteError,
    RemoteTraceback,
    TaskCancelled,
    TaskCrashed,
    TaskTimeout,
)
from deskgrid.wire import VALUE_BYTES
from tests.architecture.reading import ROOT
from tests.live import LiveGrid, live_grid
from tests.waiting import PATIENCE_S, eventually

# A user's program, beside modules of its own, most of which have names of our folders.
PROJECT = {
    "broker.py": "import client, wire\nSTEP = client.TEN * wire.TEN\n",
    "client.py": "TEN = 10\n",
    "helper.py": "import scheduler\ndef steps(n):\n    return n * scheduler.STEP\n",
    "scheduler.py": "from broker import STEP\n",
    "wire.py": "TEN = 10\n",
    "worker.py": "class Result:\n    def __init__(self, value):\n        self.value = value\n",
    "program.py": """
from dataclasses import dataclass
from deskgrid import Grid
import worker

@dataclass
class Parameters:
    n: int

def simulate(parameters):
    import helper
    return worker.Result(helper.steps(parameters.n))

with Grid() as grid:
    bag = grid.bag(simulate, [Parameters(n) for n in range(3)], runtime=1)
    values = {item.n: result.value for item, result in bag.as_completed()}
    more = [grid.submit(simulate, Parameters(n)) for n in (7, 8)]
    print(sorted(values.items()), [future.result().value for future in more])
""",
    "share.py": """
from deskgrid import Grid
import worker

class Model:
    def __init__(self):
        self.weights = {"first": worker.Result(3)}

def later(n):
    import helper
    return helper.steps(n)

with Grid() as grid:
    model = grid.share({"model": Model(), "later": later, "large": bytearray(100)})
    bag = grid.bag(lambda n: model["model"].weights["first"].value + model["later"](n), [1, 2], runtime=1)
    print(bag.results(), grid.submit(lambda shared: type(shared["model"]).__name__, model).result())
""",
    "plugins/__init__.py": "",
    "plugins/double.py": "def run(n):\n    return 2 * n\n",
    "by_name.py": """
import importlib
from deskgrid import Grid, task

def run(name):
    return importlib.import_module(f"plugins.{name}").run(21)

with Grid() as grid:
    try:
        grid.bag(run, ["double"], runtime=1).results()
    except ModuleNotFoundError as error:
        print(error)
    named = task(run, runtime=1, modules=["plugins"])
    one = grid.bag(run, ["double"], runtime=1, modules=["plugins.double"])
    print(one.results(), grid.bag(named, ["double"]).results())
    print(grid.submit(named, "double").result(), list(grid.map(named, ["double"] * 2, chunksize=2)))
""",
}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGrid]:
    """A broker and two workers for all tests here."""
    with live_grid(tmp_path_factory.mktemp("home"), workers=2) as grid:
        yield grid


@pytest.fixture
def grid(live: LiveGrid) -> Iterator[Grid]:
    """A Grid on it."""
    with Grid(live.broker.ready.client_line) as opened:
        yield opened


def printed(live: LiveGrid, folder: Path, program: str) -> str:
    """What a program of the project prints."""
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "DESKGRID_JOIN": live.broker.ready.client_line},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_users_project_runs_on_the_grid(live: LiveGrid, tmp_path: Path) -> None:
    assert printed(live, tmp_path, "program.py") == "[(0, 0), (1, 100), (2, 200)] [700, 800]\n"


def test_a_shared_object_brings_what_it_is_made_of(live: LiveGrid, tmp_path: Path) -> None:
    assert printed(live, tmp_path, "share.py") == "[103, 203] Model\n"


def test_a_module_that_is_imported_by_a_computed_name_is_named_by_the_user(live: LiveGrid, tmp_path: Path) -> None:
    missing, *lines = printed(live, tmp_path, "by_name.py").splitlines()
    assert missing.startswith("module 'plugins' is not installed on ")
    assert lines == ["[42] [42]", "42 [42, 42]"]


def test_modules_are_names(grid: Grid) -> None:
    for wrong in ("plugins", [importlib], [""]):
        with pytest.raises(BagRejected, match="modules is a list of names"):
            grid.bag(len, [""], modules=wrong)  # type: ignore[arg-type]


def test_thousands_of_calls_come_back_in_their_places(grid: Grid) -> None:
    assert grid.bag(lambda n: n * n, range(3_000), runtime=0.01).results() == [n * n for n in range(3_000)]
    futures = [grid.submit(task(pow, 0.01), n, 2) for n in range(1_000)]
    assert [future.result(30) for future in futures] == [n * n for n in range(1_000)]
    assert list(grid.map(pow, range(100), range(100), chunksize=10, runtime=0.01)) == [n**n for n in range(100)]


def test_every_way_to_fail_has_its_own_error(grid: Grid) -> None:
    def misbehave(how: str) -> bytes:
        if how == "raise":
            raise LookupError("no such star")
        if how == "crash":
            os._exit(3)
        if how == "hang":
            threading.Event().wait()
        if how == "import":
            importlib.import_module("no_such_module")
        if how == "exit":
            sys.exit(4)
        return bytes(VALUE_BYTES if how == "large" else 1)

    ways = ["raise", "crash", "hang", "import", "exit", "large", "nothing"]
    bag = grid.bag(misbehave, ways, runtime=1, timeout=2)
    found = dict(zip(ways, bag.results(errors="return"), strict=True))
    assert {how: type(error) for how, error in found.items()} == {
        "raise": LookupError,
        "crash": TaskCrashed,
        "hang": TaskTimeout,
        "import": ModuleNotFoundError,
        "exit": RemoteError,
        "large": RemoteError,
        "nothing": bytes,
    }
    assert "misbehave" in str(getattr(found["raise"], "__cause__", None))
    assert isinstance(getattr(found["raise"], "__cause__", None), RemoteTraceback)
    assert "bytes; the limit is" in str(found["large"])
    assert "LookupError: no such star" in (bag.logs(0).error or "")


def test_an_option_in_the_place_of_an_argument_is_told_where_it_belongs(grid: Grid) -> None:
    hinted = grid.submit(lambda n: n, 1, runtime=3).exception(30)
    other = grid.submit(lambda n: n, 1, colour=3).exception(30)
    assert type(hinted) is type(other) is TypeError
    assert "submit task(function, runtime=...)" in hinted.__notes__[-1]
    assert "task(function" not in "".join(other.__notes__)


def test_a_commands_result_is_what_it_prints(grid: Grid) -> None:
    bag = grid.command([sys.executable, "-c", "import sys; print(sys.argv[1].upper())", "{}"], ["a", "b"], runtime=1)
    assert [text.split() for text in bag.results()] == [["A"], ["B"]]


def test_what_waits_is_explained_and_can_be_cancelled(grid: Grid) -> None:
    def wait_for_ever(n: int) -> None:
        print("waiting", n, flush=True)
        threading.Event().wait()

    bag = grid.bag(wait_for_ever, range(6), runtime=50)
    assert eventually(lambda: bag.progress().running == 2)
    assert "task" in bag.explain()
    assert not bag.wait(0)
    assert bag.cancel() == 6
    assert bag.wait(PATIENCE_S)
    assert {type(error) for error in bag.results(errors="return")} == {TaskCancelled}
    bag.forget()
    assert bag.id not in [row["bag"] for row in grid.bags()]


@pytest.mark.parametrize("wait", [Bag.wait, Bag.results])
def test_ctrl_c_says_how_to_come_back(
    wait: Callable[[Bag[float, None]], object], grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = grid.bag(time.sleep, [60.0], runtime=60)
    interrupt = KeyboardInterrupt()

    def interrupted(*_: object) -> None:
        raise interrupt

    with monkeypatch.context() as patch:
        patch.setattr(Waiter, "get", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wait(bag)
    assert interrupt.__notes__ == [f"deskgrid: bag {bag.id} goes on; grid.attach({bag.id!r}) returns to it"]
    assert bag.cancel() == 1


def test_a_wrong_key_is_told_within_seconds(live: LiveGrid, tmp_path: Path) -> None:
    with live_grid(tmp_path) as other:
        wrong = other.broker.ready.client_line.partition("/")[2]
    place = live.broker.ready.client_line.partition("/")[0]
    with pytest.raises(GridUnreachable, match="does not answer to this join line"):
        Grid(f"{place}/{wrong}", timeout=0.5)


def test_a_client_goes_on_when_the_broker_is_restarted(tmp_path: Path) -> None:
    with live_grid(tmp_path, workers=1) as live, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(abs, range(-20, 0), runtime=0.1)
        pairs = bag.as_completed()
        first = next(pairs)
        live.restart()
        assert sorted([first, *pairs]) == [(n, -n) for n in range(-20, 0)]
        assert grid.submit(abs, -3).result(20) == 3


def test_a_grid_of_ones_own_needs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TEMP", str(tmp_path))
    with Grid.local(workers=2) as grid:
        assert len(grid.status()["workers"]) == 2
        bag = grid.bag(abs, [-1, -2], runtime=1)
        assert bag.results() == [1, 2]
        with pytest.raises(KeyboardInterrupt) as error, bag._interruptible():
            raise KeyboardInterrupt
        assert error.value.__notes__ == [f"deskgrid: bag {bag.id} goes on until its private grid ends"]
        assert len(list(tmp_path.glob("deskgrid-local-*"))) == 1
    assert list(tmp_path.glob("deskgrid-local-*")) == []


def _environments() -> str:
    """Of a task's process, of the worker that started it, and of whoever started that."""
    found = []
    pid = os.getpid()
    for _ in range(3):
        found.append(Path(f"/proc/{pid}/environ").read_text(encoding="utf-8"))
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return "".join(found)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of processes")
def test_a_task_that_hangs_on_one_worker_is_copied_to_another(tmp_path: Path) -> None:
    """The first attempt hangs; the copy answers, and the slot of the first is free again."""

    def slow_the_first_time(folder: Path) -> str:
        try:
            (folder / "begun").mkdir()
        except FileExistsError:
            return "the copy"
        time.sleep(600.0)
        return "the original"

    with Grid.local(workers=2) as grid:
        bag = grid.bag(slow_the_first_time, [tmp_path], runtime=0.1, copies=True)
        assert bag.results() == ["the copy"]
        naps = grid.bag(time.sleep, [1.0] * 4, runtime=1.0)
        naps.results()
        assert len({naps.logs(item).worker for item in range(4)}) == 2


def test_in_a_local_grid_nobody_has_the_join_line_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKGRID_JOIN", "client@elsewhere:7077/secret")
    with Grid.local(workers=1) as grid:
        said = grid.submit(_environments).result(timeout=30)
    assert "PATH=" in said
    assert "DESKGRID_JOIN" not in said


def test_calls_end_while_another_bag_begins(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker says is heard meanwhile: a bag that brings libraries asks it a question when it begins."""
    begin, asked = Futures._begin, list[object]()

    def begin_late(futures: Futures, *args: Any) -> Any:
        if asked:
            wait([first], timeout=30)
            asked.append(ask(futures._link, "systems", {}, 10.0))
        asked.append(None)
        return begin(futures, *args)

    monkeypatch.setattr(Futures, "_begin", begin_late)
    first = grid.submit(abs, -1)
    assert grid.submit(max, 1, 2).result() == 2
    assert len(asked) == 3
