"""``deskgrid sleepbench live``: its options, its table and its JSON, with runs that are only pretended."""

import json
from collections.abc import Callable, Sized
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench import live
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.costs import measure
from deskgrid.sleepbench.live import LiveRun
from deskgrid.sleepbench.scenarios import Measurements, Scenario

FIELDS = "scenario policy run seed makespan_min lower_bound_min paper_min tasks kills planned_kills wasted_s idle_s"


def invoke(*arguments: object) -> Result:
    """The command, on its own."""
    return CliRunner().invoke(sleepbench_group, ["live", *map(str, arguments)])


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int | str, float, str, int]]:
    """The runs that the command made: (scenario, scale, policy, seed). Each takes a paper hour more than the last."""
    made: list[tuple[int | str, float, str, int]] = []

    def run(scenario: Scenario, scale: float, policy: str, seed: int, progress: Callable[[int], None]) -> LiveRun:
        made.append((scenario.number, scale, policy, seed))
        progress(len(scenario.tasks))
        measured = Measurements(3600.0 * scale * len(made), 8 * 3600.0 * scale, 28920.0 * scale, 0.0, 0, 0)
        return LiveRun(measured, measure([], []))

    monkeypatch.setattr(live, "run_live", run)
    return made


def test_a_run_is_made_as_asked_and_shown_with_bound_and_figure(runs: list[tuple[int | str, float, str, int]]) -> None:
    result = invoke("--scenario", 2, "--policy", "fcfs", "--scale", 0.1, "--seed", 7)
    assert result.exit_code == 0, result.output
    assert runs == [(2, 0.1, "fcfs", 7)]
    assert "Scenario 2 under fcfs, every time multiplied by 0.1" in result.output
    assert all(text in result.output for text in ("60.00", "60.25", "87.30"))


def test_the_json_has_a_row_for_each_run_and_seeds_that_differ(
    runs: list[tuple[int | str, float, str, int]], tmp_path: Path
) -> None:
    file = tmp_path / "rows.json"
    assert invoke("--scenario", 3, "--runs", 2, "--seed", 4, "--json", file).exit_code == 0
    rows = json.loads(file.read_text(encoding="utf-8"))
    assert all(list(row) == FIELDS.split() for row in rows)
    assert [(row["run"], row["seed"]) for row in rows] == [(1, 4), (2, 5)]
    assert [row["makespan_min"] for row in rows] == pytest.approx([60.0, 120.0])
    assert [seed for *_, seed in runs] == [4, 5]


def test_runs_that_were_finished_are_kept_when_a_later_one_fails(
    runs: list[tuple[int | str, float, str, int]], tmp_path: Path, fail_second: Callable[[Sized], None]
) -> None:
    fail_second(runs)
    file = tmp_path / "rows.json"
    result = invoke("--runs", 3, "--json", file)
    assert result.exit_code == 1
    assert "broker ended with code 1" in result.output
    assert len(json.loads(file.read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--scenario", 4),
        ("--policy", "other"),
        ("--scale", 0),
        ("--scale", "nan"),
        ("--scale", 2),
        ("--runs", 0),
        ("--seed", -1),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_started(
    runs: list[tuple[int | str, float, str, int]], arguments: tuple[object, ...]
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert str(arguments[0]) in result.output
    assert runs == []


def test_a_file_in_a_folder_that_is_not_there_is_refused_before_the_run(
    runs: list[tuple[int | str, float, str, int]], tmp_path: Path
) -> None:
    result = invoke("--json", tmp_path / "nowhere" / "rows.json")
    assert result.exit_code == 2
    assert "--json" in result.output
    assert runs == []
