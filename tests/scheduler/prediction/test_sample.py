"""A sample of runs: which it remembers, and how little one PC can do to it."""

from hypothesis import given
from hypothesis import strategies as st

from deskgrid.scheduler.prediction.sample import ENOUGH, OF_ONE_PC, POINTS, REMEMBERED, SPIKE, STALE, Sample


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.sampled_from(["pc1", "pc2", "pc3", ""])), max_size=500))
def test_a_sample_stays_sorted_and_within_its_bounds(runs: list[tuple[float, str]]) -> None:
    sample = Sample()
    for seconds, pc in runs:
        sample.add(seconds, pc)
        assert len(sample.sorted) <= REMEMBERED
    assert sample.sorted == sorted(sample.runs())
    assert sample.count == len(runs)


def test_the_oldest_runs_are_forgotten() -> None:
    sample = Sample(map(float, range(REMEMBERED + 30)))
    assert sample.runs() == [float(n) for n in range(30, REMEMBERED + 30)]


def test_a_sample_is_summed_up_in_points_of_equal_weight() -> None:
    assert Sample([5.0]).points() == [5.0] * POINTS
    assert Sample(map(float, range(POINTS))).points() == [float(n) for n in range(POINTS)]


def test_a_pc_that_answers_at_once_does_not_decide_what_is_learned() -> None:
    sample = Sample()
    for turn in range(300):
        sample.add(10.0, f"pc{turn % 5}")
        for _ in range(20):
            sample.add(0.0, "broken")
    assert sample.runs().count(0.0) == OF_ONE_PC


def test_a_pc_that_is_alone_fills_the_sample() -> None:
    sample = Sample()
    for _ in range(REMEMBERED):
        sample.add(1.0, "pc1")
    assert len(sample.sorted) == REMEMBERED
    sample.add(2.0, "pc2")
    assert sample.runs() == [1.0] * OF_ONE_PC + [2.0]


def test_earlier_runs_of_pcs_that_nobody_knows_are_not_those_of_one() -> None:
    sample = Sample([1.0] * REMEMBERED)
    sample.add(2.0, "pc2")
    assert sample.runs() == [1.0] * (REMEMBERED - 1) + [2.0]


def test_the_runs_of_a_pc_that_is_gone_are_forgotten_in_the_end() -> None:
    sample = Sample()
    sample.add(7.0, "pc1")
    for _ in range(STALE - 1):
        sample.add(1.0, "pc2")
        assert 7.0 in sample.sorted
        assert len(sample.sorted) <= OF_ONE_PC + 1
    for _ in range(REMEMBERED):
        sample.add(1.0, "pc2")
    assert sample.sorted == [1.0] * REMEMBERED


def test_a_run_that_no_other_pc_confirms_counts_a_few_times_the_longest_of_the_others() -> None:
    sample = Sample()
    for turn in range(ENOUGH):
        sample.add(10.0, f"pc{turn % 4}")
    for _ in range(40):
        sample.add(1e7, "broken")
    assert max(sample.sorted) == 10.0 * SPIKE


def test_a_pc_that_is_alone_may_find_that_tasks_have_become_longer() -> None:
    sample = Sample()
    for _ in range(ENOUGH):
        sample.add(1.0, "pc1")
    sample.add(100.0, "pc1")
    assert max(sample.sorted) == 100.0
