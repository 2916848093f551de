"""``deskgrid status``, ``bags`` and ``policy``."""

import json
from contextlib import nullcontext
from typing import Any, cast

import pytest
from rich.console import Console

from deskgrid.cli.grid import fitted_table
from deskgrid.client.replies import ANSWER_S, ORDER_S
from deskgrid.wire.status import AbsentPC
from tests.cli.fakes import ADMIN, FakeGrid, deskgrid, use
from tests.screen.builders import BAG, bag, lab, snapshot, worker


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    """A grid of 40 workers and some bags."""
    monkeypatch.setenv("COLUMNS", "80")
    found = use(monkeypatch, FakeGrid())
    found.snapshot = cast(dict[str, Any], lab(40))
    return found


def test_status_as_json_is_the_snapshot_unchanged(grid: FakeGrid) -> None:
    result = deskgrid("status", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json.loads(json.dumps(grid.snapshot))


@pytest.mark.parametrize("arguments", [["--once"], []])
def test_status_is_printed_once_when_asked_or_when_stdout_is_no_terminal(grid: FakeGrid, arguments: list[str]) -> None:
    result = deskgrid("status", *arguments)
    assert result.exit_code == 0
    assert all(f"{worker['name']} " in result.stdout for worker in grid.snapshot["workers"])
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert "\x1b" not in result.stdout


def test_on_a_terminal_status_is_live(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("rich.console.Console.is_dumb_terminal", False)

    def watch(ask: Any, console: Console) -> None:
        ask("status", {})
        ask("cancel", {"bag": BAG})

    monkeypatch.setattr("deskgrid.screen.watch.watch", watch)
    monkeypatch.setattr("deskgrid.cli.grid.open_link", nullcontext)
    monkeypatch.setattr("deskgrid.client.replies.ask", lambda *question: asked.append(question))
    assert deskgrid("status", "--join", "a line").exit_code == 0
    assert asked == [("a line", "status", {}, ANSWER_S), ("a line", "cancel", {"bag": BAG}, ORDER_S)]


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({}, 0, "OK: 1 worker up, 0 bags under way"),
        ({"disk": "low"}, 1, "WARNING: the disk is nearly full; 1 worker up"),
        ({"problems": ["windows.toml: oops"]}, 1, "WARNING: windows.toml: oops; 1 worker up"),
        ({"disk": "full"}, 2, "CRITICAL: the disk is full; 1 worker up"),
    ],
)
def test_a_monitoring_system_gets_one_line_and_an_exit_code(
    grid: FakeGrid, change: dict[str, Any], code: int, said: str
) -> None:
    seen = snapshot([worker()], [])
    seen["broker"] = cast(Any, seen["broker"] | change)
    grid.snapshot = cast(dict[str, Any], seen)
    result = deskgrid("status", "--check")
    assert result.exit_code == code
    assert result.stdout.startswith(said)


def test_a_monitoring_system_is_told_of_missing_lost_and_sick_pcs_and_of_work_without_pcs(grid: FakeGrid) -> None:
    pc = AbsentPC(pc="lab-0", plan="daily 9-17", since_s=60.0, seen_s=None)
    sick = worker("lab-1") | {"quarantine_s": 9.0}
    grid.snapshot = cast(dict[str, Any], snapshot([sick, worker("lab-2", state="lost")], [], absent=[pc]))
    result = deskgrid("status", "--check")
    said = "WARNING: 1 PC missing; 1 worker lost; in quarantine: lab-1; 1 worker up, 0 bags under way\n"
    assert (result.exit_code, result.stdout) == (1, said)
    grid.snapshot = cast(dict[str, Any], snapshot([], []))
    result = deskgrid("status", "--check")
    assert (result.exit_code, result.stdout) == (
        2,
        "CRITICAL: 56 tasks waiting, and no worker is up; 0 workers up, 0 bags under way\n",
    )
    grid.snapshot = cast(dict[str, Any], snapshot([worker(state="away")], []))
    assert deskgrid("status", "--check").exit_code == 0, "at this time, nobody is expected"
    assert "--check goes with neither --once nor --json" in deskgrid("status", "--check", "--json").stderr


def test_bags_are_a_table_with_the_oldest_first(grid: FakeGrid) -> None:
    grid.rows = [  # in the order in which the broker tells them
        bag("old", id="ffffffffffff", done=7, running=0, waiting=0, age_s=9000.0),
        bag("sweep", done=1204, failed=3, cancelled=1, age_s=7500.0),
        bag("new", id="0123456789ab", age_s=5.0, eta_s=None),
    ]
    header, old, sweep, new = deskgrid("bags").stdout.splitlines()
    assert header.startswith("BAG ")
    assert old.startswith("ffffffffffff  client  2 h 30 min ")
    assert old.endswith("  ended  old")
    assert sweep.startswith(f"{BAG}  client  2 h 05 min ")
    assert [sweep.split()[place] for place in range(6, 12)] == ["1268", "1204", "3", "1", "4", "56"]
    assert sweep.endswith("  15 min  sweep")
    assert new.endswith("  unknown  new")


def test_on_a_narrow_terminal_bags_have_fewer_columns() -> None:
    titles = ("BAG", "OWNER", "AGE", "TASKS", "DONE", "FAILED", "CANCELLED", "RUNNING", "WAITING", "TO GO", "NAME")
    rows = [titles, (BAG, "client", "9 min 32 s", "5", "4", "1", "0", "0", "0", "ended", "checks-of-data")]
    assert max(map(len, fitted_table(rows, None))) > 80
    for width in (80, 100):
        header, line = fitted_table(rows, width)
        assert 60 < len(line) <= width
        assert {"BAG", "OWNER", "TASKS", "DONE", "FAILED", "NAME"} <= set(header.split())
        assert header.index("NAME") == line.index("checks-of-data")
    assert fitted_table(rows, 1)[0].split() == ["BAG", "TASKS", "DONE", "FAILED", "TO", "GO", "NAME"]


def test_bags_are_listed_without_what_a_terminal_might_obey(grid: FakeGrid) -> None:
    harm = "\x1b[2J\x9b\u202e"
    grid.rows = [dict(bag(f"n{harm}")) | {"bag": f"b{harm}", "owner": f"o{harm}"}]
    for line in deskgrid("bags").stdout.splitlines():
        assert line.isprintable()


def test_a_worker_with_a_name_of_digits_only_is_shown(grid: FakeGrid) -> None:
    grid.snapshot = cast(dict[str, Any], snapshot([worker("9" * 5000), worker("10"), worker("9")], []))
    assert deskgrid("status", "--once").exit_code == 0


def test_without_bags_there_is_the_heading_alone(grid: FakeGrid) -> None:
    (line,) = deskgrid("bags").stdout.splitlines()
    assert line.startswith("BAG")


def test_a_policy_is_chosen_with_its_options_and_shown_with_all_of_them(grid: FakeGrid) -> None:
    result = deskgrid("policy", "pgs", "order=fifo", "queue_length=2", "margin=0.5", "x=NaN")
    assert grid.policies == [("pgs", {"order": "fifo", "queue_length": 2, "margin": 0.5, "x": "NaN"})]
    assert result.stdout == "pgs order=longest-first margin=1.0\n"


def test_on_the_brokers_machine_all_commands_are_the_admins_but_those_that_submit(grid: FakeGrid) -> None:
    for arguments in (["policy", "pgs"], ["policy", "pgs", "--join", "client@lab:1"], ["bags"], ["bags", "--mine"]):
        deskgrid(*arguments)
    assert grid.joins == [ADMIN, "client@lab:1", ADMIN, None]


def test_bags_are_chosen_by_state_age_and_name(grid: FakeGrid) -> None:
    grid.rows = [
        bag("old", done=7, running=0, waiting=0, age_s=9000.0),
        bag("sweep-1", failed=3, age_s=7500.0),
        bag("sweep-2", age_s=5.0) | {"paused": True},
    ]

    def names(*arguments: str) -> list[str]:
        return [line.split()[-1] for line in deskgrid("bags", *arguments).stdout.splitlines()[1:]]

    assert names("--state", "unfinished") == ["sweep-1", "sweep-2"]
    assert names("--state", "ended") == ["old"]
    assert names("--state", "failed") == ["sweep-1"]
    assert names("--state", "paused") == ["sweep-2"]
    assert names("--since", "2h29min") == ["sweep-1", "sweep-2"]
    assert names("--name", "sweep-*", "--since", "1h") == ["sweep-2"]


def test_workers_are_listed_by_name_with_what_is_wrong_on_stderr(grid: FakeGrid) -> None:
    away = worker("lab-1", state="away", uptime_s=0.0, plan="daily 20-07")
    sick = worker("Lab-2", note="in quarantine: 3 crashes in a row") | {"quarantine_s": 9.0}
    rest = [
        worker("pc-1") | {"drained_by": "admin"},
        worker("pc-2", uptime_s=None),
        worker("pc-3") | {"paused": "typed"},
    ]
    grid.snapshot = cast(dict[str, Any], snapshot([*rest, sick, away], []))
    result = deskgrid("workers")
    title, *rows = result.stdout.splitlines()
    assert title.split()[:4] == ["WORKER", "STATE", "LEFT", "BUSY"]
    assert [row.split()[:2] for row in rows] == [
        ["lab-1", "away"],
        ["Lab-2", "quarantine"],
        ["pc-1", "drained"],
        ["pc-2", "up"],
        ["pc-3", "paused"],
    ]
    assert rows[0].endswith("daily 20-07")
    assert rows[3].split()[2] == "open"
    assert result.stderr == "deskgrid: Lab-2: in quarantine: 3 crashes in a row\n"
    assert len(deskgrid("workers", "LAB-*", "pc-3").stdout.splitlines()) == 1 + 3
    pc = AbsentPC(pc="lab-0", plan="daily 9-17", since_s=60.0, seen_s=None)
    grid.snapshot = cast(dict[str, Any], snapshot([away], [], absent=[pc, pc | {"pc": "lab-1"}]))
    rows = deskgrid("workers", "lab-*").stdout.splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["lab-0", "missing"], ["lab-1", "missing"]]
    assert rows[0].endswith("daily 9-17")
    assert deskgrid("workers", "lib-*").stderr == "deskgrid: no worker has a name like lib-*\n"


def test_workers_of_another_version_than_the_broker_are_named(grid: FakeGrid) -> None:
    old = worker("lab-2") | {"version": "0.0.9+wire6"}
    grid.snapshot = cast(dict[str, Any], snapshot([worker("lab-1"), old], []))
    said = "deskgrid: 1 worker runs another version than the broker (0.1.0):\ndeskgrid: lab-2: 0.0.9+wire6\n"
    assert deskgrid("workers").stderr == said
    assert deskgrid("workers", "lab-1").stderr == ""
