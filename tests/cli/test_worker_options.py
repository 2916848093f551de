"""What ``deskgrid worker`` is told about its PC: labels, memory, speed, and whether MPI programs may run there."""

import sys
from pathlib import Path

import click
import pytest

from deskgrid.cli.sizes import memory_size, port_range, worker_labels
from deskgrid.wire.joinline import JoinLine
from deskgrid.worker.agent import WorkerOptions
from tests.cli.fakes import deskgrid

LINE = "127.0.0.1:7077"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """The options with which workers were started."""
    found: list[WorkerOptions] = []
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    monkeypatch.setattr("deskgrid.worker.agent.run_worker", lambda options, stopping, say: found.append(options))
    return found


def test_what_a_pc_has_is_what_was_said_or_is_measured(told: list[WorkerOptions]) -> None:
    given = ["--label", "matlab", "--label", "gpu", "--label", "gpu", "--memory", "16G", "--speed", "0.5"]
    assert deskgrid("worker", "--broker", LINE, *given).exit_code == 0
    assert deskgrid("worker", "--broker", LINE).exit_code == 0
    first, second = told
    assert (first.labels, first.memory, first.speed) == (("gpu", "matlab"), 16 * 2**30, 0.5)
    assert (second.labels, second.memory, second.speed) == ((), None, None)
    assert (second.mpi, second.mpi_ports) == (False, None)
    assert first.join == JoinLine("worker", "127.0.0.1", 7077, None)


def test_graphics_cards_are_found_unless_it_is_said_how_many_there_are(told: list[WorkerOptions]) -> None:
    for given in ([], ["scratch=1G"], ["gpu=2", "matlab"], ["gpu=0"]):
        options = [word for each in given for word in ("--resource", each)]
        assert deskgrid("worker", "--broker", LINE, *options).exit_code == 0
    assert [(options.resources, options.find_gpus) for options in told] == [
        ((), True),
        (("scratch=1073741824",), True),
        (("gpu=2", "matlab=1"), False),
        ((), False),
    ]


def test_tasks_give_way_to_the_owner_of_the_pc_unless_they_are_told_not_to(told: list[WorkerOptions]) -> None:
    assert deskgrid("worker", "--broker", LINE).exit_code == 0
    assert deskgrid("worker", "--broker", LINE, "--nice", "0").exit_code == 0
    assert [options.nice for options in told] == [19, 0]


def test_a_python_that_does_not_start_is_refused_and_the_workers_own_counts_once(told: list[WorkerOptions]) -> None:
    refused = deskgrid("worker", "--broker", LINE, "--python", "/nowhere/python3")
    assert (refused.exit_code, told) == (2, [])
    assert "/nowhere/python3 does not start" in refused.stderr
    assert deskgrid("worker", "--broker", LINE, "--pythons", sys.executable).exit_code == 0
    assert told[0].interpreters == {}


@pytest.mark.skipif(sys.platform == "win32", reason="--mpi is not for Windows")
def test_mpi_and_its_ports_are_said(told: list[WorkerOptions]) -> None:
    assert deskgrid("worker", "--broker", LINE, "--mpi", "--mpi-ports", "40000-40999").exit_code == 0
    assert (told[0].mpi, told[0].mpi_ports) == (True, (40_000, 40_999))


def test_mpi_is_not_for_windows(told: list[WorkerOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deskgrid.cli.working.sys.platform", "win32")
    result = deskgrid("worker", "--broker", LINE, "--mpi")
    assert result.exit_code == 2
    assert "--mpi does not work on Windows" in result.stderr
    assert not told


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--label", "two words", "'two words' is not a label: 1 to 64 letters, digits or . _ = -, like gpu"),
        ("--label", "", "'' is not a label"),
        ("--memory", "4 apples", "'4 apples' is not a size like 512M or 2G"),
        ("--memory", "2000000G", "is more than any PC has"),
        ("--resource", "gpu=-1", "gpu is a number from 0"),
        ("--resource", "a b=1", "'a b' is not the name of a resource"),
        ("--nice", "20", "20 is not in the range 0<=x<=19"),
        ("--speed", "0", "0.0 is not in the range 0.001<=x<=1000.0"),
        ("--mpi-ports", "80-90", "'80-90' is not a range of ports from 1024 to 65535, like 40000-40999"),
        ("--mpi-ports", "5000-4000", "is not a range of ports"),
        ("--mpi-ports", "5000", "is not a range of ports"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    told: list[WorkerOptions], option: str, value: str, complaint: str
) -> None:
    result = deskgrid("worker", "--broker", LINE, option, value)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
    assert not told


def test_too_many_labels_are_refused() -> None:
    assert len(worker_labels([f"l{number}" for number in range(16)])) == 16
    with pytest.raises(click.BadParameter, match="at most 16 labels"):
        worker_labels([f"l{number}" for number in range(17)])


def test_the_memory_of_a_pc_may_be_said_on_windows_where_no_task_can_be_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deskgrid.cli.sizes.sys.platform", "win32")
    assert memory_size("1G", of_pc=True) == 2**30
    with pytest.raises(click.BadParameter, match="this limit does not work on Windows"):
        memory_size("1G")
    assert port_range("1024-1024") == (1024, 1024)
