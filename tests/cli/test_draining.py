"""``deskgrid drain`` against a live broker: what it prints, and what it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fakes import deskgrid
from tests.live import LiveGrid, live_grid


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveGrid]:
    """A broker whose home is that of this machine, with one PC."""
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    with live_grid(tmp_path / "home") as started:
        assert started.joined(started.start_worker("lab3-07"))
        yield started


def test_a_pc_is_drained_listed_and_given_work_again(grid: LiveGrid) -> None:
    assert deskgrid("drain").stderr == "deskgrid: no PC is drained\n"
    assert deskgrid("drain", "LAB3-*", "--until", "2h").stdout == "drained lab3-07 for 2 h 00 min\n"
    title, row = deskgrid("drain").stdout.splitlines()
    assert title.split() == ["PC", "DRAINED", "BY", "ENDS"]
    assert row.split()[:3] == ["lab3-07", "admin", "in"]
    assert deskgrid("drain", "lab3-07", "--now").stdout == "drained lab3-07 until you undo it\n"
    assert deskgrid("drain").stdout.splitlines()[1].endswith("when you undo it")
    assert deskgrid("drain", "--undo", "*").stdout == "lab3-07 gets work again\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lab3-08"], "no PC matches 'lab3-08': did you mean lab3-07?"),
        (["--undo", "lab3-07"], "no drained PC matches 'lab3-07': there is none"),
        (["lab3-07", "--until", "25:99"], "until '25:99': malformed time '25:99'"),
        (["--now"], "name a PC"),
        (["--undo", "--now", "lab3-07"], "--undo takes neither --until nor --now"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(grid: LiveGrid, words: list[str], said: str) -> None:
    result = deskgrid("drain", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"deskgrid: {said}")
    assert result.stderr.count("\n") == 1
