"""``deskgrid sleepbench eta``, on bags that are drawn."""

import json
import math
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from deskgrid.sleepbench import etas
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.etas import LEAST, bags_of, nights_and_weekends
from deskgrid.sleepbench.workloads.drawn_bags import drawn_bags
from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.task_log import LoggedTask, LoggedTasks

FIELDS = "method stage bags coverage90 width_median point_error_median cost_ms"
HOUR = 3600.0


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(sleepbench_group, ["eta", *map(str, arguments)], env={"COLUMNS": "80"})


def small_bags(folder: Path, count: int) -> Path:
    """A log of bags that are played quickly."""
    logged, chance = folder / "tasks.csv", Random(9)
    lines = ["bag,function,seconds"]
    for bag in range(count):
        usual = chance.lognormvariate(3.0, 0.5)
        lines += [f"b{bag},f{bag % 3},{usual * chance.lognormvariate(0.0, 0.4)}" for _ in range(40)]
    logged.write_text("\n".join(lines), encoding="utf-8")
    return logged


@pytest.mark.slow
def test_intervals_of_deskgrid_hold_and_those_of_others_do_not(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    result = invoke("--csv", small_bags(tmp_path, 24), "--bags", 24, "--json", file)
    assert result.exit_code == 0, result.output
    assert "deskgrid" in result.stdout
    found = json.loads(file.read_text(encoding="utf-8"))
    assert all(list(row) == FIELDS.split() for row in found)
    rows = {(row["method"], row["stage"]): row for row in found}
    assert [stage for method, stage in rows if method == "deskgrid"] == ["5%", "25%", "50%", "75%", "small"]
    own, plain = rows["deskgrid", "small"], rows["list-schedule", "small"]
    assert own["bags"] == plain["bags"] == 96
    assert own["coverage90"] > 0.75
    assert plain["coverage90"] < 0.5
    assert own["width_median"] < 3.0
    assert own["point_error_median"] < 0.5
    assert 0.0 < own["cost_ms"] < 200.0


def test_a_forecast_without_an_end_covers_nothing_and_teaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etas, "forecast", lambda *arguments, **keywords: [[math.inf] * 30])
    file = tmp_path / "rows.json"
    result = invoke("--csv", small_bags(tmp_path, 1), "--bags", 1, "--json", file)
    assert result.exit_code == 0, result.output
    own = [row for row in json.loads(file.read_text(encoding="utf-8")) if row["method"] == "deskgrid"]
    assert {(row["coverage90"], row["width_median"], row["point_error_median"]) for row in own} == {
        (0.0, math.inf, math.inf)
    }


def test_the_same_seed_gives_the_same_rows(tmp_path: Path) -> None:
    logged = small_bags(tmp_path, 3)
    tables = []
    for file in (tmp_path / "a", tmp_path / "b"):
        assert invoke("--csv", logged, "--bags", 3, "--seed", 5, "--json", file).exit_code == 0
        rows = json.loads(file.read_text(encoding="utf-8"))
        tables.append([{name: value for name, value in row.items() if name != "cost_ms"} for row in rows])
    assert tables[0] == tables[1]


def test_a_log_without_large_bags_is_refused(tmp_path: Path) -> None:
    logged = tmp_path / "tasks.csv"
    logged.write_text("bag,function,seconds\nb,f,1\n", encoding="utf-8")
    result = invoke("--csv", logged)
    assert (result.exit_code, result.stderr.strip()) == (2, f"Error: no bag has {LEAST} tasks")


def test_a_log_of_tasks_that_fit_no_window_is_refused(tmp_path: Path) -> None:
    logged = tmp_path / "tasks.csv"
    logged.write_text("bag,function,seconds\n" + "b,f,31536000\n" * LEAST, encoding="utf-8")
    result = invoke("--csv", logged, "--bags", 2)
    refused = "Error: no bag ends: its tasks have to fit into a night or a weekend"
    assert (result.exit_code, result.stderr.strip()) == (2, refused)


def test_each_bag_is_played_once_before_any_is_played_again() -> None:
    log = LoggedTasks("", tuple(tuple([LoggedTask(name, "f", "p", 1.0)] * 30) for name in "abc"))
    names = [None if bag is None else bag[0].bag for bag in bags_of(log, Random(1), 7)]
    assert [place for place, name in enumerate(names) if name is None] == [3, 7]
    assert {*names[:3]} == {*names[4:7]} == {"a", "b", "c"}
    assert len(names) == 9
    with pytest.raises(WorkloadError):
        next(bags_of(LoggedTasks("", ()), Random(1), 7))


def test_bags_that_are_drawn_are_of_all_sizes() -> None:
    log = drawn_bags(3, 50)
    sizes = sorted(map(len, log.streams))
    assert 20 <= sizes[0] < 60
    assert 1_000 < sizes[-1] <= 2_000
    assert drawn_bags(3, 50) == log != drawn_bags(4, 50)


def test_pcs_are_there_at_nights_and_on_weekends() -> None:
    spans = nights_and_weekends(0, 1, 0.0)
    week = [next(spans) for _ in range(8)]
    announced = [(span.opens / HOUR, (span.announced - span.opens) / HOUR) for span in week]
    nights, weekend = [(24 * day + 18, 14) for day in range(4)], [(4 * 24 + 18, 6), (5 * 24, 24), (6 * 24, 24 + 8)]
    assert announced == [*nights, *weekend, (7 * 24 + 18, 14)]
    assert all(span.closes <= span.announced for span in week)
    later = next(nights_and_weekends(0, 1, 20 * HOUR))
    assert (later.opens, later.announced) == (0.0, 12 * HOUR)
    many = [span for pc in range(40) for span, _ in zip(nights_and_weekends(pc, 1, 0.0), range(5), strict=False)]
    assert 0.0 < sum(span.closes < span.announced for span in many) / len(many) < 0.15
