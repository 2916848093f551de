"""The options that choose jobs and PCs: what they give, and which do not go together."""

from itertools import islice
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench.workloads.options import Sources, source_options
from tests.sleepbench.workloads.files import event, job, log, node, trace


def parse(*arguments: object) -> tuple[Result, list[Sources]]:
    """What a command with these options makes of a line."""
    found: list[Sources] = []

    @click.command()
    @click.option("--other", default=1)
    @source_options
    def command(*, other: int, sources: Sources) -> None:
        """A command."""
        assert other == 1
        found.append(sources)

    return CliRunner().invoke(command, [str(argument) for argument in arguments]), found


def test_without_options_jobs_and_pcs_are_the_scenarios() -> None:
    _, (sources,) = parse()
    assert (sources.other_jobs, sources.other_pcs) == (False, False)
    assert (sources.read_jobs(), sources.read_lab(1)) == (None, None)


def test_jobs_of_a_log(tmp_path: Path) -> None:
    lines = [job(submit=5, run=10, requested=20), "malformed", job(submit=9, run=3, processors=2), job(run=1)]
    file = log(tmp_path, lines, "a.swf.gz")
    _, (sources,) = parse("--swf", file, "--jobs", 2, "--lenient", "--per-processor", "--requested", "--arrivals")
    jobs = sources.read_jobs()
    assert sources.other_jobs
    assert jobs is not None
    bags = [(bag.at, list(bag.runtimes), list(bag.really())) for bag in jobs.arrivals]
    assert bags == [(0.0, [20.0], [10.0]), (4.0, [3.0, 3.0], [3.0, 3.0])]


def test_one_bag_of_a_logs_serial_jobs_by_default(tmp_path: Path) -> None:
    file = log(tmp_path, [job(submit=5, run=10, requested=20), job(processors=2), job(submit=7, run=1)])
    _, (sources,) = parse("--swf", file)
    jobs = sources.read_jobs()
    assert jobs is not None
    assert [(bag.at, list(bag.runtimes)) for bag in jobs.arrivals] == [(0.0, [10.0, 1.0])]


def test_pcs_of_a_trace(tmp_path: Path) -> None:
    events = [event(number, 1, 0, 10) for number in range(3)]
    folder = trace(tmp_path, *events, "malformed", nodes=[node(0, "2", "2")])
    _, (sources,) = parse("--fta", folder, "--pcs", 2, "--lenient")
    lab = sources.read_lab(1)
    assert sources.other_pcs
    assert lab is not None
    assert [(pc.name, pc.slots) for pc in lab.pcs] == [("pc0", 4), ("pc1", 1)]
    _, (sources,) = parse("--fta", folder, "--slots", 3, "--lenient")
    lab = sources.read_lab(1)
    assert lab is not None
    assert [pc.slots for pc in lab.pcs] == [3, 3, 3]


def test_pcs_of_a_fit_are_eight_and_drawn_by_the_seed() -> None:
    _, (sources,) = parse("--fit", "nd07cpu")
    labs = [sources.read_lab(seed) for seed in (1, 1, 2)]
    first, same, other = (next(lab.pcs[0].timetable()) for lab in labs if lab is not None)
    assert first == same != other
    assert [len(lab.pcs) for lab in labs if lab is not None] == [8, 8, 8]
    _, (sources,) = parse("--fit", "nd07cpu:weibull", "--pcs", 3, "--slots", 4, "--day-cycle", -0.25)
    lab = sources.read_lab(1)
    assert lab is not None
    assert [pc.slots for pc in lab.pcs] == [4, 4, 4]
    assert "(nd07cpu:weibull, day cycle -0.25)" in lab.title
    assert len(list(islice(lab.pcs[0].timetable(), 5))) == 5


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--jobs 5", "--jobs goes with --swf"),
        ("--per-processor", "--per-processor goes with --swf"),
        ("--requested --fit nd07cpu", "--requested goes with --swf"),
        ("--arrivals", "--arrivals goes with --swf"),
        ("--pcs 5", "--pcs goes with --fta or --fit"),
        ("--slots 5", "--slots goes with --fta or --fit"),
        ("--day-cycle 0.5 --fta .", "--day-cycle goes with --fit"),
        ("--day-cycle 0", "--day-cycle goes with --fit"),
        ("--lenient --fit nd07cpu", "--lenient goes with --swf or --fta"),
        ("--fta . --fit nd07cpu", "--fta and --fit are two sources of PCs"),
        ("--fit nd07cpu --day-cycle 1", "is not in the range"),
        ("--swf none.swf", "does not exist"),
        ("--swf .", "is a directory"),
        ("--fta none", "does not exist"),
        ("--jobs 0", "is not in the range"),
    ],
)
def test_what_does_not_go_together_is_refused(line: str, why: str) -> None:
    result, found = parse(*line.split())
    assert result.exit_code == 2
    assert why in result.output
    assert not found


def test_what_cannot_be_read_is_said_with_the_options_name(tmp_path: Path) -> None:
    with pytest.raises(click.BadParameter, match="line 1: a job has 18 fields") as error:
        Sources(swf=log(tmp_path, ["malformed"])).read_jobs()
    assert error.value.param_hint == "--swf"
    with pytest.raises(click.BadParameter, match="cannot be read") as error:
        Sources(fta=tmp_path).read_lab(1)
    assert error.value.param_hint == "--fta"
    with pytest.raises(click.BadParameter, match="there is no fit 'nd08'") as error:
        Sources(fit="nd08").read_lab(1)
    assert error.value.param_hint == "--fit"
