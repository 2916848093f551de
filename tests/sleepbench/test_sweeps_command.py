"""``deskgrid sleepbench sweeps``, and the surface that predicts a sweep."""

import json
import math
import random
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from deskgrid.sleepbench import sweeps
from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.surface import Surface
from deskgrid.sleepbench.sweeps import POINTS, SweepRow, drawn, measure, needed


@pytest.fixture(scope="module")
def rows() -> list[SweepRow]:
    return list(measure(12, seed=3))


def row_of(rows: list[SweepRow], order: str, predictor: str, points: int) -> SweepRow:
    return next(row for row in rows if (row.order, row.predictor, row.points) == (order, predictor, points))


def test_each_order_and_predictor_has_a_row_for_every_number_of_points(rows: list[SweepRow]) -> None:
    found = [(row.order, row.predictor, row.points) for row in rows]
    assert found == list(product(sweeps.ORDERS, sweeps.PREDICTORS, POINTS))


def test_a_surface_knows_an_explored_sweep_soon(rows: list[SweepRow]) -> None:
    by_12, by_24 = (needed(rows, "explore", "surface", goal) for goal in (0.2, 0.1))
    assert by_12 is not None
    assert by_12 <= 12
    assert by_24 is not None
    assert by_24 <= 24


def test_in_order_and_without_parameters_it_is_not_known(rows: list[SweepRow]) -> None:
    assert needed(rows, "in-order", "surface", 0.2) is None
    assert needed(rows, "explore", "quantiles", 0.2) is None


def test_the_total_is_known_sooner_if_a_sweep_is_explored(rows: list[SweepRow]) -> None:
    explored, in_order = (row_of(rows, order, "quantiles", 8).total_error for order in ("explore", "in-order"))
    assert explored < in_order / 2


def test_a_goal_that_is_missed_again_later_is_not_reached() -> None:
    rows = [SweepRow("o", "p", points, 1, error, error, error) for points, error in [(6, 0.1), (8, 0.3), (12, 0.2)]]
    assert needed(rows, "o", "p", 0.2) == 12


def test_a_surface_goes_through_a_parabola_and_close_to_what_is_noisy() -> None:
    points = [(x / 5, y / 5) for x in range(6) for y in range(6)]

    def true(point: tuple[float, float]) -> float:
        return math.exp(3.0 + 2.0 * point[0] - (point[1] - 0.5) ** 2)

    surface = Surface(points, [true(point) for point in points])
    for point in ((0.11, 0.9), (0.5, 0.5), (0.93, 0.27)):
        assert surface.seconds(point) == pytest.approx(true(point), rel=0.03)


def test_one_task_says_what_all_take() -> None:
    assert Surface([(0.5,)], [7.0]).seconds((0.1,)) == pytest.approx(7.0)


def test_sweeps_are_drawn_with_smooth_runtimes() -> None:
    for seed in range(20):
        sweep = drawn(random.Random(seed))
        assert len(set(sweep.items)) == len(sweep.items) == len(sweep.seconds)
        assert 1.5 < max(sweep.expected) / min(sweep.expected) < 60.0


def test_the_command_shows_a_table_and_writes_the_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    result = CliRunner().invoke(sleepbench_group, ["sweeps", "--sweeps", "2", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert "explore   surface" in result.output
    written = json.loads(file.read_text())
    assert set(written[0]) == set(SweepRow.__dataclass_fields__)
