"""The chart on the terminal, as text."""

import re
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from rich.console import Console

from deskgrid.sleepbench.pictures.chart import ASCII, BLOCKS, Chart, bar_of
from deskgrid.sleepbench.scenarios import Row
from tests.sleepbench.pictures.rows import ROWS, row


def text(rows: list[Row], width: int, encoding: str = "utf-8") -> list[str]:
    """The lines on a terminal without colours."""
    raw = BytesIO()
    file = TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width)
    console.print(Chart(rows))
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def shortened(line: str) -> str:
    """With a long run of whole cells as one and their number."""
    return re.sub(r"█{9,}", lambda run: f"█×{len(run[0])}", line)


def test_the_chart_at_sixty_columns() -> None:
    assert text(ROWS, 60) == [
        "makespan, minutes   │ lower bound   ◆ the paper's",
        "scenario 0  pgs      ███████████████│◆                 64.00",
        "            fcfs     ███████████████│◆                 64.00",
        "            packing  ███████████████│▏                 61.30",
        "scenario 3  pgs      ███████████████│██████▋◆          86.00",
        "            fcfs     ███████████████│███████████████◆ 120.00",
        "            packing  ███████████████│▋                 63.50",
    ]


def test_the_chart_at_a_hundred_and_twenty_columns() -> None:
    assert [shortened(line) for line in text(ROWS, 120)] == [
        "makespan, minutes   │ lower bound   ◆ the paper's",
        "scenario 0  pgs      █×45│█◆▍                                             64.00",
        "            fcfs     █×45│█◆▍                                             64.00",
        "            packing  █×45│▎                                               61.30",
        "scenario 3  pgs      █×45│█×19 ◆                           86.00",
        "            fcfs     █×45│█×44▋◆ 120.00",
        "            packing  █×45│██                                              63.50",
    ]


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert text(ROWS, 60, "ascii") == [
        "makespan, minutes   | lower bound   * the paper's",
        "scenario 0  pgs      ===============|*                 64.00",
        "            fcfs     ===============|*                 64.00",
        "            packing  ===============|                  61.30",
        "scenario 3  pgs      ===============|=======*          86.00",
        "            fcfs     ===============|===============* 120.00",
        "            packing  ===============|=                 63.50",
    ]


def test_an_old_console_of_windows_gets_ascii() -> None:
    console = Console(width=60, file=StringIO(), legacy_windows=True)
    with console.capture() as capture:
        console.print(Chart(ROWS))
    assert capture.get().isascii()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_console(width: int) -> None:
    lines = text(ROWS, width)
    assert len(lines) == 7
    assert max(map(len, lines)) <= width


def test_every_mark_stands_where_its_figure_is() -> None:
    _, line = text([row(3, "fcfs", 100.0)], 160)
    start = len("scenario 3  fcfs  ")
    assert line[start + int(60.25 / 121.83 * 100)] == BLOCKS.bound
    assert line[start + 99] == BLOCKS.paper
    assert line[start : start + 82].replace(BLOCKS.bound, BLOCKS.full) == BLOCKS.full * 82


def test_where_bound_and_paper_fall_together_the_papers_is_shown() -> None:
    _, line = text([row(0, "fcfs", 63.0)], 30)
    assert BLOCKS.paper in line
    assert BLOCKS.bound not in line


def test_a_policy_that_the_paper_has_not_bears_no_mark_of_it() -> None:
    lines = text([row(3, "packing", 63.0)], 60)
    assert not any(BLOCKS.paper in line for line in lines[1:])


def test_without_scenarios_of_the_paper_the_legend_does_not_speak_of_it() -> None:
    rows = [Row("evenings", "pgs", 1, 0, 12.0, 10.0, None, 3, 0, 0, 0.0, 0.0)]
    legend, line = text(rows, 60)
    assert legend == "makespan, minutes   │ lower bound"
    assert line.startswith("evenings  pgs  █")


def test_a_long_name_leaves_room_for_the_bars() -> None:
    rows = [Row("everything of 2019.swf on the PCs of notre-dame", "pgs", 1, 0, 12.0, 10.0, None, 3, 0, 0, 0.0, 0.0)]
    assert text(rows, 60)[1].startswith("everything of 2019.swf on t…  pgs  █")
    assert text(rows, 60, "ascii")[1].startswith("everything of 2019.swf on t~  pgs  =")


def test_a_bar_ends_at_an_eighth_of_a_cell() -> None:
    assert [bar_of(cells, BLOCKS) for cells in (0.0, 0.125, 0.5, 1.0, 2.875)] == ["", "▏", "▌", "█", "██▉"]
    assert [bar_of(cells, ASCII) for cells in (0.0, 0.4, 0.6, 3.0)] == ["", "", "=", "==="]


def test_policies_have_colours_on_a_terminal_that_shows_them() -> None:
    console = Console(width=60, force_terminal=True, color_system="standard", legacy_windows=False, no_color=False)
    with console.capture() as capture:
        console.print(Chart(ROWS))
    assert "\x1b[32mpacking" in capture.get()
    assert "\x1b[34mpgs" in capture.get()
