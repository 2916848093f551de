"""``deskgrid sleepbench paper``: what it prints and writes, and what it refuses."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deskgrid.papers import base
from deskgrid.papers.base import AskedExperiments, PaperError
from deskgrid.papers.rhap import experiment as rhap
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.cli.common import write_json

IDENTITY = ["paper", "experiment", "case", "policy", "seed", "value", "unit"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(sleepbench_group, ["paper", *map(str, arguments)], env={"COLUMNS": "110"})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of the RHAP paper have 60 jobs."""
    monkeypatch.setitem(rhap._FACTS, "jobs", 60)

    def trials(asked: AskedExperiments) -> list[rhap.RhapTrial]:
        return [
            rhap.RhapTrial(each.experiment, each.case, each.policy, each.seed, 60)
            for each in rhap.trials(asked)
            if isinstance(each, rhap.RhapTrial)
        ]

    monkeypatch.setattr(rhap, "PAPER", base.Paper("rhap", "RHAP", rhap.EXPERIMENTS, trials, runs=2))


@pytest.mark.usefixtures("short")
def test_a_paper_is_printed_and_its_rows_are_written(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    result = invoke("rhap", "--case", "0.7", "--policy", "rhap,hap,map", "-j", 1, "--seed", 5, "--json", file)
    assert result.exit_code == 0, result.output
    assert "Load: mean response time, s" in result.stdout
    assert "rhap < hap < map" in result.stdout
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["policy"], row["seed"]) for row in found] == [
        (policy, seed) for policy in ("map", "hap", "rhap") for seed in (5, 6)
    ]
    assert all(list(row)[: len(IDENTITY)] == IDENTITY for row in found)
    assert {(row["paper"], row["experiment"], row["case"], row["unit"]) for row in found} == {
        ("rhap", "load", "0.7", "s")
    }
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.usefixtures("short")
def test_rows_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    files = [tmp_path / f"{processes}.json" for processes in (1, 2)]
    for processes, file in enumerate(files, start=1):
        chosen = ("--case", "0.5", "--policy", "rhap", "--runs", 2, "-j", processes, "--json", file)
        assert invoke("rhap", *chosen).exit_code == 0
    assert files[0].read_text() == files[1].read_text()


@pytest.mark.usefixtures("short")
def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "load.svg"
    assert invoke("rhap", "--case", "0.5,0.7", "--policy", "rhap,map", "-j", 1, "--plot", picture).exit_code == 0
    assert "mean response time (s)" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Missing argument"),
        (["pgs"], "'pgs' is not one of 'sdpn', 'rhap', 'scojo-p', 'tla'"),
        (["rhap", "--experiment", "table"], "paper rhap has no experiment 'table'"),
        (["rhap", "--policy", "tla"], "none of the experiments has the policy 'tla'"),
        (["rhap", "--case", "0.75"], "none of the experiments has the case '0.75'"),
        (["rhap", "--experiment", "arrival-cv", "--case", "0.7"], "none of the experiments has the case '0.7'"),
        (
            ["scojo-p", "--experiment", "response", "--case", "W1/short"],
            "none of the experiments has the case 'W1/short'",
        ),
        (["rhap", "--runs", "0"], "'--runs'"),
        (["rhap", "--runs", "many"], "'--runs'"),
        (["rhap", "--seed", "-1"], "'--seed'"),
        (["rhap", "--processes", "0"], "'--processes'"),
        (["rhap", "--json", "/nowhere/at/all.json"], "there is no folder /nowhere/at"),
        (["rhap", "--plot", "load.gif"], "has to end in .svg, .png or .pdf"),
        (["rhap", "--swf", __file__], "paper rhap does not read a log"),
        (["tla", "--swf", "/nowhere.swf"], "'/nowhere.swf' does not exist"),
    ],
)
def test_bad_arguments_are_refused_with_a_reason(arguments: list[str], complaint: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.usefixtures("short")
def test_what_cannot_be_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(asked: AskedExperiments) -> list[base.PaperTrial]:
        raise PaperError("there is no such log")

    monkeypatch.setattr(rhap, "PAPER", base.Paper("rhap", "RHAP", rhap.EXPERIMENTS, refuse, runs=2))
    result = invoke("rhap")
    assert result.exit_code == 2
    assert "there is no such log" in result.stderr


def test_rows_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file, link = tmp_path / "rows.json", tmp_path / "link.json"
    link.symlink_to(file)
    write_json(file, [{"a": 1}])
    write_json(link, [{"a": 2}])
    assert json.loads(file.read_text()) == [{"a": 2}]
    assert link.is_symlink()
    with pytest.raises(TypeError):
        write_json(file, [{"a": object()}])
    assert json.loads(file.read_text()) == [{"a": 2}]
    write_json(Path("/dev/null"), [{"a": 3}])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["link.json", "rows.json"]
