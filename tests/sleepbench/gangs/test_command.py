"""``deskgrid sleepbench gangs``: its table, its JSON, and what it says of bad input."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deskgrid.scheduler.policies import policy_names
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.gangs.file import read_gangs
from deskgrid.sleepbench.gangs.simulated import gang_problem

EXAMPLE = Path(__file__).with_name("tla.toml")
FIELDS = ["policy", "gang", "site", "slots", "start_s", "end_s", "turnaround_s", "considered"]


def invoke(*arguments: object) -> Result:
    """The command, on its own, in this process."""
    return CliRunner().invoke(sleepbench_group, ["gangs", *map(str, arguments)], terminal_width=200)


def rows(folder: Path, scenario: Path, policy: str) -> list[dict[str, Any]]:
    """What it writes as JSON."""
    file = folder / "rows.json"
    result = invoke("--scenario-file", scenario, "--policy", policy, "--json", file)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


# --- the worked example of the TLA paper -----------------------------------------------------------------------------


def test_tla_considers_both_sites_and_takes_b_as_in_table_1(tmp_path: Path) -> None:
    found = rows(tmp_path, EXAMPLE, "tla")
    assert all(list(row) == FIELDS for row in found)
    assert found[0]["considered"] == {"A": 10.0, "B": 8.0}
    assert [(row["gang"], row["site"], row["slots"]) for row in found] == [
        ("1", "B", 4),
        ("2", "A", 6),
        ("3", "A", 2),
        ("4", "A", 7),
    ]
    assert [row["turnaround_s"] for row in found] == [15.0, 5.0, 6.0, 6.0]  # the last column of the table
    assert [(row["start_s"], row["end_s"]) for row in found] == [(0.0, 10.0), (0.0, 1.0), (0.0, 4.0), (3.0, 4.0)]


def test_the_fastest_site_first_gives_the_other_column_of_table_1(tmp_path: Path) -> None:
    found = rows(tmp_path, EXAMPLE, "ff")
    assert [row["turnaround_s"] for row in found] == [10.0, 10.0, 11.0, 9.0]
    assert [row["considered"] for row in found] == [None] * 4


def test_an_end_that_comes_sooner_than_believed_makes_a_the_better_site(tmp_path: Path) -> None:
    # Fig. 9(a): r2 really ends at 1, and job 1 runs at A.
    text = EXAMPLE.read_text(encoding="utf-8").replace("ends = 5.0", "ends = 5.0\nreally = 1.0")
    found = rows(tmp_path, write(tmp_path, text), "tla,ff")
    means = [sum(row["turnaround_s"] for row in found if row["policy"] == name) / 4 for name in ("tla", "ff")]
    assert found[0]["considered"] == {"A": 10.0, "B": 8.0}  # what is believed has not changed
    assert means == [8.0, 7.75]


# --- other scenarios -------------------------------------------------------------------------------------------------


def test_all_policies_are_shown_in_tables_with_their_means() -> None:
    result = invoke("--scenario-file", EXAMPLE, "--policy", "tla,easy")
    assert result.exit_code == 0, result.output
    for text in ("tla under tla", "tla under easy", "turnaround", "A 10, B 8", "mean", "8.00", "10.00"):
        assert text in result.output


def test_all_are_all_policies_and_not_only_those_that_differ_in_single_tasks(tmp_path: Path) -> None:
    found = rows(tmp_path, EXAMPLE, "all")
    assert list(dict.fromkeys(row["policy"] for row in found)) == policy_names()


def test_what_arrives_at_one_instant_is_known_before_anything_is_decided(tmp_path: Path) -> None:
    text = (
        '[[site]]\nname = "A"\nslots = 2\n[[gang]]\nslots = 2\nruntime = 5\n[[gang]]\nat = 5\nslots = 1\nruntime = 9\n'
    )
    found = rows(tmp_path, write(tmp_path, f"{text}[[gang]]\nat = 5\nslots = 2\nruntime = 1\n"), "tla,ff")
    assert [(row["gang"], row["start_s"]) for row in found if row["policy"] == "ff"] == [
        ("1", 0.0),
        ("2", 5.0),
        ("3", 14.0),
    ]


def test_a_moldable_gang_says_how_many_slots_it_had(tmp_path: Path) -> None:
    text = (
        '[[site]]\nname = "A"\nslots = 8\n[[gang]]\nname = "m"\nslots = [2, 16]\nruntime = 64\nspeedup = {amdahl = 0}\n'
    )
    (row,) = rows(tmp_path, write(tmp_path, text), "easy")
    assert 2 <= row["slots"] <= 8
    assert row["end_s"] == 64 / row["slots"]


def test_windows_speeds_and_loads_are_those_of_the_file(tmp_path: Path) -> None:
    text = (
        '[[site]]\nname = "A"\nslots = 3\nspeed = 2.0\nload = 0.5\nuptimes = [10, inf]\nrestart = 2\n'
        "[[gang]]\nat = -4\nslots = 3\nruntime = 6\n[[gang]]\nat = 0\nslots = 2\nruntime = 9\n"
    )
    path = write(tmp_path, text)
    found = rows(tmp_path, path, "easy")
    assert (found[0]["start_s"], found[0]["end_s"]) == (0.0, 6.0)
    opened = [[next(iter(pc.timetable())).opens, pc.speed, pc.load] for pc in gang_problem(read_gangs(path)).pcs]
    assert opened == [[4.0, 2.0, 0.5]] * 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[site]]\nname = 'A'\n", r"slots is missing (at line 1)"),
        (
            "[[site]]\nname = 'A'\nslots = 3\n[[running]]\nsite = 'A'\nslots = 4\nends = 1\n",
            "site A has 3: 4 do not fit (at line 6)",
        ),
    ],
)
def test_a_bad_file_is_a_usage_error(tmp_path: Path, text: str, complaint: str) -> None:
    result = invoke("--scenario-file", write(tmp_path, text))
    assert (result.exit_code, complaint in " ".join(result.output.split())) == (2, True), result.output


def test_a_run_that_would_never_end_is_said_in_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "[[site]]\nname = 'A'\nslots = 3\nuptimes = [5]\n[[gang]]\nslots = 2\nruntime = 6\n")
    result = invoke("--scenario-file", path, "--policy", "easy")
    assert result.exit_code == 2
    assert "mine under easy would never end: 1 of 1 tasks" in result.output


def test_no_folder_no_file_and_no_such_policy(tmp_path: Path) -> None:
    assert invoke().exit_code == 2
    assert "there is no policy 'x'" in invoke("--scenario-file", EXAMPLE, "--policy", "x").output
    result = invoke("--scenario-file", EXAMPLE, "--json", tmp_path / "none" / "rows.json")
    assert (result.exit_code, "there is no folder" in result.output) == (2, True)


def test_the_page_shows_the_same_example() -> None:
    page = (EXAMPLE.parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert f"```toml\n{EXAMPLE.read_text(encoding='utf-8')}```" in page
