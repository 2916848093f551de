"""The status screen: what is on it, at any size."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from deskgrid.screen.bag_rows import BAG_PARTS
from deskgrid.screen.drawing import BarPart
from deskgrid.screen.screen import AWAY_S, _counters, render
from deskgrid.screen.worker_rows import WINDOW_PARTS
from deskgrid.wire.status import AbsentPC, CounterValues, StatusDocument
from tests.screen.builders import NO_COUNTS, bag, lab, slot, snapshot, worker

WIDTHS = (60, 80, 120, 200)
HEIGHTS = (10, 13, 14, 24, 28, 29, 40, 60)


def lines(
    seen: StatusDocument, width: int = 100, height: int | None = 40, age_s: float = 0.0, *, ascii_only: bool = False
) -> list[str]:
    """The screen as text, as a terminal of that width shows it; fails if a line is wider than that."""
    drawn = render(seen, width, height, age_s, hint="q quits", ascii_only=ascii_only)
    console = Console(width=width, record=True, file=StringIO())
    console.print(drawn)
    text = console.export_text().split("\n")[:-1]
    assert len(text) == len(drawn.renderables), "a line was wrapped"
    return text


def styles(seen: StatusDocument, word: str) -> set[str]:
    """The styles of the stretches of text that hold ``word``."""
    found = set()
    for line in render(seen, 100, 40, 0.0).renderables:
        assert isinstance(line, Text)
        found |= {str(span.style) for span in line.spans if word in line.plain[span.start : span.end]}
    return found


def line_with(text: str, found: list[str]) -> str:
    """The one line that holds ``text``."""
    (line,) = [line for line in found if text in line]
    return line


def test_the_page_of_the_screen_explains_each_count() -> None:
    page = Path(__file__, "../../../docs/how-to/status-screen.md").resolve().read_text(encoding="utf-8")
    explained = {name for line in page.splitlines() if line.count("|") == 3 for name in line.split("|")[1].split(",")}
    counts: Any = dict.fromkeys(NO_COUNTS, 0) | dict.fromkeys(("pieces", "no_room", "no_start", "copies"), 7)
    _, *shown = _counters(snapshot([], [], counters=counts))
    missing = [text.plain for text in shown if " " + text.plain.rstrip("0123456789 s") not in " ".join(explained)]
    assert not missing


# --- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("workers", [0, 1, 7, 400])
@pytest.mark.parametrize("age_s", [0.0, 12.0])
def test_the_screen_never_overflows(width: int, height: int, workers: int, age_s: float) -> None:
    assert len(lines(lab(workers), width, height, age_s)) <= height


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 2), (10, 5), (20, 8), (40, 3), (500, 200)])
def test_an_absurd_size_is_survived(width: int, height: int) -> None:
    assert len(lines(lab(9), width, height)) <= height


@settings(max_examples=60)
@given(
    name=st.text(max_size=40),
    seconds=st.lists(st.floats(0, 1e12), min_size=6, max_size=6),
    counts=st.lists(st.integers(0, 10**7), min_size=4, max_size=4),
    width=st.integers(1, 220),
    height=st.none() | st.integers(1, 70),
    ascii_only=st.booleans(),
)
def test_no_name_and_no_number_upsets_it(
    *, name: str, seconds: list[float], counts: list[int], width: int, height: int | None, ascii_only: bool
) -> None:
    a, b, c, d, e, f = seconds
    done, failed, running, waiting = counts
    workers = [
        worker(name, slot(a, b, queued=done, queued_s=c), slot(), uptime_s=d, opened_s=e, site=name, plan=name),
        worker(name, slot(a, 0.0), uptime_s=None, opened_s=f),
        worker(name, state="away", windows=[(a, b)]),
        worker(name, state="lost", silent_s=e, windows=[(c, d)]),
    ]
    bags = [bag(name, done=done, failed=failed, running=running, waiting=waiting, eta_s=f, age_s=a, note=name)]
    seen = snapshot(workers, bags, address=name)
    found = lines(seen, width, height, a, ascii_only=ascii_only)
    assert height is None or len(found) <= height


def test_without_a_height_every_worker_has_its_row() -> None:
    text = "\n".join(lines(lab(400), 80, None))
    assert all(f"{seen['name']} " in text for seen in lab(400)["workers"])
    assert "more:" not in text


def test_workers_without_a_row_are_counted() -> None:
    found = lines(lab(400), 80, 40)
    rest = line_with("more:", found)
    rows = [line for line in found if line.startswith(("lab", "big"))]
    assert rest.startswith(f"... and {400 - len(rows)} more: ")


def test_bags_without_a_row_are_counted() -> None:
    bags = [bag(f"sweep-{number}", id=f"{number:012}") for number in range(30)]
    found = lines(snapshot([worker()], bags), 80, 24)
    rows = [line for line in found if line.startswith("sweep-")]
    assert line_with("more:", found) == f"... and {30 - len(rows)} more: {30 - len(rows)} under way, 0 ended"


def test_many_bags_leave_room_for_workers_and_many_workers_for_bags() -> None:
    bags = [bag(f"sweep-{number}", id=f"{number:012}") for number in range(30)]
    found = lines(snapshot(lab(400)["workers"], bags), 80, 40)
    assert sum(line.startswith(("lab", "big")) for line in found) > 10
    assert sum(line.startswith("sweep-") for line in found) > 5


def test_bags_have_the_lines_that_workers_leave() -> None:
    bags = [bag(f"sweep-{number}", id=f"{number:012}") for number in range(30)]
    assert sum(line.startswith("sweep-") for line in lines(snapshot([worker()], bags), 80, 60)) == 30


# --- workers ---------------------------------------------------------------------------------------------------------


def test_a_window_is_a_bar_of_used_running_queued_and_left() -> None:
    """900 s used, 300 s running, 600 s queued, 1800 s left: of a bar of 36 cells 9, 3, 6 and 18."""
    at_work = worker("pc", slot(100.0, 400.0, queued=2, queued_s=600.0), uptime_s=2700.0, opened_s=900.0)
    width = next(w for w in range(60, 200) if _bar_width(lines(snapshot([at_work]), w), "pc") == 36)
    row = line_with("pc ", lines(snapshot([at_work]), width))
    assert "·" * 9 + "█" * 3 + "▒" * 6 + "─" * 18 in row


def _bar_width(found: list[str], name: str) -> int:
    row = line_with(f"{name} ", found)
    return sum(row.count(part.glyph) for part in WINDOW_PARTS)


def test_the_bar_of_a_worker_with_several_slots_is_their_average() -> None:
    half_busy = worker("pc", slot(0.0, 1800.0), slot(), uptime_s=1800.0, opened_s=0.0)
    row = line_with("pc ", lines(snapshot([half_busy]), 80))
    assert abs(row.count("█") - row.count("─")) <= 1
    assert "·" not in row.split("  ")[1]


@pytest.mark.parametrize(("runtime_s", "glyphs"), [(9000.0, "·█"), (50.0, "·█▒")])
def test_work_that_does_not_fit_fills_the_bar_and_no_more(runtime_s: float, glyphs: str) -> None:
    """Half of the window is used; what runs and what is queued for 900 s share the other half as far as they can."""
    late = worker("pc", slot(0.0, runtime_s, queued=1, queued_s=900.0), uptime_s=100.0, opened_s=100.0)
    row = line_with("pc ", lines(snapshot([late]), 80))
    window = [char for char in row if char in "·█▒─"]
    assert sorted(set(window)) == sorted(glyphs)
    assert abs(window.count("·") - len(window) / 2) <= 1


@pytest.mark.parametrize("parts", [WINDOW_PARTS, BAG_PARTS])
def test_the_stretches_of_a_bar_differ_without_colour_and_the_legend_names_them(parts: tuple[BarPart, ...]) -> None:
    text = "\n".join(lines(lab(7), 60, 24))
    assert all(f"{part.glyph} {part.name}" in text for part in parts)
    assert len({part.glyph for part in parts}) == len({part.style for part in parts}) == 4


def test_the_remaining_uptime_is_in_human_units() -> None:
    assert "2 h 05 min" in line_with("pc ", lines(snapshot([worker("pc", uptime_s=7500.0)])))


def test_an_open_ended_worker_is_said_to_be_that() -> None:
    row = line_with("pc ", lines(snapshot([worker("pc", slot(10.0, 70.0), uptime_s=None)])))
    assert "open-ended, 1 min 00 s of work" in row


def test_a_worker_whose_owner_uses_it_says_that_it_is_paused() -> None:
    row = line_with("pc ", lines(snapshot([worker("pc", slot(10.0, 70.0), paused="somebody uses it")])))
    assert "paused: somebody uses it" in row


def test_a_worker_that_is_away_shows_its_next_window() -> None:
    away = worker("pc", state="away", windows=[(18_000.0, 50_400.0), (100_000.0, 1.0)])
    assert "away, back in 5 h 00 min for 14 h 00 min" in line_with("pc ", lines(snapshot([away])))


def test_a_worker_that_is_late_for_its_window_says_so() -> None:
    late = worker("pc", state="away", windows=[(-30.0, 3630.0)])
    assert "away, was due 30 s ago for 1 h 00 min" in line_with("pc ", lines(snapshot([late])))


def test_a_worker_that_is_away_for_longer_than_a_week_says_so() -> None:
    assert "no window in the coming week" in line_with("pc ", lines(snapshot([worker("pc", state="away")])))


def test_a_lost_worker_says_for_how_long_it_was_silent() -> None:
    lost = worker("pc", state="lost", silent_s=190.0)
    assert "lost, silent for 3 min 10 s" in line_with("pc ", lines(snapshot([lost])))


def test_workers_keep_the_order_of_their_names_while_all_have_a_row() -> None:
    names = ["pc-10", "pc-9", "pc-1"]
    found = lines(snapshot([worker(name) for name in names]))
    assert [line.split()[0] for line in found if line.startswith("pc-")] == ["pc-1", "pc-9", "pc-10"]


def test_the_interesting_workers_come_first_when_not_all_have_a_row() -> None:
    quiet = [worker(f"idle-{number}") for number in range(50)]
    away = [worker(f"away-{number}", state="away") for number in range(50)]
    busy, lost = worker("busy", slot(5.0)), worker("lost", state="lost")
    doomed = worker("doomed", slot(5.0, 9000.0), uptime_s=60.0)
    found = lines(snapshot([*away, *quiet, lost, busy, doomed]), 80, 24)
    names = [line.split()[0] for line in found if line.startswith(("doomed", "busy", "lost", "idle", "away"))]
    assert names[:4] == ["doomed", "busy", "lost", "idle-0"]


def test_the_totals_count_workers_and_slots() -> None:
    assert line_with("Workers", lines(lab(7), 120)).startswith("Workers  5 up  1 away  1 lost  15 of 22 slots busy")


def test_a_grid_without_workers_says_what_to_do() -> None:
    assert "start one on a PC" in line_with("Workers", lines(snapshot()))


# --- slots -----------------------------------------------------------------------------------------------------------


def test_a_running_task_shows_its_progress_and_what_comes_after_it() -> None:
    pc = worker("pc", slot(27.0, 45.0, item=17, queued=2, queued_s=90.0))
    row = line_with("sweep #17", lines(snapshot([pc], [bag("sweep")])))
    assert "██████────" in row
    assert "27 s of 45 s, then 2 for 1 min 30 s" in row


def test_a_copy_is_marked() -> None:
    pc = worker("pc", slot(27.0, 45.0, copy=True))
    assert "27 s of 45 s, a copy" in line_with("#17", lines(snapshot([pc])))
    assert "a copy" not in line_with("#17", lines(snapshot([worker("pc", slot(27.0, 45.0))])))


def test_a_task_that_outlasts_the_window_is_said_to() -> None:
    pc = worker("pc", slot(10.0, 600.0), uptime_s=60.0)
    assert "too long for this window" in line_with("#17", lines(snapshot([pc])))
    saves = worker("pc", slot(10.0, 600.0, saves=True), uptime_s=60.0)
    assert "goes on in another window" in line_with("#17", lines(snapshot([saves])))


def test_each_slot_has_a_glyph_in_the_row_of_its_worker() -> None:
    slots = [slot(elapsed, 80.0, slot=number) for number, elapsed in enumerate([0.0, 45.0, 79.0, 81.0, None])]
    assert "▁▅█!·" in line_with("pc ", lines(snapshot([worker("pc", *slots)])))


def test_a_worker_with_many_slots_shows_how_many_are_busy() -> None:
    slots = [slot(1.0 if number < 12 else None, slot=number) for number in range(16)]
    assert "12/16" in line_with("pc ", lines(snapshot([worker("pc", *slots)])))


# --- bags ------------------------------------------------------------------------------------------------------------


def test_a_bag_shows_its_tasks_as_a_bar_and_its_time_to_go() -> None:
    row = line_with("sweep", lines(snapshot(bags=[bag(done=1000, failed=3, eta_s=7500.0)]), 120))
    assert all(part.glyph in row for part in BAG_PARTS)
    assert "2 h 05 min" in row
    assert "1,000/1,063" in row
    assert "3 failed" in row


def test_the_id_of_a_failed_bag_with_a_long_name_is_shown_at_80_columns() -> None:
    failed = bag("a-bag-with-a-rather-long-name", id="feedfacecafe", done=6_646, failed=13_354)
    row = line_with("feedfacecafe", lines(snapshot(bags=[failed]), 80))
    assert row.startswith("a-bag-with-")
    assert "13,354 failed" in row


def test_a_bag_without_a_name_goes_by_its_id() -> None:
    assert "feedfacecafe" in line_with("unknown", lines(snapshot(bags=[bag("", id="feedfacecafe", eta_s=None)]), 60))


def test_a_bag_that_has_ended_says_so_and_stands_below_the_others() -> None:
    ended = bag("old", done=10, running=0, waiting=0, age_s=1.0)
    found = lines(snapshot(bags=[ended, bag("new", age_s=900.0)]))
    assert "ended" in line_with("old ", found)
    assert found.index(line_with("new ", found)) < found.index(line_with("old ", found))


def test_a_bag_that_may_still_grow_has_not_ended() -> None:
    growing = bag("growing", done=10, running=0, waiting=0, closed=False, eta_s=None)
    assert "unknown" in line_with("growing", lines(snapshot(bags=[growing])))


def test_what_the_broker_notes_of_a_bag_is_shown_below_it() -> None:
    found = lines(snapshot(bags=[bag(note="3 tasks are longer than any window")]))
    assert found.index(line_with("3 tasks are longer", found)) == found.index(line_with("sweep", found)) + 1


# --- around them -----------------------------------------------------------------------------------------------------


def test_the_header_names_the_broker_its_policy_its_age_and_its_throughput() -> None:
    header = " ".join(lines(snapshot(), 120)[:2])
    for said in ("lab-server.example:7077", "policy pgs", "up 2 h 14 min", "encrypted", "12.4 tasks/s", "3 clients"):
        assert said in header


def test_a_grid_that_is_not_encrypted_says_so() -> None:
    assert "not encrypted" in " ".join(lines(snapshot(encrypted=False)))


def test_both_queues_are_shown() -> None:
    assert line_with("Waiting", lines(snapshot(priority=12))).startswith(
        "Waiting  first in line 12  behind them 56  longest task 45 s"
    )


def test_every_counter_of_trouble_is_shown() -> None:
    numbers = CounterValues(
        **{
            **NO_COUNTS,
            "departures": 11,
            "losses": 12,
            "crashes": 13,
            "errors": 14,
            "timeouts": 15,
            "stale": 16,
            "overdue": 17,
            "pieces": 18,
            "copies": 18,
        }
    )
    text = " ".join(lines(snapshot(counters=numbers), 80))
    for said in (
        "departures 11",
        "losses 12",
        "crashes 13",
        "errors 14",
        "timeouts 15",
        "stale answers 16",
        "overdue 17",
        "pieces 18",
        "copies 18",
    ):
        assert said in text
    assert "copies" not in " ".join(lines(snapshot(), 80))


@pytest.mark.parametrize(("kills", "colour"), [(0, "green"), (2, "red")])
def test_no_kill_by_a_planned_departure_is_green_and_any_is_red(kills: int, colour: str) -> None:
    counters = CounterValues(**{**NO_COUNTS, "planned_kills": kills})
    assert styles(snapshot(counters=counters), f"killed by a planned departure {kills}") == {f"bold {colour}"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("height", HEIGHTS)
def test_the_promise_is_on_every_screen(width: int, height: int) -> None:
    assert any("killed by a planned departure 0" in line for line in lines(lab(400), width, height))


def test_a_broker_that_is_away_is_said_to_be_and_the_rest_is_dimmed() -> None:
    assert lines(lab(7), age_s=12.0)[-1] == "broker away for 12 s, retrying  q quits"
    *above, _ = render(lab(7), 100, 40, 12.0).renderables
    assert all("dim" in [str(span.style) for span in line.spans] for line in above if isinstance(line, Text) and line)


def test_that_the_broker_is_away_is_the_last_thing_to_be_cut() -> None:
    assert lines(lab(7), 60, 2, age_s=12.0)[-1].startswith("broker away for 12 s")


def test_a_snapshot_that_is_merely_not_brand_new_is_not_dimmed() -> None:
    assert lines(lab(7), age_s=AWAY_S - 0.1)[-1] == "q quits"


def test_in_ascii_there_is_nothing_but_ascii() -> None:
    found = lines(lab(7), ascii_only=True)
    assert "\n".join(found).isascii()
    assert "..#==--" in line_with("lab3-0 ", found)


def test_a_worker_cannot_write_to_the_terminal_by_its_name() -> None:
    evil = worker("pc\x1b[2J\n", site="\x07", plan="\x9b1m")
    text = "".join(lines(snapshot([evil], [bag("\x1b]0;x\x07", note="\r")]), 200))
    assert text.isprintable()


# --- trouble ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "said"), [("full", "disk full: nothing can be stored"), ("low", "disk nearly full")])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_broker_whose_disk_is_full_says_so_before_all_else(state: str, said: str, width: int) -> None:
    seen = snapshot()
    seen["broker"]["disk"] = state  # type: ignore[typeddict-item]
    assert f"{said}, new submissions" in " ".join(lines(seen, width)[:2])


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_wrong_with_a_file_in_the_brokers_home_is_said_before_all_else(width: int) -> None:
    problem = "windows.toml: line 3; what it said before still counts"
    assert problem in " ".join(" ".join(lines(snapshot(problems=[problem]), width)[:4]).split())


def test_a_long_problem_is_said_to_its_end() -> None:
    problem = (
        "windows.toml: " + " ".join(f"word{number}" for number in range(40)) + "; what it said before still counts"
    )
    seen = lines(snapshot(problems=[problem, "another one"]), 80, 40)
    assert f"{problem} another one" in " ".join(" ".join(seen[:8]).split())
    assert len(lines(snapshot(problems=[problem]), 80, 10)) <= 10, "where there is room"


def test_pcs_that_should_be_there_are_named_before_all_workers() -> None:
    pcs = [AbsentPC(pc=f"lab-{number}", plan="daily 9-17", since_s=3600.0, seen_s=None) for number in range(5)]
    some = ", ".join(f"lab-{number} (for 1 h 00 min)" for number in range(3))
    said = f"5 should be there and are not: {some} and 2 more"
    assert said in " ".join(lines(snapshot([worker()], absent=pcs), 200))
    assert "1 should be there and is not: lab-0 (for 1 h 00 min)" in " ".join(lines(snapshot([], absent=pcs[:1]), 200))


def test_a_worker_that_quarantine_says_why_and_until_when_and_is_shown_first() -> None:
    sick = worker("lab3-99", note="in quarantine: 3 crashes in a row")
    found = lines(snapshot([*(worker(f"lab3-{number:02}") for number in range(40)), sick]), 100, 24)
    assert "in quarantine: 3 crashes in a row, tried again in 30 s" in line_with("lab3-99", found)
    sick["quarantine_s"] = 0.0
    assert "in quarantine: 3 crashes in a row, being tried" in line_with("lab3-99", lines(snapshot([sick])))
