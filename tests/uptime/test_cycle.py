"""The paper's wrapper: its file and its arithmetic."""

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskgrid.wire import WINDOWS_LIMIT
from deskgrid.worker.windows.uptime import COMING_S, Cycle, Instant, PlanError, UptimePlan, read_cycle
from tests.uptime.builders import BOOT, after

START = Instant(1_790_000_000.0, BOOT)

# Times as a file holds them: whole milliseconds, up to a day.
millis = st.integers(0, 86_400_000)
pairs = st.lists(st.tuples(millis.filter(bool), millis), min_size=1, max_size=5)


def cycle_of(in_ms: list[tuple[int, int]]) -> Cycle:
    return Cycle([(up / 1000, down / 1000) for up, down in in_ms], START)


def test_it_is_open_at_the_start_closed_at_the_end_and_open_again_after_the_time_down() -> None:
    plan: UptimePlan = Cycle([(84, 1), (117, 2)], START)
    assert plan.kind == "cycle"
    expected = {0: 84, 83.5: 0.5, 84: 0, 84.5: 0, 85: 117, 201: 1, 202: 0, 203.5: 0, 204: 84, 204 * 1000: 84}
    assert {seconds: plan.uptime(after(seconds, START)) for seconds in expected} == pytest.approx(expected)
    boundaries = {0: 84, 84: 1, 84.25: 0.75, 85: 117, 202: 2, 204: 84}
    assert {seconds: plan.boundary(after(seconds, START)) for seconds in boundaries} == pytest.approx(boundaries)


def test_at_exactly_a_boundary_nothing_is_left_over_from_floats() -> None:
    plan = Cycle([(0.1, 0.2)], Instant(0.0, 0.0))
    for period in range(1000):
        closing, opening = Instant(0.0, period * 0.3 + 0.1), Instant(0.0, (period + 1) * 0.3)
        assert plan.uptime(closing) == 0.0
        assert plan.boundary(closing) == 0.2
        assert plan.uptime(opening) == 0.1


def test_the_coming_windows_go_through_the_pairs_without_the_current_one() -> None:
    plan = Cycle([(84, 1), (117, 2)], START)
    assert plan.coming(START)[:3] == ((85.0, 117.0), (204.0, 84.0), (289.0, 117.0))
    assert plan.coming(after(84, START))[0] == (1.0, 117.0)
    assert len(plan.coming(START)) == WINDOWS_LIMIT


def test_only_windows_that_start_within_seven_days_are_coming() -> None:
    assert Cycle([(3600, COMING_S - 3600)], START).coming(START) == ((COMING_S, 3600.0),)
    assert Cycle([(3600, COMING_S - 3599)], START).coming(START) == ()


def test_pairs_without_time_down_are_windows_of_their_own() -> None:
    plan = Cycle([(10, 0), (20, 5)], START)
    assert plan.boundary(START) == 10.0
    assert plan.uptime(after(10, START)) == 20.0
    assert plan.coming(START)[0] == (10.0, 20.0)


def test_it_never_ends() -> None:
    plan = Cycle([(1, 1e9)], START)
    assert not plan.over(after(2, START))
    assert not plan.over(after(1e9, START))


def test_before_its_start_it_is_as_at_its_start() -> None:
    plan = Cycle([(10, 5)], START)
    assert plan.uptime(after(-3, START)) == 10.0
    assert plan.boundary(after(-3, START)) == 10.0


def test_it_does_not_notice_that_the_wall_clock_is_set() -> None:
    plan = Cycle([(84, 1)], START)
    for wall in (0.0, START.wall - 3600, START.wall + 1e9):
        assert plan.uptime(Instant(wall, START.mono + 80)) == pytest.approx(4)
        assert plan.boundary(Instant(wall, START.mono + 84.5)) == pytest.approx(0.5)


@given(pairs, st.integers(0, 10**10))
def test_it_agrees_with_exact_arithmetic(in_ms: list[tuple[int, int]], elapsed_ms: int) -> None:
    now = Instant(0.0, START.mono + elapsed_ms / 1000)
    plan = cycle_of(in_ms)
    phase = elapsed_ms % sum(up + down for up, down in in_ms)
    opening = 0
    for up, down in in_ms:
        if phase < opening + up + down:
            break
        opening += up + down
    else:
        pytest.fail("a phase lies in a pair")
    left = opening + up - phase
    # Beyond START.mono + 1e7 s a float of seconds no longer holds a nanosecond: 1e-8 is a few of its steps.
    assert plan.uptime(now) == pytest.approx(max(left, 0) / 1000, abs=1e-8)
    assert plan.boundary(now) == pytest.approx((left if left > 0 else opening + up + down - phase) / 1000, abs=1e-8)


@given(pairs, st.floats(0, 1e8))
def test_nothing_is_negative_and_a_boundary_is_never_now(in_ms: list[tuple[int, int]], elapsed: float) -> None:
    plan, now = cycle_of(in_ms), Instant(0.0, START.mono + elapsed)
    uptime, boundary = plan.uptime(now), plan.boundary(now)
    assert uptime == 0.0 or 1e-9 <= uptime <= max(up for up, _ in in_ms) / 1000
    assert boundary is not None
    assert boundary >= 1e-9
    assert uptime in (0.0, boundary)
    assert all(starts > 0 and lasts > 0 for starts, lasts in plan.coming(now))


@given(pairs, st.floats(0, 1e6))
def test_the_coming_windows_are_sorted_apart_and_come(in_ms: list[tuple[int, int]], elapsed: float) -> None:
    plan, now = cycle_of(in_ms), Instant(0.0, START.mono + elapsed)
    coming = plan.coming(now)
    assert len(coming) <= WINDOWS_LIMIT
    end = Fraction(plan.uptime(now))
    for starts, lasts in coming:
        assert end <= Fraction(starts) + Fraction(1, 10**6)
        assert starts <= COMING_S
        assert plan.uptime(after(starts + 1e-6, now)) == pytest.approx(lasts, abs=2e-6)
        end = Fraction(starts) + Fraction(lasts)


@pytest.mark.parametrize(
    ("given_pairs", "cause"),
    [
        ([], "at least one pair"),
        ([(1, 1), (0, 1)], "pair 2: seconds up must be more than 0"),
        ([(-1, 1)], "pair 1: seconds up"),
        ([(1, -1)], "pair 1: seconds down must be from 0"),
        ([(math.nan, 1)], "pair 1: seconds up"),
        ([(math.inf, 1)], "pair 1: seconds up"),
        ([(1, math.nan)], "pair 1: seconds down"),
        ([(1, math.inf)], "pair 1: seconds down"),
        ([(1e-12, 1)], "pair 1: seconds up"),
    ],
)
def test_a_cycle_that_cannot_be_is_refused(given_pairs: list[tuple[float, float]], cause: str) -> None:
    with pytest.raises(PlanError, match=cause):
        Cycle(given_pairs, START)


def test_a_file_has_a_pair_a_line_with_comments_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "wrapper.cycle"
    path.write_bytes(b"\xef\xbb\xbf# resource 1 of the paper's Table 1\r\n\r\n84 1\r\n  117.5\t0.25  # and half\r\n")
    plan = read_cycle(path, START)
    assert plan.describe() == "1 min 24 s up, 1 s down, 1 min 57 s up, 0.25 s down, repeated"
    assert plan.uptime(START) == 84.0
    assert plan.coming(START)[0] == (85.0, 117.5)


def test_a_long_cycle_describes_its_first_pairs() -> None:
    text = Cycle([(n, 1) for n in range(1, 8)], START).describe()
    assert text.endswith("4 s up, 1 s down, 3 more pairs, repeated")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("84", "expected two numbers, seconds up and seconds down, got 1"),
        ("84 1 117 2", "got 4"),
        ("84, 1", "'84,' is not a number"),
        ("up down", "'up' is not a number"),
        ("0 1", "seconds up must be more than 0"),
        ("-84 1", "'-84' is not from 0"),
        ("84 -1", "'-1' is not from 0"),
        ("nan 1", "'nan' is not from 0"),
        ("84 inf", "'inf' is not from 0"),
        ("1e10 1", "'1e10' is not from 0"),
    ],
)
def test_a_malformed_line_is_named_by_file_and_number(tmp_path: Path, line: str, cause: str) -> None:
    path = tmp_path / "bad.cycle"
    path.write_text(f"# a comment\n84 1\n\n{line}\n", encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        read_cycle(path, START)
    message = str(caught.value)
    assert message.startswith(f"{path}:4: ")
    assert cause in message
    assert "\n" not in message


@pytest.mark.parametrize("content", [b"", b"\n# nothing\n", b"\xff\xfe1\x00"])
def test_a_file_without_pairs_or_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.cycle"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=r"bad\.cycle: (no pairs|is not text)"):
        read_cycle(path, START)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_cycle(tmp_path / "none.cycle", START)
