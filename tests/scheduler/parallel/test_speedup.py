"""Speed-ups of moldable tasks: the formulas, where their pieces join, and what is none."""

import math

import pytest

from deskgrid.scheduler.need import Speedup
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured


@pytest.mark.parametrize("speedup", [Amdahl(0.05), Downey(8.0, 0.5), Downey(8.0, 2.0), Measured(((2, 1.9), (4, 3.4)))])
def test_one_rank_is_as_fast_as_one_rank_and_more_ranks_are_never_slower(speedup: Speedup) -> None:
    known = [speedup.of(ranks) for ranks in range(1, 64)]
    assert known[0] == pytest.approx(1.0)
    assert known == sorted(known)


def test_a_serial_fraction_bounds_the_speed_up() -> None:
    assert Amdahl(0.5).of(2) == pytest.approx(4 / 3)
    assert Amdahl(0.0).of(7) == 7.0
    assert Amdahl(1.0).of(7) == 1.0


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0, 1.7])
def test_downeys_speed_up_ends_at_the_average_parallelism(sigma: float) -> None:
    assert Downey(10.0, sigma).of(1000) == 10.0


def test_downeys_speed_up_is_linear_without_variance() -> None:
    assert [Downey(4.0, 0.0).of(ranks) for ranks in (1, 3, 4, 6)] == [1.0, 3.0, 4.0, 4.0]


def test_downeys_three_pieces_of_small_variance_join() -> None:
    # At n = A both formulas give A / (1 + sigma (A - 1) / (2 A)); at n = 2 A - 1 the second gives A.
    speedup = Downey(8.0, 0.5)
    assert speedup.of(4) == pytest.approx(8 * 4 / (8 + 0.5 * 3 / 2))
    assert speedup.of(8) == pytest.approx(8 * 8 / (8 + 0.5 * 7 / 2))
    assert speedup.of(14) == pytest.approx(8 * 14 / (0.5 * 7.5 + 14 * 0.75))
    assert speedup.of(15) == 8.0


def test_downeys_two_pieces_of_large_variance_join() -> None:
    speedup = Downey(8.0, 2.0)  # until n = A + A sigma - sigma = 22
    assert speedup.of(4) == pytest.approx(4 * 8 * 3 / (2 * 11 + 8))
    assert speedup.of(21) < 8.0
    assert speedup.of(22) == 8.0


def test_a_table_is_linear_between_its_points_and_flat_after_them() -> None:
    speedup = Measured(((2, 1.8), (6, 3.0)))
    assert [speedup.of(ranks) for ranks in (1, 2, 3, 4, 6, 9)] == pytest.approx([1.0, 1.8, 2.1, 2.4, 3.0, 3.0])
    assert Measured(((1, 1.0), (3, 2.0))).of(2) == 1.5


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Amdahl(-0.1), "from 0 to 1"),
        (lambda: Amdahl(1.1), "from 0 to 1"),
        (lambda: Amdahl(math.nan), "from 0 to 1"),
        (lambda: Amdahl("x"), "a number from 0 to 1, not 'x'"),  # type: ignore[arg-type]
        (lambda: Downey("a", 1), "a finite number from 1 up, not 'a'"),  # type: ignore[arg-type]
        (lambda: Downey(2, None), "a finite number from 0 up, not None"),  # type: ignore[arg-type]
        (lambda: Downey(0.5, 1.0), "average parallelism"),
        (lambda: Downey(math.inf, 1.0), "average parallelism"),
        (lambda: Downey(2.0, -1.0), "variance"),
        (lambda: Downey(2.0, math.nan), "variance"),
        (lambda: Measured(()), "at least one"),
        (lambda: Measured(((0, 1.0),)), "1 rank or more"),
        (lambda: Measured(((2, 0.0),)), "above 0"),
        (lambda: Measured(((2, math.inf),)), "finite"),
        (lambda: Measured(((1, 1.5),)), "of one rank is 1"),
        (lambda: Measured(((4, 3.0), (2, 1.5))), "ascending"),
        (lambda: Measured(((4, 3.0), (4, 3.5))), "ascending"),
    ],
)
def test_what_is_no_speed_up_is_refused(make: object, reason: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=reason):
        make()
