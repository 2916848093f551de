"""``deskgrid windows``: what a file of windows means, and the coming weeks as bars."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from deskgrid.windows.windows_file import WINDOWS
from tests.cli.fakes import deskgrid
from tests.live import live_grid
from tests.uptime.builders import at
from tests.waiting import PATIENCE_S, eventually

LAB = """
zone = "Europe/Brussels"
["lab3-*"]
windows = "mon-fri 18-08"
except = "tue 20-22:15"
["lab3-07"]
windows = "daily 20-07"
[rest]
closed = true
"""


@pytest.fixture(autouse=True)
def monday(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is 10 o'clock in Brussels, on a Monday."""
    monkeypatch.setattr("deskgrid.cli.windows.time", SimpleNamespace(time=lambda: at("2026-11-16T10:00").wall))


def test_a_file_is_checked_and_what_is_doubtful_said(tmp_path: Path) -> None:
    (tmp_path / WINDOWS).write_text(LAB, encoding="utf-8")
    result = deskgrid("windows", "check", str(tmp_path / WINDOWS))
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "[lab3-*] mon-fri 18-08, except tue 20-22:15 (Europe/Brussels)",
            "[lab3-07] daily 20-07 (Europe/Brussels)",
            "[rest] closed (Europe/Brussels)",
        ],
    )
    assert result.stderr == "deskgrid: windows.toml: [lab3-07] is never used: [lab3-*] above it matches first\n"


def test_without_a_name_the_file_in_this_machines_home_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    assert deskgrid("windows", "check").stderr == f"deskgrid: {tmp_path / WINDOWS}: there is no such file\n"
    (tmp_path / WINDOWS).write_text("oops", encoding="utf-8")
    result = deskgrid("windows", "check")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"deskgrid: {tmp_path / WINDOWS}: ")
    (tmp_path / WINDOWS).write_text("", encoding="utf-8")
    nobody = f"deskgrid: {tmp_path / WINDOWS}: it names no PCs: they are taken to be always there\n"
    assert (deskgrid("windows", "check").stdout, deskgrid("windows", "check").stderr) == ("", nobody)
    shown = deskgrid("windows", "show", str(tmp_path / WINDOWS))
    assert (shown.exit_code, shown.stderr) == (2, nobody)


@pytest.mark.parametrize("text", ['[lab3-*]\nwindows = "daily 20-07"\n', '["lab3-*"]\nwindows = daily 20-07\n'])
def test_quotes_that_are_missing_are_asked_for(tmp_path: Path, text: str) -> None:
    (tmp_path / WINDOWS).write_text(text, encoding="utf-8")
    assert deskgrid("windows", "check", str(tmp_path / WINDOWS)).stderr.endswith("; is something not in quotes?\n")


def test_a_file_for_one_pc_is_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "pc.toml"
    for text in (
        'windows = "mon 1-2"',
        'closed = true\n[dates]\n"2026-11-18" = "1-2"',
        '[dates]\n"2026-11-18" = "1-2"',
    ):
        file.write_text(text, encoding="utf-8")
        assert deskgrid("windows", "check", str(file)).exit_code == 0
    file.write_text('windows = "room.ics"\ninvert = true', encoding="utf-8")
    said = 'this PC: invert is for the broker\'s windows.toml, below a pattern such as ["lab3-*"]'
    assert deskgrid("windows", "check", str(file)).stderr == f"deskgrid: {file}: {said}\n"
    file.write_text('windows = "mon 1-25"', encoding="utf-8")
    assert "malformed time '25'" in deskgrid("windows", "check", str(file)).stderr


def test_the_coming_weeks_are_bars(tmp_path: Path) -> None:
    file = tmp_path / WINDOWS
    file.write_text(LAB, encoding="utf-8")
    lines = deskgrid("windows", "show", str(file), "--on", "LAB3-01").stdout.splitlines()
    assert len(lines) == 2 + 14
    title, hours, monday, tuesday, *_ = lines
    assert title == "[lab3-*] mon-fri 18-08, except tue 20-22:15 (Europe/Brussels)"
    assert hours.split() == ["0", "3", "6", "9", "12", "15", "18", "21"]
    assert monday == f"  mon 2026-11-16  {'·' * 36}{'█' * 12}  6 h"
    assert tuesday == f"  tue 2026-11-17  {'█' * 16}{'·' * 20}████····▄███  11.8 h"
    whole = deskgrid("windows", "show", str(file), "--week").stdout.splitlines()
    assert len(whole) == 3 * (2 + 7) + 2
    (title, *_) = deskgrid("windows", "show", str(file), "--on", "pc").stdout.splitlines()
    assert title == "[rest] closed (Europe/Brussels)"
    file.write_text('["a*"]\nwindows = "mon 1-2"\n', encoding="utf-8")
    assert (
        "no pattern matches pc: it is taken to be always there"
        in deskgrid("windows", "show", str(file), "--on", "pc").stderr
    )


def test_the_grid_shows_the_windows_that_its_pcs_announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    with live_grid(tmp_path / "home") as grid:
        assert deskgrid("windows", "show").stderr == "deskgrid: the grid has no PCs yet\n"
        assert grid.joined(grid.start_worker("lab-1"))
        assert deskgrid("windows", "show").stdout == "lab-1: open-ended\n"
        assert deskgrid("windows", "show", "--on", "lab-2").stderr == "deskgrid: no PC is called lab-2\n"
        (tmp_path / "home" / WINDOWS).write_text('["lab-*"]\nwindows = "daily 0-24"\n', encoding="utf-8")
        show = "windows", "show", "--on", "LAB-1"
        assert eventually(lambda: "open-ended" not in deskgrid(*show).stdout, PATIENCE_S)
        title, _, today, *days = deskgrid(*show).stdout.splitlines()
        assert title == "lab-1: daily 0-24 (local time)"
        assert "█" in today
        assert all(line.endswith(f"{'█' * 48}  24 h") for line in days[:6])


def test_a_file_and_a_grid_are_not_shown_together(tmp_path: Path) -> None:
    assert "give FILE or --join, not both" in deskgrid("windows", "show", str(tmp_path), "--join", "x").stderr


def test_calendars_that_a_file_names_are_read_and_what_is_wrong_with_them_said(tmp_path: Path) -> None:
    file = tmp_path / WINDOWS
    calendars = Path(__file__).parent.parent / "uptime" / "calendars"
    text = f'zone = "Europe/Brussels"\n["lab-*"]\nwindows = "{calendars / "one_bad_rule.ics"}"\ninvert = true\n'
    file.write_text(text, encoding="utf-8")
    result = deskgrid("windows", "check", str(file))
    assert result.stdout == "[lab-*] when nothing is in one_bad_rule.ics (Europe/Brussels)\n"
    doubt = "[lab-*] one_bad_rule.ics: only the first time counts of 'Bad': nobody can say when it repeats"
    assert result.stderr == f"deskgrid: {doubt}\n"
    _, _, monday, tuesday, *_ = deskgrid("windows", "show", "--week", str(file)).stdout.splitlines()
    assert monday.endswith(f"{'█' * 48}  24 h")
    assert tuesday == f"  tue 2026-11-17  {'█' * 18}··██··{'█' * 24}  22 h"
    file.write_text('["lab-*"]\nwindows = "room.ics"\n', encoding="utf-8")
    result = deskgrid("windows", "check", str(file))
    expected = f"deskgrid: {file}: [lab-*] room.ics: there is no file {tmp_path / 'room.ics'}\n"
    assert (result.exit_code, result.stderr) == (2, expected)
