"""A plan whose windows are closed while its PC is drained."""

import math

import pytest

from deskgrid.worker.windows.uptime import COMING_S, HORIZON_S, Cycle, Drained, Instant, OpenEnded, Until, UptimePlan
from tests.uptime.builders import BOOT, after

NOW = Instant(1_790_000_000.0, BOOT)


def test_an_open_ended_pc_is_away_until_the_drain_ends() -> None:
    plan: UptimePlan = Drained(OpenEnded(), NOW.wall, NOW.wall + 60.0)
    assert plan.uptime(NOW) == 0.0
    assert plan.coming(NOW) == ((60.0, HORIZON_S),)
    assert plan.boundary(NOW) == 60.0
    assert plan.kind == "open-ended"
    assert plan.describe().startswith("drained until ")
    assert not plan.over(NOW)
    end = after(60.0, NOW)
    assert (plan.uptime(end), plan.coming(end), plan.boundary(end)) == (math.inf, (), None)


def test_until_it_is_undone_no_window_is_announced() -> None:
    plan = Drained(OpenEnded(), NOW.wall, math.inf)
    later = after(2 * COMING_S, NOW)
    assert (plan.uptime(later), plan.coming(later), plan.boundary(later)) == (0.0, (), None)
    assert plan.describe() == "drained until undone; open-ended"


def test_tasks_that_save_have_until_its_start() -> None:
    plan = Drained(OpenEnded(), NOW.wall + 10.0, NOW.wall + 60.0)
    assert (plan.uptime(NOW), plan.boundary(NOW)) == (10.0, 10.0)
    assert Drained(Until(BOOT + 3.0, on_wall=False, text=""), NOW.wall + 10.0, math.inf).uptime(NOW) == 3.0


@pytest.mark.parametrize(
    ("drained_s", "windows"),
    [
        (5.0, [(5.0, 5.0), (15.0, 10.0)]),  # the rest of the open window, and the next
        (12.0, [(15.0, 10.0)]),
        (20.0, [(20.0, 5.0), (30.0, 10.0)]),
        (25.0, [(30.0, 10.0)]),
    ],
)
def test_windows_after_the_drain_are_announced_and_one_that_it_cuts_with_what_is_left(
    drained_s: float, windows: list[tuple[float, float]]
) -> None:
    plan = Drained(Cycle([(10.0, 5.0)], NOW), NOW.wall, NOW.wall + drained_s)
    assert list(plan.coming(NOW))[: len(windows)] == windows
    assert plan.boundary(NOW) == min(drained_s, 10.0)
