"""What a bag brings besides its arguments, as the broker gets it: modules, and environments."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import Grid, task
from deskgrid.client.environments import made as module
from deskgrid.client.environments.made import Made
from deskgrid.client.sources import stored_pieces
from deskgrid.client.template import PYTHON
from deskgrid.errors import BagRejected
from deskgrid.wire import Build, Environment, System, read_template, this_system
from tests.client.fakebroker import FakeGrid

SOURCES = {
    "carried_one": "class One:\n    pass\n",
    "carried_two": "import carried_units\nclass Two:\n    pass\n",
    "carried_units": "",
    "carried_stays": "",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Modules of a program, which it has loaded."""
    for name, text in SOURCES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import carried_one  # type: ignore[import-not-found]
    import carried_stays  # type: ignore[import-not-found] # noqa: F401
    import carried_two  # type: ignore[import-not-found]

    yield carried_one.One, carried_two.Two
    for name in SOURCES:
        sys.modules.pop(name, None)


def templates(fake: FakeGrid) -> list[dict[str, Any]]:
    return [read_template(data) for data in fake.memory.templates.values()]


def test_the_types_of_all_items_of_a_list_travel(fake: FakeGrid, grid: Grid, modules: Any) -> None:
    one, two = modules
    grid.bag(id, [one()] * 20_000 + [two()], runtime=1)
    (template,) = templates(fake)
    assert [*template["bundle"]] == ["carried_one.py", "carried_two.py", "carried_units.py"]


def test_an_item_that_comes_late_and_refers_to_another_module_is_refused_with_advice(
    fake: FakeGrid, grid: Grid, modules: Any
) -> None:
    one, two = modules
    with pytest.raises(
        BagRejected, match=r"item 20000 refers to your module 'carried_two', .*modules=\['carried_two'\]"
    ):
        grid.bag(id, (one() if item < 20_000 else [two()] for item in range(20_001)), runtime=1)
    assert fake.memory.asked("cancel")
    grid.bag(id, (one() if item < 20_000 else [two()] for item in range(20_001)), runtime=1, modules=["carried_two"])


def test_a_call_that_needs_another_module_begins_a_bag_that_has_it(fake: FakeGrid, grid: Grid, modules: Any) -> None:
    one, two = modules
    for argument in (one(), two(), one(), two(), 1):
        grid.submit(type, argument).result()
    first, second = templates(fake)
    assert [*first["bundle"]] == ["carried_one.py"]
    assert [*second["bundle"]] == ["carried_one.py", "carried_two.py", "carried_units.py"]
    assert len(fake.memory.bags) == 2


def test_what_nothing_refers_to_stays(fake: FakeGrid, grid: Grid, modules: Any) -> None:
    grid.bag(abs, [1, 2], runtime=1)
    grid.submit(abs, 3).result()
    assert [template["bundle"] for template in templates(fake)] == [{}]


# --- environments ----------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What environments were made, of a wheel that is no wheel."""
    calls: list[tuple[Any, ...]] = []

    def made(env: Any, libraries: Any, script: str, systems: Any) -> Made:
        calls.append((env, sorted(libraries), [*systems]))
        tree = stored_pieces([memoryview(b"wheel")], "a-1-py3-none-any.whl")
        builds = tuple(
            [Build(each.python, each.platform, each.major, each.minor, tree.digest, 5, 9) for each in systems]
        )
        return Made(Environment("label", builds), (tree,))

    monkeypatch.setattr(module, "made", made)
    return calls


def test_an_environment_is_made_for_the_sorts_of_pcs_that_the_broker_knows(
    fake: FakeGrid, grid: Grid, asked: list[Any]
) -> None:
    windows, newer = System(PYTHON, "win_amd64", 0, 0), System("3.99", "win_amd64", 0, 0)
    fake.broker.answers["systems"] = {"systems": [[*windows, 0], [*newer, 7]]}
    grid.bag(abs, [1], runtime=1, env=["numpy"])
    assert asked == [(("numpy",), [], [windows])], "where its Python is, also as that of no worker itself"
    (template,) = templates(fake)
    assert [build.system for build in template["environment"].builds] == [windows]
    # It is no input of every task, and the broker has it before the task.
    assert "inputs" not in template
    grid.command(["run"], ["1"], env=["numpy"])
    assert asked[1:] == [(("numpy",), [], [newer])], "commands have the Python of each worker"


def test_without_a_known_worker_it_is_made_for_this_machine_and_once(
    fake: FakeGrid, grid: Grid, asked: list[Any]
) -> None:
    fake.broker.answers["systems"] = {"systems": []}
    for _ in range(2):
        grid.bag(abs, [1], runtime=1, env=["numpy"])
    grid.submit(task(abs, env=["numpy"]), 1).result()
    grid.command(["run"], ["1"], env=["numpy"])
    assert asked == [(("numpy",), [], [this_system()])]


def test_mine_is_what_the_function_imports(fake: FakeGrid, grid: Grid, asked: list[Any], tmp_path: Path) -> None:
    fake.broker.answers["systems"] = {"systems": []}

    def late(item: int) -> Any:
        import click

        return click.style(str(item))

    grid.bag(late, [1], runtime=1, env="mine")
    script = tmp_path / "run.py"
    script.write_text("import sys, rich.table\nif sys:\n    import msgpack\n")
    grid.command(["python", str(script)], [""], env=["mine", "more"])
    assert [libraries for _, libraries, _ in asked][1] == ["msgpack", "rich.table"]
    assert "click" in asked[0][1]


def test_what_mine_cannot_bring_because_it_is_not_installed_here_is_named(
    fake: FakeGrid, grid: Grid, asked: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake.broker.answers["systems"] = {"systems": []}
    script = tmp_path / "run.py"
    script.write_text("import os, winreg, not_here.part, Also_Not, asked_for\nfrom . import sibling\n")
    command = ["python", str(script)]
    grid.command(command, [""], env=["asked-for"])
    assert not caplog.messages
    grid.command(command, [""], env=["mine", "asked-for==2"])
    assert [message.partition(":")[0] for message in caplog.messages] == [
        '"mine" leaves out Also_Not',
        '"mine" leaves out not_here',
    ]


def test_a_bag_without_an_environment_asks_nothing_about_any(fake: FakeGrid, grid: Grid) -> None:
    sys.modules.pop("deskgrid.client.environments", None)
    grid.bag(abs, [1], runtime=1)
    assert fake.memory.asked("systems") == []
    assert "deskgrid.client.environments" not in sys.modules
