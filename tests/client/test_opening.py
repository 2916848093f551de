"""Finding a broker and being let in, or learning why not."""

import gc
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import deskgrid
from deskgrid import wire
from deskgrid.client.grid import Grid
from deskgrid.client.link import OPENING_S
from deskgrid.client.template import PYTHON
from deskgrid.errors import GridClosed, GridRefused, GridUnreachable
from tests.client.fakebroker import FakeGrid, free_port
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No broker in the environment; the home is empty."""
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    return tmp_path


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("deskgrid")]


# --- where -----------------------------------------------------------------------------------------------------------


def test_the_line_given_comes_first(fake: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKGRID_JOIN", "client@127.0.0.1:1/insecure")
    with Grid(fake.line) as grid:
        assert grid.address == f"127.0.0.1:{fake.broker.port}"


def test_the_environment_comes_second(fake: FakeGrid, monkeypatch: pytest.MonkeyPatch, nothing_known: Path) -> None:
    (nothing_known / "client.join").write_text("client@127.0.0.1:1/insecure\n")
    monkeypatch.setenv("DESKGRID_JOIN", fake.line)
    with Grid() as grid:
        assert grid.address.endswith(str(fake.broker.port))


def test_the_broker_of_this_machine_comes_third(fake: FakeGrid, nothing_known: Path) -> None:
    (nothing_known / "client.join").write_text(fake.line + "\n")
    with Grid() as grid:
        assert grid.address.endswith(str(fake.broker.port))


def test_no_broker_anywhere_is_told_with_what_to_do(nothing_known: Path) -> None:
    with pytest.raises(GridUnreachable, match="DESKGRID_JOIN is not set") as caught:
        Grid()
    assert str(nothing_known / "client.join") in str(caught.value)


def test_a_line_that_cannot_be_read_is_told(nothing_known: Path) -> None:
    (nothing_known / "client.join").mkdir()
    with pytest.raises(GridUnreachable, match=r"client\.join.*cannot be read"):
        Grid()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("worker@127.0.0.1:7077/insecure", "a join line for a worker; you need the one that begins with client@"),
        ("client@127.0.0.1:7077/AAAA", "cut"),
        ("hello", "not a join line"),
        ("", "not a join line"),
    ],
)
def test_a_wrong_join_line_is_refused(line: str, reason: str) -> None:
    with pytest.raises(GridRefused, match=reason):
        Grid(line)


def test_a_wrong_join_line_in_the_environment_is_refused_with_the_variables_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DESKGRID_JOIN", "client@lab-server:7077/...")
    with pytest.raises(GridRefused, match=r"^DESKGRID_JOIN: that is not a join line: copy the whole line"):
        Grid()


# --- who answers -----------------------------------------------------------------------------------------------------


def test_a_broker_that_is_not_there_is_named_within_the_timeout() -> None:
    port = free_port()
    start = time.monotonic()
    with pytest.raises(GridUnreachable, match=rf"no broker answers at 127\.0\.0\.1:{port}: .*refused"):
        Grid(f"client@127.0.0.1:{port}/insecure", timeout=0.2)
    assert time.monotonic() - start < OPENING_S
    assert threads() == []


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port on which something listens that never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_something_that_is_no_broker_is_told_from_nothing(deaf: int) -> None:
    with pytest.raises(GridUnreachable, match="something listens there, but it does not answer to this join line"):
        Grid(f"client@127.0.0.1:{deaf}/insecure", timeout=0.2)


def test_a_broker_that_comes_late_is_waited_for(fake: FakeGrid, impatient: None) -> None:
    late = threading.Event()
    fake.broker.lose = lambda message: not late.is_set()
    timer = threading.Timer(0.3, late.set)
    timer.start()
    with Grid(fake.line) as grid:
        assert grid.address
    timer.join()


def test_a_refusal_is_told_in_the_brokers_words(fake: FakeGrid) -> None:
    fake.broker.refuse = "this broker is deskgrid 9 and you are deskgrid 0"
    with pytest.raises(GridRefused, match="this broker is deskgrid 9"):
        Grid(fake.line)
    assert threads() == []


def test_a_refusal_later_on_ends_every_wait(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    future = grid.submit(abs, -1)
    bag = grid.bag(abs, [-1])
    fake.broker.refuse = "your key was withdrawn"
    with pytest.raises(GridRefused, match="withdrawn"):
        bag.progress()
    with pytest.raises(GridRefused, match="withdrawn"):
        bag.results()
    with pytest.raises(GridRefused, match="withdrawn"):
        future.result()


def test_the_broker_hears_who_we_are(fake: FakeGrid, grid: Grid) -> None:
    (hello,) = fake.memory.of(wire.Hello)
    assert hello.version == wire.VERSION


def test_functions_need_our_python_and_commands_need_none(fake: FakeGrid, grid: Grid) -> None:
    grid.bag(abs, [1]).results()
    grid.submit(abs, 1).result()
    grid.command(["echo"], ["a"]).results()
    assert [sent.options.python for sent in fake.memory.of(wire.Submit)] == [PYTHON, PYTHON, None]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_leaving_says_goodbye_and_ends_the_threads(fake: FakeGrid) -> None:
    with Grid(fake.line) as grid:
        grid.submit(abs, -1).result()
        assert threads() != []
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)
    assert threads() == []


def test_a_closed_grid_takes_nothing_more(fake: FakeGrid) -> None:
    with Grid(fake.line) as grid:
        bag = grid.bag(abs, [-1])
    for call in (
        lambda: grid.bag(abs, [1]),
        lambda: grid.submit(abs, 1),
        lambda: grid.command(["echo"], ["a"]),
        lambda: grid.attach(bag.id),
        grid.status,
        bag.progress,
        bag.results,
    ):
        with pytest.raises(GridClosed, match="shut down"):
            call()


def test_a_grid_that_nobody_holds_is_closed(fake: FakeGrid) -> None:
    reference = weakref.ref(Grid(fake.line))
    gc.collect()
    assert reference() is None
    assert threads() == []


def test_a_bag_keeps_its_grid_open(fake: FakeGrid) -> None:
    bag = Grid(fake.line).bag(abs, [-1])
    gc.collect()
    assert bag.results() == [1]
    del bag
    gc.collect()
    assert threads() == []


def test_a_grid_does_not_travel(grid: Grid) -> None:
    with pytest.raises(TypeError, match="a Grid cannot travel"):
        pickle.dumps(grid)


def test_a_grid_says_where_it_is(fake: FakeGrid) -> None:
    with Grid(fake.line) as grid:
        assert repr(grid) == f"<Grid at 127.0.0.1:{fake.broker.port}>"
    assert "shut down" in repr(grid)


def test_the_front_door_has_all_that_it_names() -> None:
    assert sorted(deskgrid.__all__) == deskgrid.__all__
    assert all(hasattr(deskgrid, name) for name in deskgrid.__all__)


@pytest.mark.parametrize("named", [True, False])
def test_a_task_cannot_submit_and_hears_so_at_once(
    fake: FakeGrid, nothing_known: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    monkeypatch.setenv("DESKGRID_TASK", "1")
    with pytest.raises(GridRefused, match="a task cannot submit"):
        Grid(fake.line if named else None)
    assert fake.memory.seen == []
