"""The broker's windows.toml: patterns, and what happens when the file changes, breaks, comes and goes."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from deskgrid.home_file import HomeFile
from deskgrid.windows.windows_file import PlannedWindows, owner_of, windows_file
from deskgrid.worker.windows.uptime import weekly_from_json
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


File = HomeFile[PlannedWindows]


def read(path: Path) -> File:
    file = windows_file(path.parent)
    assert file.refresh()
    assert not file.problem
    return file


def table_for(file: File, name: str) -> dict[str, object]:
    text = file.content.table_for(name)
    assert text is not None
    table: dict[str, object] = json.loads(text)
    return table


def test_what_was_read_is_described_in_one_line(path: Path) -> None:
    assert windows_file(path.parent).content.describe() == "no windows"
    write(path, LAB3)
    assert read(path).content.describe() == (
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
    assert read(path).content.table_for("lab3-07") is not None


def test_a_table_may_name_a_zone_of_its_own(path: Path) -> None:
    write(path, LAB3)
    assert table_for(read(path), "ny-pc")["zone"] == "America/New_York"


def test_without_any_zone_the_worker_uses_that_of_its_machine(path: Path) -> None:
    write(path, '["*"]\nwindows = ["daily 20:00-07:00"]\n')
    assert table_for(read(path), "pc") == {"windows": ["daily 20:00-07:00"]}


def test_the_worker_understands_what_the_broker_sends(path: Path) -> None:
    write(path, LAB3)
    text = read(path).content.table_for("lab3-07")
    assert text is not None
    plan = weekly_from_json(text)
    assert plan.describe() == "mon-fri 18:00-08:00, sat-sun all day; 1 dated exception (Europe/Brussels)"
    assert plan.uptime(at("2026-11-16T20:00")) == 12 * 3600


def test_a_table_may_say_what_becomes_of_tasks_while_the_owner_uses_the_pc(path: Path) -> None:
    write(path, '["a"]\nwindows = ["daily all day"]\nowner = "leave"\n["b"]\nwindows = ["daily all day"]\n')
    content = read(path).content
    first, second = content.table_for("a"), content.table_for("b")
    assert first is not None
    assert second is not None
    assert (owner_of(first), owner_of(second)) == ("leave", None)
    assert weekly_from_json(first).describe() == weekly_from_json(second).describe()
    assert "[a] daily all day (local time), owner leave [b]" in content.describe()


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"owner": "auto"}', '{"owner": ["nice"]}', '{"owner": 1}'])
def test_an_owner_that_is_not_understood_says_nothing(text: str) -> None:
    assert owner_of(text) is None


def test_a_name_that_no_pattern_matches_gets_nothing(path: Path) -> None:
    write(path, '["lab3-*"]\nwindows = ["daily 20:00-07:00"]\n')
    assert read(path).content.table_for("pc") is None


def test_a_file_that_is_not_there_holds_nothing(path: Path) -> None:
    file = windows_file(path.parent)
    assert not file.refresh()
    assert file.content.table_for("pc") is None


def test_the_file_may_come_change_and_go(path: Path) -> None:
    file = windows_file(path.parent)
    write(path, LAB3)
    assert file.content.table_for("pc") is None
    assert file.refresh()
    assert not file.refresh()
    write(path, LAB3.replace("20:00", "21:00"))
    assert file.refresh()
    assert table_for(file, "pc")["windows"] == ["daily 21:00-07:00"]
    path.unlink()
    assert file.refresh()
    assert file.content.table_for("pc") is None
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


def test_a_malformed_file_is_a_problem_and_what_it_said_stays(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    before = file.content.table_for("lab3-07")
    write(path, LAB3.replace("18:00", "18:60"))
    assert file.refresh()
    assert file.problem.startswith("windows.toml: ['lab3-*']: window 'mon-fri 18:60-08:00': malformed")
    assert file.problem.endswith("; what it said before still counts")
    assert not file.refresh()
    assert file.content.table_for("lab3-07") == before
    write(path, LAB3.replace("18:00", "18:61"))
    assert file.refresh()
    assert "18:61" in file.problem
    write(path, LAB3)
    assert file.refresh()
    assert not file.problem
    write(path, LAB3.replace("18:00", "19:00"))
    assert file.refresh()


def test_a_malformed_file_closes_all_pcs_if_no_earlier_one_is_known(path: Path) -> None:
    write(path, LAB3.replace("18:00", "18:60"))
    file = windows_file(path.parent)
    assert file.refresh()
    assert file.problem.endswith("; until it is right, PCs without windows of their own are closed")
    plan = weekly_from_json(file.content.table_for("pc") or "")
    assert (plan.describe(), plan.over(at("2026-11-16T20:00"))) == ("closed (local time)", True)
    write(path, LAB3)
    assert file.refresh()
    assert table_for(file, "pc")["windows"] == ["daily 20:00-07:00"]


def test_what_a_file_said_before_a_restart_counts_if_it_is_malformed_now(path: Path) -> None:
    write(path, "oops")
    file = windows_file(path.parent)
    file.restore(LAB3)
    assert file.refresh()
    assert file.problem.endswith("; what it said before still counts")
    assert table_for(file, "pc")["windows"] == ["daily 20:00-07:00"]
    file = windows_file(path.parent)
    file.restore(None)  # there was no file
    assert file.refresh()
    assert file.content.table_for("pc") is None


def test_a_file_that_was_removed_before_a_restart_says_nothing(path: Path) -> None:
    file = windows_file(path.parent)
    file.restore(LAB3)
    assert file.content.table_for("pc") is not None
    assert file.refresh()
    assert (file.content.table_for("pc"), file.text, file.problem) == (None, None, "")


def test_what_cannot_be_understood_any_more_does_not_count(path: Path) -> None:
    file = windows_file(path.parent)
    file.restore(LAB3.replace("18:00", "18:60"))
    write(path, "oops")
    assert file.refresh()
    assert table_for(file, "pc") == {"closed": True}


def test_what_is_no_file_is_a_problem_and_holds_nobody_up(path: Path) -> None:
    write(path, LAB3)
    file = read(path)
    path.unlink()
    path.mkdir()
    assert file.refresh()
    assert file.problem.startswith("windows.toml: it is not a file")
    assert not file.refresh()
    assert file.content.table_for("pc") is not None
    if hasattr(os, "mkfifo"):
        path.rmdir()
        os.mkfifo(path)
        assert not file.refresh() or file.problem
        assert "it is not a file" in file.problem


@pytest.mark.skipif(sys.platform == "win32", reason="there a file in the place of the folder is as if there were none")
def test_a_folder_that_cannot_be_looked_into_is_a_problem(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file where a folder should be", encoding="utf-8")
    file = windows_file(home)
    assert file.refresh()
    assert file.problem.startswith("windows.toml: it is not a file")
    assert not file.refresh()


def test_a_file_that_is_not_text_or_too_large_is_a_problem(path: Path) -> None:
    path.write_bytes(b"zone = '\xff'")
    file = windows_file(path.parent)
    assert file.refresh()
    assert "it is not text in UTF-8" in file.problem
    path.write_bytes(b"#" * (2**20 + 1))
    assert file.refresh()
    assert "it has 1,048,577 bytes; the limit is 1,048,576" in file.problem


def test_a_file_that_notepad_has_saved_can_be_read(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + LAB3.encode())
    assert read(path).content.table_for("lab3-07") is not None


# --- what is probably a mistake --------------------------------------------------------------------------------------


def warnings(path: Path, text: str, pcs: list[str], unplanned: list[str] | None = None) -> list[str]:
    write(path, text)
    return read(path).content.warnings(pcs, unplanned or [])


def patterns(*names: str) -> str:
    return "".join(f'["{name}"]\nwindows = "daily 20-07"\n' for name in names)


def test_a_pattern_that_no_pc_has_is_said(path: Path) -> None:
    text = patterns("rooom-*", "lab-*", "a1", "a2", "a3", "a4", "a5")
    assert warnings(path, text, []) == [], "a new grid has no PCs yet"
    (said,) = warnings(path, text, ["LAB-1", "x"])
    assert said == "windows.toml: no PC has a name like rooom-*, a1, a2, a3, a4 and 1 more"


@pytest.mark.parametrize(
    ("first", "later", "shadowed"),
    [
        ("lab-*", "lab-07", True),
        ("lab-*", "LAB-0[1-4]", True),
        ("lab-*", "lab-?7", True),
        ("*", "*", True),
        ("lab-??", "lab-0?", True),
        ("lab-?", "lab-*", False),
        ("lab-?*", "lab-*", False),
        ("lab-0[1-3]", "lab-0[1-4]", False),
        ("lab-0[1-4]", "lab-0[1-3]", True),
        ("lab-0[!5]", "lab-0[1-4]", True),
        ("lab-0[!3]", "lab-0[1-4]", False),
        ("lab-07", "lab-*", False),
        ("*", "[!a][!b]", False),  # too many names to be sure
    ],
)
def test_a_pattern_below_a_more_general_one_is_said(path: Path, first: str, later: str, shadowed: bool) -> None:
    if first == later:
        write(path, patterns("a*", "ab*"))
    else:
        write(path, patterns(first, later))
        said = f"windows.toml: [{later}] is never used: [{first}] above it matches first"
        assert read(path).content.warnings([], []) == ([said] if shadowed else [])


def test_pcs_without_windows_are_said_while_there_is_a_file(path: Path) -> None:
    free = ["b", "a"]
    assert windows_file(path.parent).content.warnings(free, free) == []
    (said,) = warnings(path, patterns("[ab]*"), free, free)
    assert said.startswith("windows.toml has no windows for a, b: taken to be always there; add a pattern, or [rest]")


def test_the_rest_may_be_closed(path: Path) -> None:
    write(path, '[rest]\nclosed = true\n["lab-*"]\nwindows = "daily 20-07"\n')
    file = read(path)
    assert table_for(file, "lab-1") == {"windows": "daily 20-07"}
    assert table_for(file, "pc") == {"closed": True}
    assert file.content.describe() == "[lab-*] daily 20-07 (local time) [rest] closed (local time)"


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
        (
            '["*"]\nwindows = "mon all day"\nowner = "auto"\n',
            "['*']: owner: expected one of pause, nice, leave, ignore",
        ),
        ('["*"]\nowner = "nice"\n', "['*']: no windows, and no dates that open"),
    ],
)
def test_a_malformed_file_is_refused_with_its_pattern(path: Path, text: str, cause: str) -> None:
    write(path, text)
    file = windows_file(path.parent)
    assert file.refresh()
    message = file.problem
    assert message.startswith("windows.toml: ")
    assert cause in message
    assert "\n" not in message


def test_a_table_that_is_too_long_for_a_worker_is_refused_by_its_pattern(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    days = [
        f"{year}-{month:02}-{day:02}" for year in range(2000, 2010) for month in range(1, 13) for day in range(1, 29)
    ]
    dates = "\n".join(f'"{day}" = "closed"' for day in days)
    path.write_text(f'["lab-*"]\nwindows = ["daily 20:00-07:00"]\n["lab-*".dates]\n{dates}\n', encoding="utf-8")
    file = windows_file(tmp_path)
    assert file.refresh()
    assert re.search(r"'lab-\*': .* bytes as JSON; the limit is 65,536", file.problem)
