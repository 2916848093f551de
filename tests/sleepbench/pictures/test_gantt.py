"""The Gantt chart: what of a run is where, read from the three collections that it is made of."""

from itertools import pairwise

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb, to_rgba_array
from matplotlib.figure import Figure

from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, Execution, RealWindow, Run, SimulatedPC, Simulator, cycle
from deskgrid.sleepbench.pictures.gantt import HEIGHT_MOST, gantt
from deskgrid.sleepbench.pictures.style import VERMILLION

PCS = [SimulatedPC("red"), SimulatedPC("blue", slots=2), SimulatedPC("green")]
# Of red: a window that closed a minute early, and took a task with it; one that nothing ran in; one that outlasts the
# run; and one that opens later.
RUN = Run(
    makespan_s=600.0,
    idle_s=0.0,
    counters=Counters(),
    executions=(
        Execution("red", 0, 0, 0.0, 60.0, True),
        Execution("red", 0, 1, 60.0, 120.0, False),
        Execution("blue", 1, 2, 0.0, 240.0, True),
        Execution("red", 0, 1, 300.0, 600.0, True),
    ),
    spans=(
        ("red", RealWindow(0.0, 120.0, 180.0)),
        ("blue", RealWindow(0.0, 900.0, 900.0)),
        ("green", RealWindow(60.0, 120.0, 120.0)),
        ("red", RealWindow(180.0, 240.0, 240.0)),
        ("red", RealWindow(300.0, 900.0, 900.0)),
        ("red", RealWindow(1000.0, 1100.0, 1100.0)),
    ),
)
Box = tuple[float, float, float, float]


@pytest.fixture
def figure() -> Figure:
    return gantt(RUN, PCS, "ten minutes")


def collection(figure: Figure, label: str) -> PolyCollection:
    (found,) = (each for each in figure.axes[0].collections if each.get_label() == label)
    assert isinstance(found, PolyCollection)
    return found


def boxes(figure: Figure, label: str) -> list[Box]:
    """Of each block: from, to (on the time axis), and its upper and lower edge."""
    extents = [path.get_extents() for path in collection(figure, label).get_paths()]
    return [(box.x0, box.x1, box.y0, box.y1) for box in extents]


def times(figure: Figure, label: str) -> list[tuple[float, float]]:
    return [(round(start, 6), round(end, 6)) for start, end, _, _ in boxes(figure, label)]


def middle(box: Box) -> float:
    return (box[2] + box[3]) / 2


def test_what_ran_is_where_and_when_it_ran(figure: Figure) -> None:
    assert times(figure, "task") == [(0.0, 1.0), (0.0, 4.0), (5.0, 10.0)]
    assert times(figure, "killed by a departure") == [(1.0, 2.0)]
    first, second, third = boxes(figure, "task")
    assert middle(first) == middle(third) < middle(second)


def test_windows_end_with_the_run_and_each_slot_has_its_own(figure: Figure) -> None:
    assert times(figure, "window, idle") == [(0.0, 2.0), (0.0, 10.0), (0.0, 10.0), (1.0, 2.0), (3.0, 4.0), (5.0, 10.0)]
    red, upper, lower, green, *_ = (middle(box) for box in boxes(figure, "window, idle"))
    assert red < upper < lower < green
    assert lower - upper < upper - red == green - lower


def test_idle_time_shows_around_what_runs(figure: Figure) -> None:
    window, task = boxes(figure, "window, idle")[0], boxes(figure, "task")[0]
    assert window[2] < task[2] < task[3] < window[3]


def test_the_longer_a_task_the_darker(figure: Figure) -> None:
    minute, four, five = (sum(to_rgb(colour)) for colour in to_rgba_array(collection(figure, "task").get_facecolor()))
    assert minute > four > five


def test_what_was_killed_differs_in_colour_and_in_hatching(figure: Figure) -> None:
    killed = collection(figure, "killed by a departure")
    assert to_rgba_array(killed.get_facecolor()).tolist() == to_rgba_array([VERMILLION]).tolist()
    assert killed.get_hatch()
    assert not collection(figure, "task").get_hatch()


def test_a_window_that_does_not_close_as_announced_is_marked_where_it_should_have(figure: Figure) -> None:
    (ticks,) = (each for each in figure.axes[0].collections if isinstance(each, LineCollection))
    assert ticks.get_label() == "announced closing"
    assert [round(float(segment[0][0]), 6) for segment in ticks.get_segments()] == [3.0]


def test_every_closing_that_was_announced_in_vain_is_marked() -> None:
    spans = (("red", RealWindow(0.0, 60.0, 20.0, (50.0, 90.0))), ("red", RealWindow(70.0, 80.0, 75.0, (80.0,))))
    run = Run(85.0, 0.0, Counters(), (Execution("red", 0, 0, 0.0, 60.0, True),), spans)
    (ticks,) = (each for each in gantt(run, PCS[:1], "").axes[0].collections if isinstance(each, LineCollection))
    assert [round(float(segment[0][0]), 6) for segment in ticks.get_segments()] == [20.0, 50.0, 75.0]


def test_the_legend_has_no_more_than_there_is() -> None:
    quiet = Run(
        60.0, 0.0, Counters(), (Execution("red", 0, 0, 0.0, 60.0, True),), (("red", RealWindow(0.0, 60.0, 90.0)),)
    )
    figure = gantt(quiet, PCS[:1], "a minute")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["window, idle", "task"]


def test_the_axis_has_a_name_for_each_pc_and_the_unit_of_time(figure: Figure) -> None:
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["red", "blue", "green"]
    red, upper, lower, green, *_ = (middle(box) for box in boxes(figure, "window, idle"))
    assert axes.get_yticks().tolist() == [red, (upper + lower) / 2, green]
    assert axes.get_xlabel() == "time (minutes)"
    assert axes.get_title(loc="left") == "ten minutes"
    assert figure.axes[1].get_ylabel() == "seconds a task took"


@pytest.mark.parametrize(("seconds", "unit"), [(299.0, "seconds"), (300.0, "minutes"), (18000.0, "hours")])
def test_the_unit_is_one_that_the_run_has_some_of(seconds: float, unit: str) -> None:
    figure = gantt(Run(seconds, 0.0, Counters(), RUN.executions[:1], RUN.spans), PCS, "")
    assert figure.axes[0].get_xlabel() == f"time ({unit})"


def test_first_is_on_top_and_all_rows_are_inside(figure: Figure) -> None:
    bottom, top = figure.axes[0].get_ylim()
    drawn = boxes(figure, "window, idle")
    assert top < min(box[2] for box in drawn) < max(box[3] for box in drawn) < bottom


@pytest.mark.parametrize("count", [8, 40, 150])
def test_names_are_not_drawn_over_each_other_and_the_picture_stays_a_page(count: int) -> None:
    pcs = [SimulatedPC(f"pc{number}", cycle(600.0, 60.0)) for number in range(count)]
    run = Simulator(make_policy("pgs"), pcs, [Arrival([50.0] * 4 * count)], trace=True).run()
    figure = gantt(run, pcs, "")
    figure.draw_without_rendering()
    assert len(boxes(figure, "task")) == 4 * count
    names = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(names) >= min(count, 40)
    assert all(upper.y0 + 1.0 >= lower.y1 for upper, lower in pairwise(names))
    assert figure.get_figheight() < (9.0 if count <= 40 else 17.0)
    assert narrowest(figure.axes[0]) > 3.0


def test_of_hundreds_of_pcs_some_are_named() -> None:
    pcs = [SimulatedPC(f"pc{number}") for number in range(900)]
    figure = gantt(Run(60.0, 0.0, Counters(), (Execution("pc0", 0, 0, 0.0, 60.0, True),)), pcs, "")
    assert figure.get_figheight() <= HEIGHT_MOST
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:3] == ["pc0", "pc4", "pc8"]


def narrowest(axes: Axes) -> float:
    """The height of the lowest row, in points."""
    (low, high) = (axes.transData.transform((0.0, row))[1] for row in (1.0, 0.0))
    return float(high - low) * 72.0 / axes.figure.dpi
