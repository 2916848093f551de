"""``deskgrid sleepbench simulate``: its options, its table and its JSON."""

import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deskgrid.scheduler.policies import single_policy_names
from deskgrid.sleepbench import parameters
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.cli.chosen import Chosen

FIELDS = "scenario policy run seed makespan_min lower_bound_min paper_min tasks kills planned_kills wasted_s idle_s"
# Two PCs and ten tasks: what a test needs that is not about the paper's own scenarios.
FILE = "uptimes = [30, 50]\nrestart = 2\njobs = {from=2, to=20, step=2}\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def invoke(*arguments: object) -> Result:
    """The command, on its own, in this process."""
    return CliRunner().invoke(sleepbench_group, ["simulate", "-j", "1", *map(str, arguments)], terminal_width=200)


def rows(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """What it writes as JSON."""
    file = folder / "rows.json"
    result = invoke("--json", file, *arguments)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


# --- what it gives ---------------------------------------------------------------------------------------------------


def test_a_scenario_is_shown_with_mean_deviation_bound_and_the_papers_figure() -> None:
    result = invoke("--scenario", 3, "--policy", "pgs,fcfs", "--runs", 2)
    assert result.exit_code == 0, result.output
    assert "Scenario 3, 240 tasks" in result.output
    assert all(text in result.output for text in ("60.25", "87.88", "121.83", "makespan", "wasted s", "idle s"))


def test_the_json_has_the_rows_of_live_with_one_run_after_the_other(tmp_path: Path) -> None:
    found = rows(tmp_path, "--scenario", "0,3", "--policy", "pgs", "--runs", 2, "--seed", 5)
    assert all(list(row) == FIELDS.split() for row in found)
    assert [(row["scenario"], row["run"], row["seed"]) for row in found] == [(0, 1, 5), (0, 2, 6), (3, 1, 5), (3, 2, 6)]
    assert [row["paper_min"] for row in found] == [63.54, 63.54, 87.88, 87.88]


@pytest.mark.slow
def test_all_scenarios_and_all_policies_are_the_default(tmp_path: Path) -> None:
    found = rows(tmp_path, "--runs", 1, "--scale", 0.5)
    assert {row["scenario"] for row in found} == {0, 1, 2, 3}
    assert {row["policy"] for row in found} == set(single_policy_names())


def test_a_file_is_a_scenario_by_its_name(tmp_path: Path, mine: Path) -> None:
    found = rows(tmp_path, "--scenario-file", mine, "--policy", "pgs", "--runs", 1)
    assert [(row["scenario"], row["tasks"], row["paper_min"]) for row in found] == [("mine", 10, None)]
    assert found[0]["lower_bound_min"] == pytest.approx(55 / 60)


def test_with_factors_of_errors_each_has_its_line_and_its_rows(tmp_path: Path, mine: Path) -> None:
    common = ("--scenario-file", mine, "--policy", "pgs", "--runs", 2)
    found = rows(tmp_path, *common, "--runtime-error", "1,2", "--uptime-error", "3")
    assert [(row["runtime_error"], row["uptime_error"]) for row in found] == [(1, 3), (1, 3), (2, 3), (2, 3)]
    output = invoke(*common, "--runtime-error", "1,2").output
    assert "F: of predicted runtimes" in output
    assert "pgs F=1" in output
    assert "pgs F=2" in output
    assert "uptimes" not in output


# --- what changes a run ----------------------------------------------------------------------------------------------


def makespan(folder: Path, mine: Path, *arguments: object) -> float:
    found = rows(folder, "--scenario-file", mine, "--policy", "pgs", "--runs", 1, *arguments)
    return float(found[0]["makespan_min"]) * 60


@pytest.mark.parametrize(
    "arguments",
    [
        ("--overhead", 3),
        ("--overhead", 3, "--overhead-unknown"),
        ("--restart", 40),
        ("--opening", 5),
        ("--jitter", 0.2),
        ("--queue", 4),
        ("--policy-option", "pgs.order=fifo"),
        ("--policy-option", "margin=25"),
        ("--paper",),
    ],
)
def test_each_parameter_has_its_part_in_the_result(tmp_path: Path, mine: Path, arguments: tuple[object, ...]) -> None:
    assert makespan(tmp_path, mine, *arguments) != makespan(tmp_path, mine)


def test_what_is_said_counts_more_than_the_papers_parameters() -> None:
    said = Chosen(True, None, 0.0, None, None, None, None, 3, "current", {"pgs.order": "fifo"})
    made, paper = said.parameters(["pgs", "fcfs"]), parameters.paper_parameters()
    assert (made.overhead_s, made.restart_s, made.jitter, made.announces) == (0.0, 1.2, paper.jitter, False)
    assert made.options["pgs"] == {**paper.options["pgs"], "queue_length": 3, "order": "fifo"}
    assert made.options["fcfs"] == {**paper.options["fcfs"], "queue_length": 3}


def test_an_option_without_a_policys_name_is_for_those_that_have_it() -> None:
    said = Chosen(False, None, None, None, None, None, None, None, "all", {"order": "fifo", "queue_s": 0})
    made = said.parameters(["pgs", "fcfs"])
    assert made.options == {"pgs": {"order": "fifo", "queue_s": 0}, "fcfs": {"queue_s": 0}}


def test_pgs_does_not_mind_that_only_the_current_window_is_announced(tmp_path: Path, mine: Path) -> None:
    assert makespan(tmp_path, mine, "--announce", "current") == makespan(tmp_path, mine)


# --- other jobs, other PCs -------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    lines = [f"{job} {job} 0 {10 * job} 1 -1 -1 1 {10 * job} -1 1 1 1 1 1 -1 -1 -1" for job in range(1, 9)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_jobs_of_a_log_run_on_the_pcs_of_a_scenario_and_what_fits_none_is_left_out(log: Path, mine: Path) -> None:
    result = invoke("--swf", log, "--scenario-file", mine, "--policy", "pgs", "--runs", 2)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("tasks left out, longer than any window of the first 30 days: 4") == 1
    assert "log on PCs of scenario mine, 4 tasks" in result.output.replace(".swf", "")


def test_jobs_of_a_log_run_on_the_papers_pcs_once(log: Path, tmp_path: Path) -> None:
    assert len(rows(tmp_path, "--swf", log, "--policy", "pgs", "--runs", 1)) == 1


def test_jobs_of_a_scenario_run_on_pcs_drawn_anew_for_each_run(tmp_path: Path) -> None:
    found = rows(tmp_path, "--scenario", 3, "--fit", "nd07cpu", "--policy", "pgs", "--runs", 2)
    assert len({row["makespan_min"] for row in found}) == 2
    assert len({row["scenario"] for row in found}) == 1


def test_an_installed_policy_that_cannot_be_loaded_is_a_wrong_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("gone", "no_such_module:Policy", "deskgrid.policies")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **wanted: EntryPoints([point]).select(**wanted))
    result = invoke("--policy", "gone")
    assert result.exit_code == 2
    assert "Invalid value for --policy: policy 'gone' cannot be loaded" in " ".join(result.output.split())


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scenario", "4"], "0, 1, 2, 3 (some, with commas between) or all, not '4'"),
        (["--scenario", ""], "0, 1, 2, 3 (some, with commas between) or all, not ''"),
        (["--policy", "pgs,nonsense"], "there is no policy 'nonsense'; there are: "),
        (["--policy-option", "order"], "'order' is not KEY=VALUE"),
        (["--policy-option", "flavour=sweet"], "no policy takes 'flavour'"),
        (["--policy-option", "none.order=fifo"], "there is no policy 'none' for its option 'order'"),
        (["--policy-option", "pgs.flavour=sweet"], "policy 'pgs' has no option 'flavour'"),
        (["--policy-option", "pgs.order=up"], "order is one of newest-first, longest-first, fifo, not 'up'"),
        (["--policy-option", "fcfs.choice=best"], "choice is one of random, in-turn, first, not 'best'"),
        (["--policy-option", "margin=-1"], "margin is a finite number from 0 up"),
        (["--queue", "-1"], "-1 is not in the range x>=0"),
        (["--overhead", "-1"], "'-1' is not a number of seconds, 0 or more"),
        (["--restart", "soon"], "'soon' is not a number of seconds, 0 or more"),
        (["--opening", "nan"], "'nan' is not a number of seconds, 0 or more"),
        (["--jitter", "nan"], "'nan' is not a finite number"),
        (["--jitter", "11"], "11.0 is not in the range 0<=x<=10"),
        (["--announce", "some"], "'some' is not one of 'all', 'current'"),
        (["--runtime-error", "0.5"], "'0.5' is not a number from 1 to 1,000"),
        (["--runtime-error", "2,,3"], "'' is not a number from 1 to 1,000"),
        (["--uptime-error", "nan"], "'nan' is not a number from 1 to 1,000"),
        (["--scale", "0"], "0.0 is not in the range x>0"),
        (["--scale", "inf"], "'inf' is not a finite number"),
        (["--runs", "0"], "0 is not in the range x>=1"),
        (["--seed", "-1"], "-1 is not in the range x>=0"),
        (["--json", "/nowhere/rows.json"], "there is no folder /nowhere"),
        (["--scenario-file", "/nowhere.toml"], "File '/nowhere.toml' does not exist"),
        (["--fit", "nd07cpu", "--scale", "2"], "--scale goes with scenarios only"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_a_line(arguments: list[str], complaint: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert complaint in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_file_that_is_wrong_is_refused_with_its_line(mine: Path) -> None:
    mine.write_text(FILE + "order = 'up'\n", encoding="utf-8")
    result = invoke("--scenario-file", mine)
    assert result.exit_code == 2
    assert "order: one of ascending, descending, shuffled, not 'up' (at line 4)" in " ".join(result.output.split())


def test_two_sources_of_jobs_are_refused(mine: Path) -> None:
    result = invoke("--scenario-file", mine, "--scenario", 3)
    assert result.exit_code == 2
    assert "there can be one" in result.output


def test_a_run_without_an_end_is_an_error_after_the_others_were_shown(tmp_path: Path, mine: Path) -> None:
    file = tmp_path / "rows.json"
    result = invoke(
        "--scenario-file", mine, "--policy", "pgs,fcfs", "--policy-option", "pgs.margin=45", "--json", file, "--runs", 2
    )
    assert result.exit_code == 2
    assert "a run would never end: mine, 10 tasks, pgs, run 1: " in result.output
    assert "(and 1 more runs)" in result.output
    assert [row["policy"] for row in json.loads(file.read_text(encoding="utf-8"))] == ["fcfs", "fcfs"]
