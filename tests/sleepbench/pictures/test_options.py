"""``--plot``, ``--gantt``, and the chart without them, on the command that simulates."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench.cli import simulate as command
from deskgrid.sleepbench.cli.simulate import simulate
from deskgrid.sleepbench.pictures import files
from deskgrid.sleepbench.simulated import Trial

SCENARIO = """
uptimes = [35, 200]
restart = 5
jobs = { from = 10, to = 60, step = 10 }
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A scenario of six tasks."""
    (tmp_path / "pictures").mkdir()
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO, encoding="utf-8")
    return file


def invoke(scenario: Path, *arguments: object) -> Result:
    options = ["--scenario-file", scenario, "--runs", 2, "--processes", 1, *arguments]
    return CliRunner().invoke(simulate, [str(option) for option in options])


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(trials: Sequence[Trial], processes: int) -> None:
        raise AssertionError(f"{len(trials)} runs were made")

    monkeypatch.setattr(command, "_run", run)


def test_without_a_file_bars_stand_under_the_table(scenario: Path) -> None:
    result = invoke(scenario, "--policy", "pgs,fcfs")
    assert result.exit_code == 0, result.output
    table, legend, bars = result.output.partition("makespan, minutes   │ lower bound")
    assert "lower bound" in table
    assert legend
    assert next(line.split()[:2] for line in bars.splitlines()[1:]) == ["small", "pgs"]


def test_factors_that_differ_are_no_bars_of_one_kind(scenario: Path) -> None:
    result = invoke(scenario, "--policy", "pgs", "--runtime-error", "1,2")
    assert result.exit_code == 0, result.output
    assert "│" not in result.output


def test_files_are_drawn_instead_of_the_bars(scenario: Path, tmp_path: Path) -> None:
    plot, gantt = tmp_path / "pictures" / "bars.svg", tmp_path / "pictures" / "run.png"
    result = invoke(scenario, "--policy", "pgs", "--plot", plot, "--gantt", gantt)
    assert result.exit_code == 0, result.output
    assert "makespan, minutes   " not in result.output
    assert plot.read_bytes().startswith(b"<?xml")
    assert gantt.read_bytes().startswith(b"\x89PNG")


def test_an_error_that_several_factors_are_tried_of_can_be_drawn(scenario: Path, tmp_path: Path) -> None:
    plot = tmp_path / "pictures" / "errors.svg"
    assert invoke(scenario, "--policy", "pgs", "--uptime-error", "1,2", "--plot", plot).exit_code == 0
    assert plot.exists()


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--gantt", "a.svg", "--policy", "pgs,fcfs"], "--gantt draws one run"),
        (["--gantt", "a.svg", "--policy", "pgs", "--uptime-error", "1,2"], "--gantt draws one run"),
        (["--plot", "a.svg", "--runtime-error", "1,2", "--uptime-error", "1,2"], "--plot draws against one error"),
        (["--plot", "a.gif"], ": a.gif does not"),
        (["--gantt", "none/a.svg"], "there is no folder"),
    ],
)
def test_what_is_not_one_picture_is_refused_before_the_runs(scenario: Path, options: list[str], said: str) -> None:
    result = invoke(scenario, *options)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("option", ["--plot", "--gantt"])
def test_without_matplotlib_nothing_is_run(scenario: Path, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    result = invoke(scenario, option, "a.svg")
    assert result.exit_code == 2
    assert "pip install matplotlib" in result.output


def test_a_file_that_cannot_be_written_is_one_line_after_the_table(scenario: Path, tmp_path: Path) -> None:
    file = tmp_path / "pictures" / ("a" * 300 + ".svg")
    result = invoke(scenario, "--policy", "pgs", "--plot", file)
    assert result.exit_code == 1
    assert "lower bound" in result.output
    assert "cannot be written: " in result.output
