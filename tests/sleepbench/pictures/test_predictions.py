"""Pictures of predictions: their lines go through what was measured."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.axes import Axes

from deskgrid.sleepbench.cli import sleepbench_group
from deskgrid.sleepbench.etas import EtaRow
from deskgrid.sleepbench.pictures.predictions import ToldEnd, coverage, life, narrowing
from deskgrid.sleepbench.prequential import Life


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """What each labelled line goes through."""
    found = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in axes.lines}
    return {label: [(x, y) for x, y in points] for label, points in found.items() if not label.startswith("_")}


def test_coverage_and_width_are_drawn_by_stage_and_small_bags_are_left_out() -> None:
    rows = [
        EtaRow("deskgrid", "5%", 10, 0.9, 1.5, 0.2, 7.0),
        EtaRow("deskgrid", "25%", 10, 0.8, 1.0, 0.1, 7.0),
        EtaRow("deskgrid", "small", 10, 0.1, 9.0, 0.9, 7.0),
        EtaRow("list-schedule", "25%", 10, 0.2, 0.3, 0.4, 1.0),
    ]
    holds, width = coverage(rows).axes
    assert [x for x, _ in lines(holds)["deskgrid"]] == [0, 1]
    assert [y for _, y in lines(holds)["deskgrid"]] == pytest.approx([90.0, 80.0])
    assert lines(width)["deskgrid"] == [(0, 1.5), (1, 1.0)]
    assert lines(width)["list-schedule"] == [(1, 0.3)]
    assert [label.get_text() for label in holds.get_xticklabels()] == ["5%", "25%"]


def test_the_life_of_a_bag_shows_what_was_predicted_and_what_it_took() -> None:
    (axes,) = life(Life("bag1", [3.0, 4.0], [(1.0, 2.0, 5.0, 6.0), (2.0, 3.0, 4.0, 5.0)])).axes
    drawn = lines(axes)
    assert drawn["what it took"] == [(1, 3.0), (2, 4.0)]
    assert drawn["median"] == [(1, 2.0), (2, 3.0)]
    assert drawn["quantile 0.9"] == [(1, 5.0), (2, 4.0)]
    assert "bag1" in axes.get_xlabel()
    assert axes.get_yscale() == "log"


def test_the_axis_of_seconds_has_plain_numbers() -> None:
    picture = life(Life("bag1", [6.0, 55.0], [(5.0, 20.0, 40.0, 60.0)] * 2))
    (axes,) = picture.axes
    picture.draw_without_rendering()
    assert {"10", "20", "50"} <= {each.get_text() for each in axes.get_yticklabels()}
    assert not any(each.get_text() for each in axes.get_yticklabels(minor=True))


def test_an_estimate_is_drawn_until_the_bag_was_done() -> None:
    (axes,) = narrowing([ToldEnd(1.0, 9.0, 5.0, 20.0), ToldEnd(2.0, 10.0, 9.0, 11.0)], 10.0).axes
    assert lines(axes)["as likely before as after"] == [(1.0, 9.0), (2.0, 10.0)]
    assert {y for _, y in lines(axes)["when it was done"]} == {10.0}
    assert axes.get_xlim() == (0.0, 10.0)


@pytest.mark.parametrize("command", ["eta", "predict"])
def test_commands_draw_what_they_measure(command: str, tmp_path: Path) -> None:
    log, picture = tmp_path / "tasks.csv", tmp_path / "drawn.svg"
    tasks = [f"bag{bag},f,{1 + (7 * task + bag) % 5}" for bag in range(3) for task in range(25 + bag)]
    log.write_text("\n".join(["bag,function,seconds", *tasks]), encoding="utf-8")
    more = ["--bags", "3"] if command == "eta" else []
    result = CliRunner().invoke(sleepbench_group, [command, "--csv", str(log), "--plot", str(picture), *more])
    assert result.exit_code == 0, result.output
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_a_picture_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(sleepbench_group, ["eta", "--plot", str(tmp_path / "drawn.gif")])
    assert result.exit_code == 2
    assert "the name of a picture has to end in" in result.output
