"""Generated tests try the same examples whatever the source looks like, so that no change of it is a lottery."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ANYTHING = st.lists(st.integers() | st.text(), max_size=3)


def tried(test: Callable[[list[object]], None], found: list[list[object]]) -> list[list[object]]:
    """The examples of a test that puts them into ``found``."""
    settings(max_examples=100)(given(ANYTHING)(test))()
    return found


def test_another_text_of_a_test_and_other_constants_of_other_modules_change_no_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = list[list[object]](), list[list[object]]()

    def one(drawn: list[object]) -> None:
        first.append(drawn)

    def another(drawn: list[object]) -> None:
        second.append(drawn)
        assert drawn is not None, "this test has another text"

    assert len(tried(one, first)) >= 100
    (tmp_path / "constants_of_mine.py").write_text("NUMBERS, TEXT = (1618033, 2.7182818), 'a rare text'\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("constants_of_mine")
    try:
        assert tried(another, second) == first
    finally:
        del sys.modules["constants_of_mine"]
