"""The broker knows what time it is, also after its machine's clock was set."""

import pytest

from deskgrid.broker.model.clocks import JUMP_S, WallClock


def test_a_jump_is_followed() -> None:
    clock = WallClock(1_000.0)
    assert clock.posix(5.0) == 1_005.0
    assert clock.follow(5.0, 9_005.0) == 8_000.0
    assert clock.posix(6.0) == 9_006.0
    assert clock.broker_time(9_006.0) == 6.0
    assert clock.follow(7.0, 7.0) == -9_000.0
    assert clock.posix(7.0) == 7.0


@pytest.mark.parametrize("off", [-0.9, 0.0, 0.9])
def test_a_clock_that_is_adjusted_slowly_is_not_followed_at_each_step_but_never_far_off(off: float) -> None:
    clock = WallClock(0.0)
    assert clock.follow(10.0, 10.0 + off * JUMP_S) == 0.0
    assert clock.posix(10.0) == 10.0
    for second in range(1_000):
        clock.follow(second, second * 1.01)
        assert abs(clock.posix(second) - second * 1.01) < JUMP_S
