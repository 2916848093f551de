"""Bars and lines of text."""

from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from deskgrid.screen.drawing import BarPart, Column, bar, counted, fitted, flow, row, shares
from deskgrid.wire import clean

A, B = BarPart("a", "", "first"), BarPart("b", "", "second")


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [counted(number, "task") for number in (0, 1, 1204)] == ["0 tasks", "1 task", "1,204 tasks"]


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=6), st.integers(0, 200))
def test_the_shares_of_a_bar_fill_it_exactly_unless_there_is_nothing_to_show(amounts: list[float], width: int) -> None:
    assert sum(shares(amounts, width)) == (width if sum(amounts) > 0 else 0)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=6), st.integers(6, 200))
def test_whatever_is_not_nothing_is_seen_in_a_bar(amounts: list[float], width: int) -> None:
    assert all(cells > 0 for amount, cells in zip(amounts, shares(amounts, width), strict=True) if amount > 0)


def test_a_bar_is_divided_in_proportion() -> None:
    assert bar([(30.0, A), (10.0, B)], 8).plain == "aaaaaabb"


def test_what_is_gone_below_nothing_takes_no_room_in_a_bar() -> None:
    assert bar([(-5.0, A), (1.0, B)], 4).plain == "bbbb"


def test_a_row_cuts_and_fills_its_cells_and_leaves_out_columns_without_width() -> None:
    columns = (Column(4), Column(0), Column(5, "right"))
    assert row(("abcdefg", "gone", "12"), columns).plain == "abc…     12"


def test_characters_two_cells_wide_do_not_shift_the_next_column() -> None:
    assert row(("講義室三", "x"), (Column(5), Column(1))).cell_len == 5 + 2 + 1


def test_items_flow_over_lines_and_what_is_beyond_the_last_one_is_left_out() -> None:
    items = [Text(word) for word in ("one", "two", "three", "four")]
    assert [line.plain for line in flow(items, width=8, limit=2)] == ["one  two", "three"]


def test_a_name_cannot_move_the_cursor_or_break_the_line() -> None:
    assert clean("a\x1b[2Jb\nc\u202e") == "a?[2Jb?c?"


def test_a_line_in_ascii_keeps_its_width_and_loses_no_distinction() -> None:
    line = fitted(Text("·█▒─ 講義 e\u0301"), 8, ascii_only=True)
    assert line.plain == ".#=- ?? "


def test_no_line_has_what_a_terminal_might_obey() -> None:
    assert fitted(Text("a\x1b[2Jb\u202e", "bold"), 20, ascii_only=False).plain == "a?[2Jb?"
