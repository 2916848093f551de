"""``deskgrid sleepbench replay``: what it prints and writes, and what it refuses."""

import json
import math
from pathlib import Path

import pytest

from deskgrid.cli.front import main
from deskgrid.sleepbench.replayed import clock
from deskgrid.wire import Outcome
from tests.sleepbench.replay.past import T0, Past, Ran


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a stopped broker with two bags in its past."""
    past = Past(tmp_path / "home")
    past.window("pc1", 0.0, 20.0, 20.0, kills=1, wasted_s=6.5)
    past.window("pc1", 25.0, 45.0, 45.0)
    past.bag("first", 0.0, [Ran(9.0, 9.0, 9.0), Ran(12.0, 12.0, 37.0)])
    past.bag("second", 1.0, [Ran(4.0, 4.0, 41.0)])
    past.ends(50.0)
    return tmp_path / "home"


def run(*args: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["sleepbench", "replay", *map(str, args)])
    return int(ended.value.code or 0)


def line_of(output: str, start: str) -> list[str]:
    """The cells of the first line that begins with ``start``."""
    return next(line.split() for line in output.splitlines() if line.split()[:1] == [start])


def test_what_happened_stands_beside_what_each_policy_would_have_done(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(home, "--policy", "fcfs, pgs") == 0
    output = capsys.readouterr().out
    assert "3 tasks of 2 bags" in output
    assert line_of(output, "recorded")[1:6] == ["0:41.0", "0:38.5", "1", "1", "6.5"]
    assert line_of(output, "pgs")[3:6] == ["0", "0", "0.0"]
    assert line_of(output, "fcfs")
    assert line_of(output, "second")[:5] == ["second", "name", "of", "second", "0:40.0"]
    assert "packing" not in output
    assert "- beyond the record's end" in output


def test_without_a_choice_every_policy_plays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home) == 0
    output = capsys.readouterr().out
    for policy in ("packing", "pgs", "fcfs"):
        assert line_of(output, policy)


def test_the_json_has_the_rows_and_each_bags_turnaround(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    assert run(home, "--policy", "pgs", "--bag", "second", "--json", file) == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["policy"], row["tasks"], row["scenario"]) for row in document["rows"]] == [
        ("recorded", 1, "replay"),
        ("pgs", 1, "replay"),
    ]
    (bag,) = document["bags"]
    assert (bag["bag"], bag["name"]) == ("second", "name of second")
    assert bag["turnaround_s"] == {"recorded": 40.0, "pgs": 4.0}
    assert document["stalled"] == {}
    assert any("only the bags asked for" in sentence for sentence in document["assumed"])


def test_it_is_said_how_well_estimates_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = Past(tmp_path)
    past.window("pc1", 0.0, 200.0, 200.0)
    past.bag("a", 0.0, [Ran(50.0, 50.0, 50.0), Ran(50.0, 50.0, 100.0)])
    past.bag("b", 0.0, [Ran(20.0, 20.0, 120.0)])
    past.bag("cancelled", 0.0, [Ran(20.0, 20.0, 140.0), Ran(20.0, 0.0, 140.0, Outcome.CANCELLED)])
    for made, ended, told in (
        (0.0, 0.0, (80.0, 60.0, 160.0)),
        (10.0, 0.0, (80.0, 60.0, 90.0)),
        (60.0, 0.5, (110.0, 90.0, 130.0)),
        (99.0, 0.5, (110.0, 90.0, math.inf)),
    ):
        past.told(1, made, ended, *told)
    past.told(2, 20.0, 0.0, 120.0, 119.0, 121.0)
    past.told(2, 130.0, 1.0, 120.0, 119.0, 121.0)
    past.told(3, 20.0, 0.0, 120.0, 119.0, 121.0)
    past.ends(200.0)
    file = tmp_path / "rows.json"
    assert run(tmp_path, "--policy", "pgs", "--json", file) == 0
    first, second = json.loads(file.read_text(encoding="utf-8"))["etas"]
    assert first == {
        "stage": "0 to 12 %",
        "etas": 3,
        "bags": 2,
        "coverage90": 0.75,
        "width_median": 30 / 90,
        "point_error_median": 0.2,
    }
    assert (second["stage"], second["etas"], second["coverage90"]) == ("37 to 62 %", 2, 1.0)
    assert second["width_median"] is None
    output = capsys.readouterr().out
    assert "Its own estimates of when bags end" in output
    assert "75.0%" in output


def test_a_policy_that_never_ends_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = Past(tmp_path)
    past.window("pc1", 0.0, 20.0, 20.0)
    past.bag("a", 0.0, [Ran(50.0, 5.0, 5.0)])
    past.ends(50.0)
    file = tmp_path / "rows.json"
    assert run(tmp_path, "--policy", "pgs", "--json", file) == 0
    output = capsys.readouterr().out
    assert line_of(output, "pgs") == ["pgs", "–"]
    assert "- pgs never ends: 1 of 1 tasks are placed nowhere" in output
    document = json.loads(file.read_text(encoding="utf-8"))
    assert list(document["stalled"]) == ["pgs"]
    assert list(document["bags"][0]["turnaround_s"]) == ["recorded"]


def test_since_is_a_date_of_this_machine_or_of_a_named_zone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home, "--policy", "pgs", "--since", "2027-01-15T08:00:01+00:00") == 0  # T0 is that less one second
    assert T0 == 1_800_000_000.0
    assert "1 task of 1 bag" in capsys.readouterr().out
    assert run(home, "--since", "2100-01-01") == 2
    assert "nothing to replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--policy", "best"), "no policy 'best'; there are: "),
        (("--bag", "third"), "no bag third in this journal"),
        (("--since", "yesterday"), "'yesterday' is no date like"),
        (("--json", "no/such/folder/rows.json"), "there is no folder"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    home: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, str], reason: str
) -> None:
    assert run(home, *args) == 2
    told = capsys.readouterr().err
    assert reason in told
    assert told.count("\n") == 1


def test_a_broker_that_runs_has_to_be_stopped_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    past = Past(tmp_path)
    assert run(tmp_path) == 2
    assert capsys.readouterr().err == f"deskgrid: a broker runs on {tmp_path}: stop it first, or copy the folder\n"
    past.journal.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0:00.0"), (75.25, "1:15.2"), (3599.94, "59:59.9"), (3599.96, "1:00:00"), (93784, "26:03:04")],
)
def test_times_are_hours_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text
