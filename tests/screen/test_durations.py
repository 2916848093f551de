"""Durations for people."""

import pytest

from deskgrid.durations import duration, precise


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (0.44, "0.4 s"),
        (9.99, "9.9 s"),
        (59.9, "59 s"),
        (60, "1 min 00 s"),
        (200, "3 min 20 s"),
        (600, "10 min"),
        (3599, "59 min"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (86_399, "23 h 59 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_is_said_in_the_units_people_use_and_never_rounded_up(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, "0 s"), (0.0123, "0.0123 s"), (30.0, "30 s"), (59.94, "59.9 s"), (60.0, "1 min 00 s")]
)
def test_short_durations_that_are_compared_have_three_digits(seconds: float, said: str) -> None:
    assert precise(seconds) == said
