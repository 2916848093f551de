"""The broker's windows.toml: patterns, and what happens when the file changes, breaks, comes and goes."""

import json
import os
import sys
from pathlib import Path

import pytest

from deskgrid.worker.windows.uptime import PlanError, WindowsFile, weekly_from_json
from tests.uptime.builders import at

LAB3 = """
zone = "Europe/Brussels"
["lab3-*"]
windows = ["mon-fri 18:00-08:00", "sat-sun all day"]
["lab3-*".dates]
"2026-12-25" = "all day"
[ny-pc]
zone = "America/New_York"
windows = "daily 20:00-07:00"
["*"]
windows = ["daily 20:00-07:00"]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "windows.toml"


def write(path: Path, text: str) -> None:
    """Write ``text`` with a time of its own, as if some time had passed."""
    later = path.stat().st_mtime_ns + 1_000_000_000 if path.exists() else 1_790_000_000_000_000_000
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(later, later))


def read(path: Path) -> WindowsFile:
    file = WindowsFile(path)
    assert file.refresh()
    return file


def table_for(file: WindowsFile, name: str) -> dict[str, object]:
    text = file.table_for(name)
    assert text is not None
    table: dict[str, object] = json.loads(text)
    return table


def test_what_was_read_is_described_in_one_line(path: Path) -> None:
    assert WindowsFile(path).describe() == "no windows"
    write(path, LAB3)
    assert read(path).describe() == (
        "[lab3-*] mon-fri 18:00-08:00, sat-sun all day; 1 dated exception (Europe/Brussels) "
        "[ny-pc] daily 20:00-07:00 (America/New_York) [*] daily 20:00-07:00 (Europe/Brussels)"
    )


def test_a_worker_gets_the_table_of_the_first_pattern_that_matches_its_name(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    assert table_for(file, "lab3-07") == {
        "zone": "Europe/Brussels",
        "windows": ["mon-fri 18:00-08:00", "sat-sun all day"],
        "dates": {"2026-12-25": "all day"},
    }
    assert table_for(file, "lab4-07") == {"zone": "Europe/Brussels", "windows": ["daily 20:00-07:00"]}
    assert table_for(file, "LAB3-07") == table_for(file, "lab3-07"), "Windows PCs have names in capitals"


def test_patterns_may_be_in_capitals(path: Path) -> None:
    write(path, '["LAB3-*"]\nwindows = ["daily 20:00-07:00"]\n')
    assert read(path).table_for("lab3-07") is not None


def test_a_table_may_name_a_zone_of_its_own(path: Path) -> None:
    write(path, LAB3)
    assert table_for(read(path), "ny-pc")["zone"] == "America/New_York"


def test_without_any_zone_the_worker_uses_that_of_its_machine(path: Path) -> None:
    write(path, '["*"]\nwindows = ["daily 20:00-07:00"]\n')
    assert table_for(read(path), "pc") == {"windows": ["daily 20:00-07:00"]}


def test_the_worker_understands_what_the_broker_sends(path: Path) -> None:
    write(path, LAB3)
    text = read(path).table_for("lab3-07")
    assert text is not None
    plan = weekly_from_json(text)
    assert plan.describe() == "mon-fri 18:00-08:00, sat-sun all day; 1 dated exception (Europe/Brussels)"
    assert plan.uptime(at("2026-11-16T20:00")) == 12 * 3600


def test_a_name_that_no_pattern_matches_gets_nothing(path: Path) -> None:
    write(path, '["lab3-*"]\nwindows = ["daily 20:00-07:00"]\n')
    assert read(path).table_for("pc") is None


def test_a_file_that_is_not_there_holds_nothing(path: Path) -> None:
    file = WindowsFile(path)
    assert not file.refresh()
    assert file.table_for("pc") is None


def test_the_file_may_come_change_and_go(path: Path) -> None:
    file = WindowsFile(path)
    write(path, LAB3)
    assert file.table_for("pc") is None
    assert file.refresh()
    assert not file.refresh()
    write(path, LAB3.replace("20:00", "21:00"))
    assert file.refresh()
    assert table_for(file, "pc")["windows"] == ["daily 21:00-07:00"]
    path.unlink()
    assert file.refresh()
    assert file.table_for("pc") is None
    assert not file.refresh()


def test_a_change_of_size_alone_is_seen(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    stamp = path.stat().st_mtime_ns
    path.write_text(LAB3.replace("daily", "mon-sun"), encoding="utf-8")
    os.utime(path, ns=(stamp, stamp))
    assert file.refresh()


def test_a_new_date_or_a_new_comment_is_no_new_content(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    write(path, LAB3)
    assert not file.refresh()
    write(path, "# a comment\n" + LAB3)
    assert not file.refresh()


def test_the_order_of_patterns_is_content(path: Path) -> None:
    one, other = '["a*"]\nwindows = "mon all day"\n', '["*"]\nwindows = "tue all day"\n'
    write(path, one + other)
    file = read(path)
    write(path, other + one)
    assert file.refresh()
    assert table_for(file, "abc") == {"windows": "tue all day"}


def test_a_malformed_file_raises_once_and_what_it_held_stays(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    before = file.table_for("lab3-07")
    write(path, LAB3.replace("18:00", "18:60"))
    with pytest.raises(PlanError, match=r"windows\.toml: \['lab3-\*'\]: window 'mon-fri 18:60-08:00': malformed"):
        file.refresh()
    assert not file.refresh()
    assert file.table_for("lab3-07") == before
    write(path, LAB3.replace("18:00", "18:61"))
    with pytest.raises(PlanError, match="18:61"):
        file.refresh()
    write(path, LAB3)
    assert not file.refresh()
    write(path, LAB3.replace("18:00", "19:00"))
    assert file.refresh()


def test_a_file_that_cannot_be_read_raises_once(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(PlanError, match=r"windows\.toml: cannot be read"):
        file.refresh()
    assert not file.refresh()
    assert file.table_for("pc") is not None


@pytest.mark.skipif(sys.platform == "win32", reason="there a file in the place of the folder is as if there were none")
def test_a_folder_that_cannot_be_looked_into_raises_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file where a folder should be", encoding="utf-8")
    file = WindowsFile(home / "windows.toml")
    with pytest.raises(PlanError, match="cannot be read"):
        file.refresh()
    assert not file.refresh()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("zone = oops", "line 1"),
        ('zone = "Europe/Atlantis"\n', "unknown zone 'Europe/Atlantis'"),
        ('["*"]\nzone = "Europe/Atlantis"\nwindows = "mon all day"\n', "['*']: unknown zone 'Europe/Atlantis'"),
        ('windows = ["mon all day"]\n', "'windows': expected zone, or a table for a pattern"),
        ('["*"]\n', "['*']: no windows, and no dates that open"),
        ('["*"]\nwindow = "mon all day"\n', "['*']: unknown key 'window'"),
        ('["*"]\nwindows = [2026-12-25]\n', "['*']: windows: expected text"),
    ],
)
def test_a_malformed_file_is_refused_with_its_pattern(path: Path, text: str, cause: str) -> None:
    write(path, text)
    with pytest.raises(PlanError) as caught:
        WindowsFile(path).refresh()
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert cause in message
    assert "\n" not in message


def test_a_table_that_is_too_long_for_a_worker_is_refused_by_its_pattern(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    days = [
        f"{year}-{month:02}-{day:02}" for year in range(2000, 2010) for month in range(1, 13) for day in range(1, 29)
    ]
    dates = "\n".join(f'"{day}" = "closed"' for day in days)
    path.write_text(f'["lab-*"]\nwindows = ["daily 20:00-07:00"]\n["lab-*".dates]\n{dates}\n', encoding="utf-8")
    with pytest.raises(PlanError, match=r"'lab-\*': .* bytes as JSON; the limit is 65,536"):
        WindowsFile(path).refresh()
