"""``deskgrid sleepbench compare``: what it runs, says, writes and exits with; the live runs are only pretended."""

import json
from collections.abc import Callable, Sized
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench import live
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.costs import Cost, Costs
from deskgrid.sleepbench.live import LiveRun
from deskgrid.sleepbench.scenarios import Measurements, Scenario

COSTS = Costs(Cost(0.001, 0.1, 10), Cost(0.003, 0.2, 5), Cost(0.02, 0.3, 4), Cost(0.002, 0.004, 8), 0.03, {})
# What PGS needs for scenario 3 with these costs at scale 0.02, in the paper's minutes; found by the simulator.
SIMULATED_MIN = 74.2

Run = tuple[int | str, float, str, int]


def invoke(*arguments: object) -> Result:
    """The command, on its own, for PGS in scenario 3."""
    words = ["compare", "--scenario", "3", "--policy", "pgs", *map(str, arguments)]
    return CliRunner().invoke(sleepbench_group, words, env={"COLUMNS": "160"})


def pretend(monkeypatch: pytest.MonkeyPatch, minutes: float, kills: int = 0) -> list[Run]:
    """All live runs take so long; the list that they are noted in as (scenario, scale, policy, seed)."""
    made: list[Run] = []

    def run(scenario: Scenario, scale: float, policy: str, seed: int, progress: Callable[[int], None]) -> LiveRun:
        made.append((scenario.number, scale, policy, seed))
        progress(len(scenario.tasks))
        return LiveRun(Measurements(60 * minutes * scale, 0.0, 0.0, 0.0, kills, kills), COSTS)

    monkeypatch.setattr(live, "run_live", run)
    return made


def test_it_runs_what_is_asked_and_simulates_it_with_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, file = pretend(monkeypatch, SIMULATED_MIN), tmp_path / "compared.json"
    result = invoke("--runs", 2, "--seed", 7, "--scale", 0.02, "--json", file, "--check")
    assert result.exit_code == 0, result.output
    assert made == [(3, 0.02, "pgs", 7), (3, 0.02, "pgs", 8)]
    (written,) = json.loads(file.read_text(encoding="utf-8"))
    assert written["live_min"] == pytest.approx(SIMULATED_MIN)
    assert written["simulated_min"] == pytest.approx(SIMULATED_MIN, rel=0.02)
    assert written["kills_agree"] is written["close"] is True
    assert len(written["live"]) == len(written["simulated"]) == len(written["costs"]) == 2
    assert "Live and simulated, every time multiplied by 0.02" in result.output
    assert "3 pgs" in result.output


@pytest.mark.parametrize(("minutes", "kills"), [(SIMULATED_MIN * 1.1, 0), (SIMULATED_MIN, 1)])
def test_what_does_not_agree_is_an_error_only_when_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, minutes: float, kills: int
) -> None:
    pretend(monkeypatch, minutes, kills)
    assert invoke("--runs", 1).exit_code == 0
    result = invoke("--runs", 1, "--check")
    assert result.exit_code == 1
    assert "live and simulated do not agree" in result.output


def test_a_run_that_fails_is_told_and_what_was_compared_before_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fail_second: Callable[[Sized], None]
) -> None:
    made, file = pretend(monkeypatch, SIMULATED_MIN), tmp_path / "compared.json"
    fail_second(made)
    result = invoke("--runs", 1, "--policy", "pgs,fcfs", "--json", file)
    assert result.exit_code == 1
    assert "broker ended with code 1" in result.output
    assert len(json.loads(file.read_text(encoding="utf-8"))) == 1


@pytest.mark.parametrize(
    "arguments",
    [("--scenario", 4), ("--policy", "other"), ("--scale", 0), ("--scale", "nan"), ("--scale", 2), ("--runs", 0)],
)
def test_what_cannot_be_run_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]
) -> None:
    made = pretend(monkeypatch, SIMULATED_MIN)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert str(arguments[0]) in result.output
    assert made == []
