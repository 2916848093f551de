"""Text from other machines is made clean and short."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid import wire
from deskgrid.wire.text import clean, clean_lines, cut, is_longer, without_middle

# C0, DEL, C1, an escape sequence, line and paragraph separators, bidirectional controls, half a character.
HARMFUL = "\x00 \x07 \x7f \x85 \x9b1m \x1b[31m \u2028 \u2029 \u202e \u2066 \u200f \ud800"


def test_what_a_terminal_might_obey_is_replaced() -> None:
    assert clean(HARMFUL) == "? ? ? ? ?1m ?[31m ? ? ? ? ? ?"
    assert clean("a\nb\tc\r") == "a?b?c?"
    assert clean("plain é ☃ 𝄞") == "plain é ☃ 𝄞"


def test_lines_and_tabs_stay_where_text_may_have_several_lines() -> None:
    assert clean_lines(f"a\tb\r\n{HARMFUL}\n\rc") == f"a\tb\n{clean(HARMFUL)}\n?c"
    assert clean_lines("plain") == "plain"


@given(st.text(), st.integers(8, 40))
def test_what_is_cut_is_short_enough(text: str, most: int) -> None:
    assert not is_longer(cut(text, most), most)
    if not is_longer(text, most):
        assert cut(text, most) == text


@pytest.mark.parametrize("size", [999, 1000, 1001, 5000])
def test_the_middle_is_cut_out_of_what_is_too_long(size: int) -> None:
    text = without_middle("a" * (size - 1) + "z", 1000)
    assert len(text) <= 1000
    assert text.startswith("aaa")
    assert text.endswith("z")


def test_a_name_is_clean_when_it_is_decoded() -> None:
    joined = wire.decode(wire.encode(wire.Hello(wire.VERSION, "s", HARMFUL)))
    assert isinstance(joined, wire.Hello)
    assert joined.user == clean(HARMFUL)
