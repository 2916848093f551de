"""What a task needs beside its seconds."""

from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.speedup import Amdahl


def test_a_runtime_is_that_of_the_least_ranks_or_of_one_rank_if_the_speed_up_is_known() -> None:
    assert Need().width == 1
    assert Need(2, 4, slots=3).width == 6
    assert Need(2, 4, slots=3, speedup=Amdahl(0.5)).width == 3
