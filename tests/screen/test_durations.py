"""Durations for people."""

import pytest

from deskgrid.durations import duration, precise, read_duration


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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1e3", 1000.0),
        ("0.5s", 0.5),
        ("20min", 1200.0),
        ("20m", 1200.0),
        ("1h30min", 5400.0),
        ("1 h 30 min", 5400.0),
        ("2d", 172_800.0),
        ("1.5 h", 5400.0),
    ],
)
def test_a_typed_duration_is_seconds_or_has_units(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


def test_only_a_plain_number_takes_the_unit_of_its_option() -> None:
    assert (read_duration("2", 86_400.0), read_duration("36h", 86_400.0)) == (172_800.0, 129_600.0)


@pytest.mark.parametrize("text", ["", "h", "1x", "1h30", "-1h", "1h -2min", "30 1h", "nan h", "18:30"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        read_duration(text)


@pytest.mark.parametrize("seconds", [0.0, 9.9, 200, 5400, 100_000 // 3600 * 3600])
def test_a_duration_that_was_printed_can_be_typed(seconds: float) -> None:
    assert read_duration(duration(seconds)) == seconds
