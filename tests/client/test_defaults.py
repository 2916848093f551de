"""What is said of all work of a Grid at once: by `Grid` itself, and by views of it, which are executors, too."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.client.grid import Grid
from deskgrid.client.task import task
from deskgrid.errors import BagRejected, GridClosed
from tests.client.fakebroker import FakeGrid
from tests.client.test_futures import double
from tests.waiting import PATIENCE_S, eventually


class Model:
    """Can be called."""

    def __call__(self, x: int) -> int:
        return x


def said(fake: FakeGrid) -> tuple[Any, ...]:
    submit = [message for message in fake.memory.of(wire.Submit) if message.payloads][-1]
    return submit.runtime, submit.options.retries, submit.options.priority, submit.options.timeout


def test_a_grid_has_defaults_for_calls_bags_and_commands(fake: FakeGrid) -> None:
    with Grid(fake.line, runtime="1min", retries=2, priority=3, name="sweep") as grid:
        assert grid.submit(double, 1).result(PATIENCE_S) == 2
        assert said(fake) == (60.0, 2, 3, None)
        assert list(grid.map(double, [1])) == [2]
        assert said(fake) == (60.0, 2, 3, None)
        assert grid.bag(double, [1]).results() == [2]
        assert said(fake) == (60.0, 2, 3, None)
        grid.command(["true"], ["x"])
        assert said(fake) == (60.0, 2, 3, None)
        assert {bag.name for bag in fake.memory.bags.values()} == {"sweep"}


def test_what_is_said_of_a_task_or_a_bag_comes_before_the_defaults(fake: FakeGrid) -> None:
    with Grid(fake.line, runtime=60, retries=2) as grid:
        grid.submit(task(double, runtime=5, retries=0, timeout=9), 1).result(PATIENCE_S)
        assert said(fake) == (5.0, 0, 0, 9.0)
        grid.bag(task(double, timeout=7), [1], runtime=6, retries=1, name="mine")
        assert said(fake) == (6.0, 1, 0, 7.0)
        grid.command(["true"], ["x"], retries=0)
        assert said(fake) == (60.0, 0, 0, None)


def test_a_view_has_the_defaults_of_its_grid_and_its_own(fake: FakeGrid, grid: Grid) -> None:
    view = grid.using(runtime=60, timeout=90).using(retries=4)
    assert isinstance(view, Executor)
    assert view.submit(double, 1).result(PATIENCE_S) == 2
    assert said(fake) == (60.0, 4, 0, 90.0)
    assert grid.submit(double, 1).result(PATIENCE_S) == 2
    assert said(fake) == (None, 0, 0, None)
    assert grid.attach(view.bag(double, [3]).id).results() == [6]


def test_leaving_a_view_waits_for_its_calls_and_leaves_the_grid_open(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    other = grid.submit(double, 5)
    with grid.using(runtime=1) as view:
        future = view.submit(double, 2)
        assert eventually(lambda: len(fake.memory.bags) == 2)
        bag = next(bag for bag, its in fake.memory.bags.items() if its.options.program != _program(fake, 0))
        threading.Timer(0.1, fake.broker.run, (bag, 0)).start()
    assert future.result(0) == 4
    assert not other.done()
    with pytest.raises(GridClosed):
        view.submit(double, 1)
    fake.broker.run(next(iter(fake.memory.bags)), 0)
    assert other.result(PATIENCE_S) == 10


def _program(fake: FakeGrid, place: int) -> str | None:
    return list(fake.memory.bags.values())[place].options.program


@pytest.mark.parametrize("wait", [True, False])
def test_views_end_with_their_grid(fake: FakeGrid, wait: bool) -> None:
    grid = Grid(fake.line)
    view = grid.using(runtime=1)
    future = view.submit(double, 2)
    grid.shutdown(wait=wait)
    assert future.result(PATIENCE_S) == 4
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)
    with pytest.raises(GridClosed):
        view.submit(double, 1)


def test_a_view_keeps_its_grid_open(fake: FakeGrid) -> None:
    view = Grid(fake.line).using(runtime=1)
    assert view.submit(double, 2).result(PATIENCE_S) == 4
    assert fake.memory.of(wire.Goodbye) == []
    view.shutdown()
    del view
    assert eventually(lambda: len(fake.memory.of(wire.Goodbye)) == 1)


def test_a_view_that_nobody_holds_lives_until_its_calls_have_ended(fake: FakeGrid, grid: Grid) -> None:
    assert grid.using(retries=1).submit(double, 2).result(PATIENCE_S) == 4
    assert list(grid.using(retries=1).map(double, range(5))) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    "bad", [{"retries": -1}, {"runtime": "soon"}, {"keep": 1}, {"copies": True, "checkpoint": True}]
)
def test_impossible_defaults_are_refused_at_once(grid: Grid, bad: dict[str, Any]) -> None:
    with pytest.raises(BagRejected):
        grid.using(**bad)


def test_an_unknown_default_is_refused_with_what_is_near(grid: Grid) -> None:
    with pytest.raises(TypeError, match="'retry'; do you mean 'retries'"):
        grid.using(retry=3)  # type: ignore[call-arg]


# --- what is left ----------------------------------------------------------------------------------------------------


def forgotten(fake: FakeGrid) -> list[str]:
    return [args["bag"] for args in fake.memory.asked("forget")]


def test_calls_are_forgotten_when_they_have_ended_and_bags_are_not(fake: FakeGrid) -> None:
    with Grid(fake.line) as grid:
        bag = grid.bag(double, [1])
        assert grid.submit(double, 1).result(PATIENCE_S) == 2
        assert forgotten(fake) == []  # more may come
    assert forgotten(fake) == [id for id in fake.memory.bags if id != bag.id]


def test_calls_that_somebody_wants_to_keep_are_kept(fake: FakeGrid) -> None:
    with Grid(fake.line, keep=True) as grid:
        assert grid.submit(double, 1).result(PATIENCE_S) == 2
    assert [bag.options.keep for bag in fake.memory.bags.values()] == [True]
    assert forgotten(fake) == []


def test_calls_of_a_view_are_forgotten_when_it_is_left(fake: FakeGrid, grid: Grid) -> None:
    with grid.using(runtime=1) as view:
        assert view.submit(double, 1).result(PATIENCE_S) == 2
    assert len(forgotten(fake)) == 1


def test_a_broker_that_does_not_answer_holds_nobody_up_for_long(
    fake: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.client.futures.CANCEL_S", 0.05)
    with Grid(fake.line) as grid:
        assert grid.submit(double, 1).result(PATIENCE_S) == 2
        fake.broker.lose = lambda message: True


def test_calls_have_names_for_people(fake: FakeGrid, grid: Grid) -> None:
    def inner(x: int) -> int:
        return x

    here = test_calls_have_names_for_people.__code__.co_firstlineno
    functions: list[Callable[..., Any]] = [inner, lambda x: x, partial(double), partial(lambda x: x), Model(), abs]
    for function in functions:
        grid.submit(function, 1).result(PATIENCE_S)
    list(grid.map(double, range(4), chunksize=2))
    names = [bag.name for bag in fake.memory.bags.values()]
    assert names[0] == "test_calls_have_names_for_people.inner"
    assert names[1] == f"lambda at test_defaults.py:{here + 5}"
    assert names[2:] == [
        "partial(double)",
        f"partial(lambda at test_defaults.py:{here + 5})",
        "a Model",
        "abs",
        "double",
    ]
