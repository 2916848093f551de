"""What a live run is made of: cycle files that start together, options that exist, the arithmetic of windows."""

import math
from typing import Any, cast

import pytest

from deskgrid.scheduler.policies import make_policy, policy_names, single_policy_names
from deskgrid.sleepbench.live import CYCLES_S, OPTIONS, cycle_pairs, policy_options, window_s
from deskgrid.sleepbench.scenarios import PAPER_MIN, UPTIMES_S
from deskgrid.wire.status import StatusDocument
from deskgrid.worker.windows.uptime import Cycle, Instant


def cycle(uptime: float, opens_in: float) -> Cycle:
    """The plan of a PC with that cycle file, started at 0."""
    return Cycle(list(cycle_pairs(uptime, restart=0.02, opens_in=opens_in, length=20.0)), Instant(0.0, 0.0))


def test_pcs_started_one_after_the_other_open_their_first_windows_together() -> None:
    opening = 5.0
    for started, uptime in ((0.0, 1.68), (0.4, 2.34), (3.9, 17.28)):
        plan = cycle(uptime, opening - started)
        assert plan.uptime(Instant(0.0, opening - started - 0.001)) == 0.0
        assert plan.uptime(Instant(0.0, opening - started + 0.001)) == pytest.approx(uptime - 0.001)


def test_windows_follow_each_other_after_a_restart() -> None:
    plan = cycle(1.68, opens_in=5.0)
    assert plan.uptime(Instant(0.0, 5.0 + 1.69)) == 0.0
    assert plan.uptime(Instant(0.0, 5.0 + 1.70 + 0.001)) == pytest.approx(1.679)


def test_a_pc_that_started_too_late_opens_at_once() -> None:
    assert cycle(1.68, opens_in=-0.1).uptime(Instant(0.0, 0.0)) == pytest.approx(1.68)


@pytest.mark.parametrize("uptime", UPTIMES_S)
def test_a_cycle_file_lasts_longer_than_any_run(uptime: float) -> None:
    lasts = sum(up + down for up, down in cycle_pairs(uptime, 1.0, 5.0, CYCLES_S))
    assert lasts > 10 * 60 * max(PAPER_MIN["fcfs"])


def test_there_are_options_for_each_policy_that_places_single_tasks_in_its_own_way() -> None:
    assert set(OPTIONS) == set(single_policy_names())


@pytest.mark.parametrize("name", policy_names())
def test_each_policy_takes_the_options_it_is_given(name: str) -> None:
    policy = make_policy(name, **policy_options(name))
    assert policy.queue_s == 0.0


def test_a_policy_that_somebody_installed_has_its_defaults() -> None:
    assert policy_options("somebody's") == {}


def snapshot(closed_s: float, *opened: tuple[str, float, int]) -> StatusDocument:
    """As much of a snapshot as counts: windows that have closed, and workers as (state, opened, slots)."""
    workers = [{"state": state, "opened_s": seconds, "slots": [None] * slots} for state, seconds, slots in opened]
    raw: dict[str, Any] = {"workers": workers, "counters": {"window_s": closed_s}}
    return cast(StatusDocument, raw)


def test_open_windows_count_for_each_of_their_slots_and_closed_ones_as_counted() -> None:
    assert window_s(snapshot(100.0, ("up", 5.0, 2), ("up", 1.0, 1), ("away", 9.0, 1))) == 111.0


def test_nothing_is_open_before_anybody_came() -> None:
    assert math.isclose(window_s(snapshot(0.0)), 0.0)
