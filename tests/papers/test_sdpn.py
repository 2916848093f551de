"""The experiments of the paper on SDPN."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from deskgrid.papers.base import AskedExperiments, TrialRow
from deskgrid.papers.cisne import runs
from deskgrid.papers.cisne.experiment import EXPERIMENTS, LabTrial, trials
from deskgrid.papers.cisne.runs import LabRun, Setting
from deskgrid.papers.printed import mean_of, table_of
from deskgrid.sleepbench.cli import sleepbench_group


@pytest.fixture(autouse=True, scope="module")
def short_memory() -> Iterator[None]:
    """Fewer earlier days are remembered: the rest of an experiment is as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(table_of("sdpn")["assumed"], "days", 1)
        runs.past.cache_clear()
        yield
    runs.past.cache_clear()


def rows(*settings: Setting) -> list[TrialRow]:
    asked = AskedExperiments(list(EXPERIMENTS), (), (), range(1))
    return [row for setting in settings for row in LabTrial(setting, 0, asked).rows()]


@pytest.fixture(scope="module")
def shared(short_memory: None) -> list[TrialRow]:
    """With up to four processes a PC."""
    return rows(Setting(4, "fcfs", "normal"), Setting(4, "backfilling", "uniform", saturated=True))


@pytest.mark.slow
def test_with_shared_pcs_sdpn_predicts_best(shared: list[TrialRow]) -> None:
    for experiment, case in (("turnaround", "4/fcfs"), ("saturated", "4/backfilling")):
        off = {name: mean_of(shared, experiment, case, name) or 0.0 for name in EXPERIMENTS[experiment].policies}
        assert min(off, key=off.__getitem__) == "sdpn", off


def test_a_longer_window_predicts_execution_times_better(shared: list[TrialRow]) -> None:
    off = {seconds: mean_of(shared, "window", "execution", f"sdpn-{seconds}") or 0.0 for seconds in (1, 30, 120)}
    assert off[120] < off[1]
    assert off[30] < off[1]


def test_a_run_has_a_row_for_each_of_its_cases(shared: list[TrialRow]) -> None:
    def found(experiment: str) -> set[tuple[str, str]]:
        return {(row.case, row.policy) for row in shared if row.experiment == experiment}

    assert len(found("turnaround")) == len(found("saturated")) == len(found("cost")) == 5
    assert found("parts") == {
        (f"{part}/fcfs/normal", name) for part in ("waiting", "execution") for name in ("sdpn", "hanzich", "historical")
    }
    assert len(found("window")) == 6
    assert all(row.case in EXPERIMENTS[row.experiment].cases for row in shared)


def test_a_simulation_is_played_in_milliseconds(shared: list[TrialRow]) -> None:
    cost = {row.policy: row.value for row in shared if row.experiment == "cost"}
    assert cost["sdpn"] < 100.0  # 1 ms, on a machine that does nothing else


def test_one_process_a_pc_makes_jobs_wait_and_historical_fail() -> None:
    found = rows(Setting(1, "fcfs", "normal"))
    off = {row.policy: row.value for row in found if row.experiment == "turnaround"}
    assert off["sdpn"] < 1.05 * off["hanzich"]
    assert max(off, key=off.__getitem__) == "historical"
    assert {row.experiment for row in found} == {"turnaround"}


def test_a_run_is_the_same_every_time_and_nothing_ends_before_it_could() -> None:
    def ended() -> list[tuple[float, float]]:
        run = LabRun(Setting(2, "backfilling", "normal"), "x", lambda run, task: None).run()
        assert all(each.waited >= 0.0 and each.ran >= 0.99 * sum(each.job.really) for each in run)
        return [(each.waited, each.ran) for each in run]

    assert ended() == ended()


def test_only_runs_that_are_needed_are_made() -> None:
    def settings(experiment: str, *cases: str) -> set[Setting]:
        found = trials(AskedExperiments([experiment], cases, (), range(2)))
        made = {(trial.setting, trial.seed) for trial in found if isinstance(trial, LabTrial)}
        assert len(made) == len(found)
        return {setting for setting, _ in made}

    assert settings("saturated", "4/fcfs") == {
        Setting(4, "fcfs", "normal", saturated=True),
        Setting(4, "fcfs", "uniform", saturated=True),
    }
    assert len(settings("turnaround")) == 16
    assert settings("parts", "waiting/fcfs/normal") == {Setting(4, "fcfs", "normal")}
    assert len(settings("cost")) == 4


def test_the_command_writes_what_was_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    words = ["--case", "2/fcfs/uniform", "--policy", "sdpn,hanzich", "--runs", "1", "-j", "1", "--json", str(file)]
    result = CliRunner().invoke(sleepbench_group, ["paper", "sdpn", *words])
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())
    assert [(row["case"], row["policy"], row["unit"]) for row in written] == [
        ("2/fcfs/uniform", "sdpn", "%"),
        ("2/fcfs/uniform", "hanzich", "%"),
    ]


def test_it_reads_no_log(tmp_path: Path) -> None:
    file = tmp_path / "some.swf"
    file.write_text("")
    result = CliRunner().invoke(sleepbench_group, ["paper", "sdpn", "--swf", str(file)])
    assert result.exit_code == 2
    assert "paper sdpn does not read a log" in result.output
