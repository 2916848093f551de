"""``deskgrid sleepbench predict``, on logs that are drawn here from a seeded generator."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deskgrid.scheduler.prediction.calibration import LEVELS
from deskgrid.sleepbench import predictors, prequential
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.predictors import LastTwo, MeanWithRatios, Requested, RunningMean
from deskgrid.sleepbench.workloads.task_log import LoggedTask, LoggedTasks

FIELDS = (
    "predictor in_flight bags tasks coverage90 coverage95 coverage_5_95 bags_below_80 pinball90_to_mean "
    "pinball90_to_mean_arithmetic predict_us observe_us"
)


def drawn(bags: int, each: int = 60) -> Iterator[tuple[str, str, float]]:
    """Bags of three functions: their tasks differ, and the bags themselves do."""
    chance = random.Random(11)
    for bag in range(bags):
        middle = 2.0 * (bag % 3) + chance.gauss(0.0, 0.4)
        for _ in range(each):
            yield f"bag{bag}", f"f{bag % 3}", chance.lognormvariate(middle, 0.3)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    lines = ["bag,function,seconds", *(f"{bag},{function},{seconds}" for bag, function, seconds in drawn(90))]
    path = tmp_path / "tasks.csv"
    path.write_text("\n".join([*lines, "small,f0,1"]), encoding="utf-8")
    return path


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    lines = [f"1 0 5 {s:.3f} 1 -1 -1 8 36000 -1 1 {f[1:]} 1 -1 3 -1 -1 -1" for _, f, s in drawn(3, 30)]
    path = tmp_path / "log.swf"
    path.write_text("\n".join(lines * 2), encoding="utf-8")
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(sleepbench_group, ["predict", *map(str, arguments)], env={"COLUMNS": "80"})


def rows(folder: Path, *arguments: object) -> dict[str, dict[str, Any]]:
    file = folder / "rows.json"
    result = invoke("--json", file, *arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text(encoding="utf-8"))
    assert all(list(row) == FIELDS.split() for row in found)
    return {row["predictor"]: row for row in found}


def test_each_predictor_has_a_row(tmp_path: Path, tasks: Path) -> None:
    found = rows(tmp_path, "--csv", tasks, "--in-flight", 8)
    assert list(found) == ["running-mean", "last-two", "mean-with-ratios", "deskgrid"]
    assert all((row["in_flight"], row["bags"], row["tasks"]) == (8, 90, 5400) for row in found.values())
    assert found["running-mean"]["pinball90_to_mean"] == pytest.approx(1.0)


@pytest.mark.parametrize("in_flight", [8, 16])
def test_quantiles_hold_and_lose_less_than_the_mean(tmp_path: Path, tasks: Path, in_flight: int) -> None:
    row = rows(tmp_path, "--csv", tasks, "--in-flight", in_flight)["deskgrid"]
    assert 0.88 <= row["coverage90"] <= 0.92
    assert 0.93 <= row["coverage95"] <= 0.97
    assert 0.875 <= row["coverage_5_95"] <= 0.92
    assert row["bags_below_80"] <= 0.15  # bags of 60 tasks, of which 16 begin before any has ended
    assert row["pinball90_to_mean"] < 0.6
    assert row["pinball90_to_mean_arithmetic"] < 1.0


def test_a_job_log_is_measured_with_what_was_requested(tmp_path: Path, jobs: Path) -> None:
    found = rows(tmp_path, "--swf", jobs)
    assert list(found) == ["requested", "running-mean", "last-two", "mean-with-ratios", "deskgrid"]
    assert found["requested"]["coverage90"] == 1.0


def test_the_table_says_what_was_measured(tasks: Path) -> None:
    result = invoke("--csv", tasks)
    assert result.exit_code == 0
    assert "5,401 tasks of tasks.csv, bag after bag, 16 in flight" in result.output
    headings = ["at .9", "at .95", ".05-.95", "poor", "loss", "arith", "predict", "learn"]
    assert all(text in result.output for text in [*headings, "deskgrid"])


def test_the_table_fits_80_columns(tmp_path: Path) -> None:
    logged = tmp_path / "tasks.csv"
    logged.write_text("bag,function,seconds,requested\n" + "b,f,1,99\nb,f,9,99\n" * 40, encoding="utf-8")
    output = invoke("--csv", logged).output
    assert output.count("100.0%") >= 3
    assert "…" not in output


@pytest.mark.parametrize("both", [False, True])
def test_one_log_is_needed(tasks: Path, both: bool) -> None:
    result = invoke(*(["--csv", tasks, "--swf", tasks] if both else []))
    assert result.exit_code == 2
    assert "give either --csv FILE or --swf FILE" in result.output


def test_a_log_without_a_bag_of_some_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv"
    path.write_text("bag,function,seconds\na,f,1\n", encoding="utf-8")
    result = invoke("--csv", path)
    assert isinstance(result.exception, SystemExit)
    assert "no bag has 20 tasks" in result.output


def test_bags_of_which_all_tasks_take_the_same_time_have_no_loss_to_compare() -> None:
    stream = tuple(LoggedTask("a", "f", "", 5.0) for _ in range(40))
    first = tuple(LoggedTask("0", "f", "", 5.0) for _ in range(2))
    found = {row.predictor: row for row in prequential.measure(LoggedTasks("", (first, stream)), 4)}
    assert found["deskgrid"].pinball90_to_mean is None
    assert found["running-mean"].coverage90 == 1.0


# --- the predictors --------------------------------------------------------------------------------------------------


def task(seconds: float, bag: str = "a", function: str = "f", requested: float | None = None) -> LoggedTask:
    return LoggedTask(bag, function, "", seconds, requested)


def after(predictor: predictors.Predictor, seen: Sequence[LoggedTask], new: LoggedTask) -> float:
    for each in seen:
        predictor.observe(each, predictor.predict(each, ()))
    return predictor.predict(new, ())[2]


SEEN = (task(1.0), task(2.0), task(6.0), task(10.0, bag="b"), task(40.0, bag="c", function="g"))


@pytest.mark.parametrize(
    ("predictor", "of_its_bag", "of_its_function", "of_all"),
    [(RunningMean(), 3.0, 4.75, 11.8), (LastTwo(), 4.0, 8.0, 25.0), (Requested(), 3.0, 4.75, 11.8)],
)
def test_what_a_bag_has_not_shown_is_taken_from_its_function_and_then_from_everything(
    predictor: predictors.Predictor, of_its_bag: float, of_its_function: float, of_all: float
) -> None:
    assert predictor.predict(task(0.0), ())[2] == predictors.ASSUMED_S
    assert after(predictor, SEEN, task(0.0)) == of_its_bag
    assert predictor.predict(task(0.0, bag="new"), ())[2] == of_its_function
    assert predictor.predict(task(0.0, bag="new", function="new"), ())[2] == of_all


def test_what_was_requested_is_predicted() -> None:
    assert after(Requested(), SEEN, task(0.0, requested=600.0)) == 600.0


def test_the_mean_is_stretched_by_the_errors_that_were_seen() -> None:
    predictor = MeanWithRatios()
    for turn in range(200):
        one = task(1.0 if turn % 4 else 5.0)
        predictor.observe(one, predictor.predict(one, ()))
    quantiles = predictor.predict(task(0.0), ())
    assert quantiles[-1] == pytest.approx(2.0)
    assert quantiles[2] == pytest.approx(5.0, rel=0.1)
    assert len(quantiles) == len(LEVELS) + 1
