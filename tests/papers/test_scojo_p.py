"""The SCOJO-P paper: its jobs, what counts, and the order of the policies at a fixed seed."""

from dataclasses import replace

import pytest

from deskgrid.papers.base import AskedExperiments, TrialRow
from deskgrid.papers.scojo_p.experiment import (
    CLASSES,
    EXPERIMENTS,
    PAPER,
    POLICIES,
    ScojoTrial,
    downey,
    least_and_most,
    table_1,
)
from deskgrid.scheduler.need import Need
from deskgrid.scheduler.parallel.sizes import working_set

EVERYTHING = AskedExperiments(list(EXPERIMENTS), [], [], [1])


def run(policy: str, seed: int = 1, jobs: int = 600, share: float = 1.0, other: bool = False) -> list[TrialRow]:
    return list(ScojoTrial(EVERYTHING, "W1", policy, seed, share, other, jobs).rows())


def test_sizes_that_follow_the_load_are_better_than_rigid_ones_and_than_those_that_jobs_choose() -> None:
    value = {policy: run(policy, seed=3, jobs=400)[0].value for policy in ("rigid", "cirne-berman", "scojo-p", "nmin")}
    assert value["nmin"] < value["scojo-p"] < value["rigid"]
    assert value["scojo-p"] < value["cirne-berman"]


def test_one_run_answers_for_all_jobs_and_for_each_class() -> None:
    found = run("rigid")
    assert [row.case for row in found] == ["W1", *[f"W1/{name}" for name in CLASSES]]
    whole, *classes = found
    assert min(row.value for row in classes) < whole.value < max(row.value for row in classes)
    for row in found:
        assert 0.0 < float(str(row.more["wait_h"])) < row.value
        assert float(str(row.more["bounded_slowdown"])) >= 1.0
        assert 0.0 < float(str(row.more["utilization"])) < 1.0


def test_only_what_was_asked_for_is_yielded() -> None:
    asked = replace(EVERYTHING, experiments=["by-class"], cases=["W1/long"])
    (row,) = ScojoTrial(asked, "W1", "rigid", 1, jobs=300).rows()
    assert row.case == "W1/long"


@pytest.mark.parametrize("size", range(1, 65))
def test_the_size_that_is_drawn_is_the_one_that_suits(size: int) -> None:
    least, most = least_and_most(size)
    assert least <= size <= most <= 128
    assert working_set(Need(least, most, speedup=table_1(size), gang=True)) == size


def test_runtimes_are_those_of_table_1_with_the_factors_turned() -> None:
    speedup = table_1(40)
    assert speedup.of(40) / speedup.of(20) == pytest.approx(2 * 0.65 / 0.8)
    assert speedup.of(40) / speedup.of(80) == pytest.approx(0.65 / (2 * 0.4))
    assert table_1(1).of(2) == pytest.approx(2 * 0.4 / 0.65)
    assert table_1(2).of(1) == 1.0


def test_downeys_curve_has_the_same_efficiencies() -> None:
    speedup = downey(64)
    assert speedup.of(32) / 32 == pytest.approx(0.8, abs=0.01)
    assert speedup.of(64) / 64 == pytest.approx(0.65, abs=0.01)
    assert speedup.of(128) / 128 == pytest.approx(0.41, abs=0.01)
    assert downey(1).of(2) == 1.0


def test_with_downeys_speed_ups_there_is_a_row_of_its_own() -> None:
    (row,) = run("nmin", jobs=200, other=True)
    assert (row.experiment, row.case) == ("downey", "W1")


def test_rigid_jobs_among_moldable_ones_gain_less() -> None:
    (some,), (none, *_) = run("nmin", share=0.8), run("nmin")
    assert (some.experiment, some.case) == ("moldable-share", "W1/0.8")
    assert some.value > none.value


def test_a_run_is_made_once_for_all_that_it_answers() -> None:
    trials = PAPER.trials(EVERYTHING)
    assert len(trials) == 2 * 4 * len(POLICIES)
    both = AskedExperiments(["response", "by-class"], ["W2"], ["nmin"], [0, 1])
    assert len(PAPER.trials(both)) == 2
