"""Scenarios of one's own: what may stand in the file, and what is said of everything else."""

import math
from pathlib import Path

import pytest

from deskgrid.sleepbench.scenario_file import TASKS_MOST, read_scenario
from deskgrid.sleepbench.scenarios import Scenario, ScenarioError, paper_scenario

JOBS = "jobs = [3, 1, 2]\n"


def read(folder: Path, text: str) -> Scenario:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_scenario(path)


def test_a_file_says_what_the_paper_says(tmp_path: Path) -> None:
    text = (
        "uptimes = [84, 117, 163, 228, 318, 443, 619, 864]\nrestart = 1\njobs = {from=0.5, to=120, step=0.5, copies=2}"
    )
    scenario, paper = read(tmp_path, text), paper_scenario(2)
    assert scenario.number == "mine"
    assert (scenario.tasks, scenario.uptimes, scenario.restart) == (paper.tasks, paper.uptimes, paper.restart)


def test_little_has_to_be_said(tmp_path: Path) -> None:
    scenario = read(tmp_path, "uptimes = [10, inf]\njobs = {from=2, to=4}")
    assert (scenario.tasks, scenario.uptimes, scenario.restart) == ((2.0, 3.0, 4.0), (10.0, math.inf), 0.0)


@pytest.mark.parametrize(
    ("order", "tasks"), [("", (3, 1, 2)), ("order='ascending'", (1, 2, 3)), ("order='descending'", (3, 2, 1))]
)
def test_tasks_come_in_the_order_that_is_asked_for(tmp_path: Path, order: str, tasks: tuple[float, ...]) -> None:
    scenario = read(tmp_path, f"uptimes = [10]\n{JOBS}{order}")
    assert (scenario.tasks, scenario.in_order(7)) == (tasks, tasks)


def test_each_seed_shuffles_anew_and_always_alike(tmp_path: Path) -> None:
    text = "uptimes = [10]\njobs = {from=1, to=30}\norder = 'shuffled'"
    scenario, again = read(tmp_path, text), read(tmp_path, text)
    assert scenario.in_order(1) == again.in_order(1) != scenario.in_order(2)
    assert sorted(scenario.in_order(1)) == list(scenario.tasks)
    assert scenario.scaled(0.5).in_order(1) == tuple(seconds / 2 for seconds in scenario.in_order(1))


def test_steps_that_are_no_binary_fractions_reach_the_last(tmp_path: Path) -> None:
    scenario = read(tmp_path, "uptimes = [10]\njobs = {from=0.1, to=0.9, step=0.1}")
    assert len(scenario.tasks) == 9
    assert scenario.tasks[-1] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{JOBS}uptimes == [10]", r"mine\.toml: .*\(at line 2, column 10\)"),
        ("uptimes = [10\n", r"mine\.toml: .*\(at end of document\)"),
        (JOBS, "uptimes is missing"),
        ("uptimes = [10]", "jobs is missing"),
        (f"uptimes = [10]\n\n{JOBS}sort = 'up'", r"there is no 'sort'; there are: uptimes, .*\(at line 4\)"),
        (f"{JOBS}uptimes = 10", r"uptimes: a list of seconds.*\(at line 2\)"),
        (f"{JOBS}uptimes = []", "uptimes: a list of seconds"),
        (f"{JOBS}uptimes = [10, 0]", "uptimes: a number above 0, not 0"),
        (f"{JOBS}uptimes = [nan]", "uptimes: a number above 0, not nan"),
        (f"{JOBS}uptimes = [true]", "uptimes: a number above 0, not True"),
        (f"{JOBS}uptimes = ['10']", "uptimes: a number above 0, not '10'"),
        (f"uptimes = [10]\n{JOBS}restart = -1", r"restart: a number from 0 up, not -1 \(at line 3\)"),
        (f"uptimes = [10]\n{JOBS}restart = inf", "restart: a number from 0 up, not inf"),
        (f"uptimes = [10]\n{JOBS}restart = false", "restart: a number from 0 up, not False"),
        (f"uptimes = [10]\n{JOBS}order = 'random'", "order: one of ascending, descending, shuffled, not 'random'"),
        (f"uptimes = [10]\n{JOBS}order = ['ascending']", "order: one of"),
        ("uptimes = [10]\njobs = 5", "jobs: a list of seconds with one at least, or a table"),
        ("uptimes = [10]\njobs = []", "jobs: a list of seconds"),
        ("uptimes = [10]\njobs = [1, inf]", "jobs: a number above 0, not inf"),
        ("uptimes = [10]\njobs = {from=1}", "jobs: from and to are both needed"),
        ("uptimes = [10]\njobs = {from=1, to=3, by=2}", "jobs: there is no 'by'"),
        ("uptimes = [10]\njobs = {from=3, to=1}", "jobs: from 3 to 1 there is nothing"),
        ("uptimes = [10]\njobs = {from=1, to=3, step=0}", "jobs: step is a number above 0, not 0"),
        ("uptimes = [10]\njobs = {from='1', to=3}", "jobs: from is a number above 0, not '1'"),
        ("uptimes = [10]\njobs = {from=1, to=3, copies=1.5}", "jobs: copies is a whole number from 1 up, not 1.5"),
        ("uptimes = [10]\njobs = {from=1, to=3, copies=0}", "jobs: copies is a whole number"),
        ("uptimes = [10]\njobs = {from=1, to=3, copies=true}", "jobs: copies is a whole number"),
        ("uptimes = [10]\njobs = {from=1, to=1e9}", f"jobs: 1,000,000,000 tasks; at most {TASKS_MOST:,}"),
        ("uptimes = [10]\n[jobs]\nfrom = 1\nto = 'x'", r"jobs: to is a number above 0, not 'x' \(at line 2\)"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_the_file_and_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_file_that_is_no_text_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_scenario(tmp_path / "mine.toml")
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_scenario(tmp_path / "none.toml")
