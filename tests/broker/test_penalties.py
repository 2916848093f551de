"""A credential whose messages make the broker fail repeatedly is kept out for a while, longer each time."""

from deskgrid.broker.model.clocks import NAMES, RateLimit
from deskgrid.broker.port.penalties import BAR_MOST_S, BAR_S, FAULTS, FORGIVEN_S, WITHIN_S, Penalties


def fail(faults: Penalties, name: str, now: float, times: int = FAULTS) -> None:
    for _ in range(times):
        faults.add(name, now)


def test_a_fault_or_two_keep_nobody_out() -> None:
    faults = Penalties()
    fail(faults, "eve", 0.0, FAULTS - 1)
    assert faults.barred_s("eve", 0.0) == 0.0
    faults.add("eve", WITHIN_S)
    assert faults.barred_s("eve", WITHIN_S) == 0.0


def test_one_too_many_keeps_that_credential_out_for_a_while_and_no_other() -> None:
    faults = Penalties()
    fail(faults, "eve", 5.0)
    assert faults.barred_s("eve", 5.0) == BAR_S
    assert faults.barred_s("ann", 5.0) == 0.0
    assert faults.barred_s("eve", 5.0 + BAR_S) == 0.0


def test_it_is_longer_each_time_up_to_an_hour_and_forgiven_after_a_day() -> None:
    faults, now, bars = Penalties(), 0.0, []
    for _ in range(9):
        fail(faults, "eve", now)
        bars.append(faults.barred_s("eve", now))
        now += bars[-1]
    assert bars[:3] == [BAR_S, 2 * BAR_S, 4 * BAR_S]
    assert bars[-1] == BAR_MOST_S
    now += FORGIVEN_S
    fail(faults, "eve", now)
    assert faults.barred_s("eve", now) == BAR_S


def test_an_allowance_is_used_up_and_comes_back_one_by_one() -> None:
    allowance = RateLimit(burst=3, every_s=10.0)
    assert [allowance.take("eve", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert allowance.take("ann", 0.0)
    assert [allowance.take("eve", 10.0) for _ in range(2)] == [True, False]
    assert [allowance.take("eve", 1000.0) for _ in range(4)] == [True, True, True, False]


def test_names_that_have_their_whole_allowance_are_forgotten() -> None:
    allowance = RateLimit(burst=3, every_s=10.0)
    for number in range(NAMES):
        allowance.take(f"pc{number}", 0.0)
    allowance.take("one more", 10.0)
    assert len(allowance._used_until) == 1
