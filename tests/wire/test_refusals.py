"""What fields refuse, one by one: each refusal has a test that does not depend on what is drawn."""

import re
from typing import Any

import msgpack
import pytest

from deskgrid.wire.failure import Failure
from deskgrid.wire.fields import Document, Line, Plain, Word
from deskgrid.wire.limits import PICKLED_BYTES
from deskgrid.wire.needs import LeastAndMost, SpeedupField
from deskgrid.wire.source import Wrong, source_of

WORD = Word(re.compile("[a-z]+"), "a word")


def packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


@pytest.mark.parametrize("field", [Line(10), WORD])
def test_a_column_of_texts_is_checked_text_by_text(field: Plain) -> None:
    assert field.all(["a", "b", "a"]) == ["a", "b", "a"]
    with pytest.raises(Wrong):
        field.all(["a", 1])


@pytest.mark.parametrize("field", [Line(10), WORD, Document(10)])
@pytest.mark.parametrize("value", [1, "many words, and more than ten bytes of them"])
def test_a_text_that_is_none_or_too_long_is_refused(field: Plain, value: Any) -> None:
    with pytest.raises(Wrong):
        field.one(value)


def test_a_line_that_may_be_shortened_is() -> None:
    assert Line(10, shorten=True).one("a" * 20).startswith("a")
    assert len(Line(10, shorten=True).one("a" * 20)) <= 10


def test_a_value_is_no_map_and_no_array() -> None:
    with pytest.raises(Wrong, match="expected a map"):
        source_of(packed(1)).map()
    with pytest.raises(Wrong, match="expected an array"):
        source_of(packed(1)).array()


@pytest.mark.parametrize("values", [[1], [2, 1], [0, 1]])
def test_the_least_and_the_most_are_two_numbers_in_order(values: list[int]) -> None:
    assert LeastAndMost(1, 9).read(source_of(packed([1, 2]))) == (1, 2)
    with pytest.raises(Wrong):
        LeastAndMost(1, 9).read(source_of(packed(values)))


@pytest.mark.parametrize(
    "values", [[], ["amdahl", 0.5], ["downey", 4.0, 1.0], ["table", 1, 1.0, 2, 1.5], ["table", 2, 1.5]]
)
def test_speed_ups_are_formulas_or_tables(values: list[Any]) -> None:
    assert SpeedupField().read(source_of(packed(values))) == tuple(values)


@pytest.mark.parametrize(
    "values", [["amdahl"], ["table"], ["table", 1], ["table", 2, 1.5, 2, 1.5], ["table", 1, 2.0], ["more", 1.0]]
)
def test_what_is_no_speed_up_is_refused(values: list[Any]) -> None:
    with pytest.raises(Wrong):
        SpeedupField().read(source_of(packed(values)))


def test_an_exception_that_is_too_large_is_told_and_not_sent() -> None:
    assert Failure("E", "e", "", b"x" * PICKLED_BYTES).pickled
    assert Failure("E", "e", "", b"x" * (PICKLED_BYTES + 1)).pickled == b""
