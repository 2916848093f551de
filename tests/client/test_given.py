"""Values of the wrong kind, and misspelt names: one sentence that names the value, and says what it takes."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import Change, Grid, task
from deskgrid.client.discovery import client_line
from deskgrid.client.local import start
from deskgrid.errors import DeskgridError, GridRefused, GridUnreachable
from tests.client.fakebroker import FakeGrid


class Odd:
    """Nothing that any parameter takes."""

    def __repr__(self) -> str:
        return "Odd()"


WRONG = (None, -1, 1.5, True, b"x", [1], {"a": 1}, Odd())
# What is given besides the wrong value.
BESIDES: dict[str, dict[str, Any]] = {
    "bag": {"function": abs, "items": [1]},
    "command": {"argv": ["true"], "items": ["1"]},
    "task": {"function": abs},
    "map": {"fn": abs},
    "whatif": {"runtime": 1, "tasks": 1},
    "fetch": {"item": 0},
    "follow": {},
}


def _parameters(function: Callable[..., Any]) -> Iterator[str]:
    for name, each in inspect.signature(function).parameters.items():
        if name != "self" and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
            yield name


# `share` takes any value, `policy` what the policy takes; the others are questions of an item, which the broker checks.
METHODS = [
    *[f"grid.{name}" for name in ("bag", "command", "using", "attach", "status", "whatif", "map")],
    *[f"bag.{name}" for name in ("as_completed", "results", "wait", "fetch", "advise", "update_runtimes")],
    "task",
]


@pytest.mark.parametrize("method", METHODS)
def test_a_value_of_the_wrong_kind_is_refused_in_our_words(
    fake: FakeGrid, grid: Grid, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for what is fetched
    bag = grid.bag(abs, [1])
    fake.broker.run(bag.id, 0)
    whose, _, name = method.rpartition(".")
    function = getattr({"grid": grid, "bag": bag}[whose], name) if whose else task
    for parameter in _parameters(function):
        for value in WRONG:
            given = BESIDES.get(name, {}) | {parameter: value}
            args = [given.pop(first) for first in ("fn",) if first in given]
            try:
                function(*args, **given)
            except DeskgridError:
                pass
            except (TypeError, ValueError) as error:
                if not (traceback.extract_tb(error.__traceback__)[-1].line or "").startswith("raise "):
                    pytest.fail(f"{parameter}={value!r}: {error!r}")
    assert len(grid.bag(abs, [1])) == 1


@pytest.mark.parametrize("value", [5, b"x", ["a"], Odd()])
def test_a_name_that_is_no_text_is_refused_and_the_grid_goes_on(fake: FakeGrid, grid: Grid, value: Any) -> None:
    with pytest.raises(DeskgridError, match=r"name is a text, not "):
        grid.bag(abs, [1], name=value)
    bag = grid.bag(abs, [-1])
    fake.broker.run(bag.id, 0)
    assert bag.results() == [1]


@pytest.mark.parametrize("value", [None, 5, b"x", ["a"]])
def test_attach_says_what_it_takes(grid: Grid, value: Any) -> None:
    with pytest.raises(TypeError, match=r"bag_id is the id of a bag, a text, not "):
        grid.attach(value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda grid: grid.bag(abs, [1], runtim=1), r"Grid\.bag\(\) has no option 'runtim'; do you mean 'runtime'\?"),
        (lambda grid: grid.command(["x"], [], input=1), r"Grid\.command\(\) has no option 'input'; .* 'inputs'\?"),
        (lambda grid: grid.using(timout=1), r"Grid\.using\(\) has no option 'timout'; do you mean 'timeout'\?"),
        (
            lambda grid: task(abs, runtim=1),  # type: ignore[call-arg]
            r"task\(\) has no option 'runtim'; do you mean 'runtime'\?",
        ),
        (
            lambda grid: Grid(timout=1),  # type: ignore[call-arg]
            r"Grid\(\) has no option 'timout'; do you mean 'timeout'\?",
        ),
        (
            lambda grid: Grid.local(worker=1),  # type: ignore[call-arg]
            r"Grid\.local\(\) has no option 'worker'; do you mean 'workers'\?",
        ),
        (lambda grid: grid.bag(abs, [1], xyz=1), r"Grid\.bag\(\) has no option 'xyz'$"),
    ],
)
def test_a_misspelt_option_is_named_with_its_function_and_the_nearest_one(
    grid: Grid, call: Callable[[Any], object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        call(grid)


@pytest.mark.parametrize("value", [5, b"x", ["a"], Odd()])
def test_a_join_line_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"join is a join line, or @FILE that contains it, not "):
        Grid(value)


def test_a_private_grid_is_told_whether_it_runs_mpi() -> None:
    with pytest.raises(TypeError, match="mpi is True or False, not 1"):
        start(1, mpi=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [{"without": 5}, {"windows": [1]}, {"more": "many"}, {"split": "2"}, {"begins_s": "1h"}, {"policy": 5}]
)
def test_a_change_of_the_wrong_kind_is_refused_by_its_name(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(given))} is "):
        Change(**given)


# --- how it is shown -------------------------------------------------------------------------------------------------


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)


@pytest.mark.usefixtures("homeless")
def test_without_a_broker_there_is_one_traceback_which_ends_at_the_line_of_the_program() -> None:
    with pytest.raises(GridUnreachable, match="no broker is known") as caught:
        Grid()
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "Grid()"


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("line", ["nonsense", "@/no/such/file"])
def test_a_join_line_that_is_none_is_one_error(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GridRefused) as caught:
        client_line(line)
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1
    monkeypatch.setenv("DESKGRID_JOIN", line)
    with pytest.raises(GridRefused, match="DESKGRID_JOIN") as caught:
        client_line(None)
    assert "".join(traceback.format_exception(caught.value)).count("Traceback") == 1


def test_a_refusal_ends_at_the_line_of_the_program(grid: Grid) -> None:
    with pytest.raises(DeskgridError) as caught:
        grid.bag(abs, [1], retries=-1)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "grid.bag(abs, [1], retries=-1)"


def test_a_refusal_within_a_generator_of_items_shows_its_line(grid: Grid) -> None:
    def items() -> Iterator[int]:
        yield len(grid.bag(abs, [1], retries=-1))

    with pytest.raises(DeskgridError) as caught:
        grid.bag(abs, items())
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "yield len(grid.bag(abs, [1], retries=-1))" in lines
