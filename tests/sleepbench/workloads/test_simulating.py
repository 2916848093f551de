"""``deskgrid sleepbench simulate`` with jobs and PCs from elsewhere, any with any."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench.cli import sleepbench_group
from tests.sleepbench.workloads.files import event, job, log, trace


def invoke(*arguments: object) -> Result:
    """The command, in this process."""
    line = ["simulate", "--processes", "1", "--runs", "2", *map(str, arguments)]
    return CliRunner().invoke(sleepbench_group, line)


def rows(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """Its rows."""
    file = folder / "rows.json"
    result = invoke("--json", file, *arguments)
    assert result.exit_code == 0, result.output
    return list(json.loads(file.read_text(encoding="utf-8")))


@pytest.fixture
def swf(tmp_path: Path) -> Path:
    """Four jobs of use: 30, 600, 60 and 90 s, the third of two processors, and one for a day."""
    runs = [job(run=30, requested=90), job(run=600), job(run=60, processors=2), job(run=90), job(run=86_400)]
    return log(tmp_path, runs, "jobs.swf.gz")


@pytest.fixture
def fta(tmp_path: Path) -> Path:
    """Two PCs: one that is there for 100 hours after the first, and one for a minute in ten."""
    minutes = [event(1, 1, 600 * place, 600 * place + 60) for place in range(600)]
    return trace(tmp_path, event(0, 1, 3600, 361 * 1000), *minutes)


def test_jobs_of_a_log_on_the_papers_pcs(tmp_path: Path, swf: Path) -> None:
    found = rows(tmp_path, "--swf", swf, "--policy", "pgs")
    assert [(row["tasks"], row["run"], row["paper_min"]) for row in found] == [(3, 1, None), (3, 2, None)]
    assert all(row["makespan_min"] == row["lower_bound_min"] == 10.0 for row in found)
    assert found[0]["scenario"] == "4 jobs of jobs.swf.gz on PCs of scenario 3"


def test_tasks_that_no_window_holds_are_left_out_and_said(swf: Path) -> None:
    result = invoke("--swf", swf, "--per-processor", "--policy", "pgs,fcfs")
    assert result.exit_code == 0, result.output
    assert "tasks left out, longer than any window of the first 30 days: 1" in result.stderr
    assert "5 tasks" in " ".join(result.stdout.split())
    assert "jobs left out, parallel: 1" in invoke("--swf", swf, "--policy", "fcfs").stderr


def test_the_papers_jobs_on_the_pcs_of_a_trace(tmp_path: Path, fta: Path) -> None:
    found = rows(tmp_path, "--scenario", 3, "--fta", fta, "--policy", "pgs,fcfs")
    assert [(row["policy"], row["tasks"]) for row in found] == [("pgs", 240)] * 2 + [("fcfs", 240)] * 2
    assert all(row["makespan_min"] >= row["lower_bound_min"] > 480 for row in found)
    assert [row["kills"] for row in found[:2]] == [0, 0]
    assert found[2]["kills"] > 0


def test_jobs_of_a_log_on_the_pcs_of_a_trace(tmp_path: Path, swf: Path, fta: Path) -> None:
    (row, _) = rows(tmp_path, "--swf", swf, "--fta", fta, "--pcs", 1, "--policy", "fcfs")
    assert row["tasks"] == 4
    assert row["makespan_min"] == pytest.approx((3600 + 30 + 600 + 90 + 86_400) / 60)


def test_pcs_of_a_fit_are_drawn_anew_for_each_run_the_same_for_every_policy(tmp_path: Path) -> None:
    found = rows(tmp_path, "--scenario", 1, "--fit", "nd07cpu", "--pcs", 4, "--policy", "pgs,fcfs")
    bounds = [row["lower_bound_min"] for row in found]
    assert bounds[:2] == bounds[2:]
    assert bounds[0] != bounds[1]
    assert found == rows(tmp_path, "--scenario", 1, "--fit", "nd07cpu", "--pcs", 4, "--policy", "pgs,fcfs")


def test_pcs_that_are_gone_before_the_work_is_done_are_refused(tmp_path: Path, swf: Path) -> None:
    result = invoke("--swf", swf, "--fta", trace(tmp_path, event(0, 1, 0, 700)), "--policy", "fcfs")
    assert result.exit_code == 2
    assert "are gone for good before all is done" in result.output


def test_what_cannot_be_read_is_refused_with_file_and_line(tmp_path: Path) -> None:
    result = invoke("--swf", log(tmp_path, [job(), "malformed"]), "--policy", "fcfs")
    assert result.exit_code == 2
    assert "some.swf, line 2: a job has 18 fields, but this one has 1" in " ".join(result.output.split())
