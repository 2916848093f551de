"""The experiments of the paper on TLA."""

import json
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from deskgrid.papers.base import OURS, AskedExperiments
from deskgrid.papers.tla.experiment import EXPERIMENTS, PAPER, POLICIES, ClusterTrial, trials
from deskgrid.sleepbench.cli import sleepbench_group
from tests.sleepbench.workloads.files import job, log

SEEDS = range(10)


@pytest.fixture(scope="module")
def swf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log, busy enough for a queue."""
    chance = Random(1)
    sizes = (1, 1, 2, 4, 8, 16, 32, 64, 100, 128)
    lines = [
        job(number, submit=60 * number, run=round(chance.lognormvariate(6.0, 2.0)) + 1, processors=chance.choice(sizes))
        for number in range(1, 301)
    ]
    return log(tmp_path_factory.mktemp("log"), lines)


def command(*words: str) -> Result:
    return CliRunner().invoke(sleepbench_group, ["paper", "tla", *words], env={"COLUMNS": "120"})


def asked(*cases: str, experiment: str = "table", swf: Path | None = None) -> list[ClusterTrial]:
    found = trials(AskedExperiments([experiment], cases, (), SEEDS, swf))
    return [trial for trial in found if isinstance(trial, ClusterTrial)]


def test_by_default_the_row_of_a1_at_medium_load_is_made(swf: Path) -> None:
    made = trials(AskedExperiments(["table"], (), (), SEEDS, swf))
    cases = [trial.case for trial in made if isinstance(trial, ClusterTrial)]
    # Without heterogeneity all speed vectors are the same.
    assert {case: cases.count(case) for case in cases} == {
        "A1/0.75/0": len(POLICIES),
        "A1/0.75/0.1": 10 * len(POLICIES),
        "A1/0.75/0.2": 10 * len(POLICIES),
    }


def test_the_table_has_36_cases() -> None:
    assert len(EXPERIMENTS["table"].cases) == 36
    assert PAPER.runs == 10


def test_tla_beats_the_best_of_the_others(swf: Path) -> None:
    means = {}
    for policy in POLICIES:
        values = [ClusterTrial("table", "A1/0.75/0.1", policy, seed, swf).rows()[0].value for seed in range(2)]
        means[policy] = sum(values) / 2
    assert means["tla"] < 0.97 * min(means[policy] for policy in ("bf", "ff", "ai2"))
    assert all(means[policy] < 0.85 * means["tla"] for policy in OURS)


def test_what_is_not_known_of_runtimes_matters_to_tla_alone(swf: Path) -> None:
    def value(policy: str, factor: float) -> float:
        return ClusterTrial("estimates", f"A1/1/0.1/{factor:g}", policy, 0, swf, factor).rows()[0].value

    for policy in ("bf", "ff", "ai2"):
        assert value(policy, 64.0) == value(policy, 1.0)
    assert value("tla", 64.0) != value("tla", 1.0)


def test_depths_are_options_of_tla() -> None:
    options = {trial.case: trial.options for trial in asked(experiment="simulation-depth")}
    assert options["A1/1/0.1/160"]["simulation_depth"] == 160
    assert options["A1/1/0.1/all"]["simulation_depth"] is None
    deep = {trial.case: trial.options["allocation_depth"] for trial in asked(experiment="allocation-depth")}
    assert deep["A2/1/0.1/4"] == 4
    assert [trial.factor for trial in asked("A1/0.75/0.1/128", experiment="estimates")][:1] == [128.0]


def test_the_command_prints_the_paper_beside_what_comes_out_and_writes_rows(swf: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    policies = "bf,ff,ai2,tla"
    result = command("--swf", str(swf), "--case", "A1/0.75/0", "--policy", policies, "-j", "1", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "tla to the best of the others" in result.output
    assert "-45 %" in result.output
    rows = json.loads(file.read_text())
    assert [row["policy"] for row in rows] == policies.split(",")
    assert {row["case"] for row in rows} == {"A1/0.75/0"}
    assert all((row["paper"], row["experiment"], row["unit"]) == ("tla", "table", "s") for row in rows)
    assert all(row["jobs"] == 300 and row["load"] == pytest.approx(0.75) for row in rows)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--case", "A3"], "none of the experiments has the case 'A3'"),
        (["--policy", "rhap"], "none of the experiments has the policy 'rhap'"),
        (["--experiment", "depth"], "paper tla has no experiment 'depth'"),
        (["--experiment", "allocation-depth", "--policy", "bf"], "none of the experiments has the policy 'bf'"),
        (["--swf", "nowhere.swf"], "'nowhere.swf' does not exist"),
    ],
)
def test_what_there_is_not_is_refused(words: list[str], complaint: str) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.replace("│", "").split())


def test_a_log_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    result = command("--swf", str(log(tmp_path, ["1 2 3"])), "--case", "A1")
    assert result.exit_code == 2
    assert "some.swf, line 1: a job has 18 fields, but this one has 3" in result.output
    assert "Traceback" not in result.output
