"""How fast PCs are, learned from what tasks of the same bag took on them and on others."""

from collections.abc import Mapping
from math import inf
from random import Random

import pytest

from deskgrid.scheduler.prediction import speeds
from deskgrid.scheduler.prediction.speeds import COMPARISONS, ENOUGH, KILLED, Speeds


def taught(
    really: Mapping[str, float],
    runs: int = 40,
    stated: Mapping[str, float] | None = None,
    spread: float = 1.0,
    predicted: float | None = 10.0,
) -> Speeds:
    """Each of these PCs, of which only the real speeds are given, has run so many tasks of 10 s, in turns."""
    known, chance = Speeds(), Random(1)
    for round_ in range(runs):
        for pc, speed in really.items():
            seconds = 10.0 / speed * spread ** chance.uniform(-1.0, 1.0)
            known.ran(1, round_, pc, (stated or {}).get(pc, 1.0), seconds=seconds, predicted=predicted)
    return known


def corrected(known: Speeds, *pcs: str) -> list[float]:
    return [known.corrected(pc, 1.0) for pc in pcs]


def test_a_pc_is_as_fast_as_its_tasks_show() -> None:
    known = taught({"a": 1.0, "b": 0.5, "c": 1.0, "d": 2.0, "e": 1.0})
    assert corrected(known, "a", "b", "c", "d", "e", "unknown") == pytest.approx([1.0, 0.5, 1.0, 2.0, 1.0, 1.0])
    assert {*known.moved} == {"b", "d"}


def test_a_speed_that_was_stated_rightly_is_not_corrected() -> None:
    really = {"a": 1.0, "b": 0.5, "c": 1.0}
    known = taught(really, stated=really)
    assert (known.corrected("b", 0.5), known.moved) == (0.5, {})


def test_a_pc_that_states_another_speed_is_as_fast_as_before() -> None:
    known = taught({"a": 1.0, "b": 0.5, "c": 1.0})
    assert [known.corrected("b", stated) for stated in (0.4, 0.5, 1.0)] == pytest.approx([0.5, 0.5, 0.5])


@pytest.mark.parametrize("really", [{"a": 0.5}, {"a": 0.5, "b": 1.0}])
def test_of_one_pc_or_two_nobody_knows_which_is_odd(really: dict[str, float]) -> None:
    assert taught(really).moved == {}


def test_few_tasks_say_nothing() -> None:
    really = {"a": 1.0, "b": 0.5, "c": 1.0}
    assert taught(really, ENOUGH - 1).moved == {}
    assert {*taught(really, ENOUGH + 1).moved} == {"b"}


def test_tasks_of_a_moment_say_nothing() -> None:
    known = Speeds()
    for task in range(50):
        for pc, seconds in (("a", 0.1), ("b", 0.4), ("c", 0.1)):
            known.ran(1, task, pc, 1.0, seconds=seconds, predicted=None)
    assert [*known.names] == []


def test_small_differences_are_none() -> None:
    assert taught({"a": 1.0, "b": 0.93, "c": 1.07, "d": 1.0}).moved == {}


@pytest.mark.parametrize("odd", [1e-6, 1e6])
def test_an_absurd_pc_changes_only_its_own_speed_and_that_within_bounds(odd: float) -> None:
    known = taught({"a": 1.0, "b": 1.0, "odd": odd, "c": 0.5, "d": 1.0, "e": 1.0}, spread=1.1, predicted=None)
    assert corrected(known, "a", "b") == [1.0, 1.0]
    assert known.corrected("c", 1.0) == pytest.approx(0.55, abs=0.06)
    assert corrected(known, "odd") in (pytest.approx([0.25]), [1.0])


def test_where_pcs_are_alike_and_tasks_are_not_nothing_is_corrected_but_by_chance() -> None:
    known = taught({f"pc{number}": 1.0 for number in range(40)}, 64, spread=4.0, predicted=None)
    assert sum(known.corrected(pc, 1.0) != 1.0 for pc in known.names) <= 2
    assert all(0.8 < known.corrected(pc, 1.0) < 1.25 for pc in known.names)


def test_the_more_tasks_have_ended_the_more_of_a_difference_is_believed() -> None:
    really = {"a": 1.0, "b": 0.5, "c": 1.0, "d": 1.0}
    found = [taught(really, runs, spread=2.0, predicted=None).corrected("b", 1.0) for runs in (8, 20, 200)]
    assert found[0] == 1.0
    assert found[0] >= found[1] > found[2] > 0.5


def test_predictions_that_are_wrong_by_much_say_nothing_of_pcs() -> None:
    really = {"a": 1.0, "b": 0.5, "c": 1.0}
    assert taught(really, 100, spread=4.0).moved == {}
    assert {*taught(really, 100, spread=4.0, predicted=None).moved} == {"b"}


def test_a_killed_task_counts_once_and_if_most_tasks_take_less() -> None:
    known = taught({"a": 1.0, "b": 1.0, "c": 1.0}, 1)
    for task in range(100, 130):
        known.killed(1, task, "b", 1.0, seconds=5.0, predicted=10.0)
        known.killed(1, task, "b", 1.0, seconds=50.0, predicted=10.0)
        known.ran(1, task, "b", 1.0, seconds=50.0, predicted=10.0)
    assert known.moved == {}
    for task in range(200, 230):
        known.killed(1, task, "b", 1.0, seconds=20.0, predicted=10.0)
        known.ran(1, task + 100, "a", 1.0, seconds=10.0, predicted=10.0)
        known.ran(1, task + 200, "c", 1.0, seconds=10.0, predicted=10.0)
    assert corrected(known, "a", "b", "c") == pytest.approx([1.0, 0.5, 1.0], rel=0.01)


def test_before_there_is_a_comparison_a_killed_task_says_nothing() -> None:
    known = Speeds()
    known.killed(1, 1, "a", 1.0, seconds=50.0, predicted=10.0)
    assert [*known.names] == []


def test_killed_tasks_are_remembered_up_to_a_limit() -> None:
    known = Speeds()
    for task in range(KILLED + 10):
        known.killed(1, task, "a", 1.0, seconds=50.0, predicted=10.0)
    assert len(known._bags[1].killed) == KILLED


def test_a_bag_whose_tasks_share_a_prediction_from_now_on_is_compared_anew() -> None:
    known = taught({"a": 1.0, "b": 1.0, "c": 1.0}, 5)
    known.ran(1, 99, "a", 1.0, seconds=10.0, predicted=None)
    assert [*known._bags[1].stands] == ["a"]


def test_a_prediction_of_no_time_at_all_is_none() -> None:
    predicted, none = (taught({"a": 1.0, "b": 0.5, "c": 1.0}, predicted=seconds) for seconds in (0.0, None))
    assert corrected(predicted, "b") == corrected(none, "b") == pytest.approx([0.5])


def test_what_was_learned_can_be_kept_and_forgotten() -> None:
    known, after = taught({"a": 1.0, "b": 0.5, "c": 1.0}, 100), Speeds()
    for pc in known.names:
        assert len(known.kept(pc)) == COMPARISONS
        after.restore(pc, known.kept(pc))
    after.restore("b", [inf])
    assert corrected(after, "a", "b", "c") == corrected(known, "a", "b", "c")
    after.moved.clear()
    after.forget()
    assert corrected(after, "b") == [1.0]
    assert after.kept("b") == []
    assert "b" in after.moved


def test_bags_and_pcs_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "BAGS", 2)
    monkeypatch.setattr(speeds, "PCS", 4)
    known = Speeds()
    for bag in range(3):
        for pc in "abcde":
            known.ran(bag, 0, f"{pc}{bag}", 1.0, seconds=10.0, predicted=None)
    assert [*known._bags] == [1, 2]
    assert [*known._bags[2].stands] == ["b2", "c2", "d2", "e2"]
    assert len(known.names) == 4


def test_workers_on_one_pc_have_one_vote() -> None:
    liar = {f"liar~{number}": 20.0 for number in range(2, 17)}
    known = taught({"a": 1.0, "b": 1.0, "c": 1.0, "liar": 20.0} | liar, 100)
    assert corrected(known, "a", "b", "c") == [1.0, 1.0, 1.0]
    assert taught({"a": 0.5, "liar": 1.0} | liar, 100).moved == {}


def test_a_prediction_of_next_to_no_time_says_nothing() -> None:
    known = taught({"a": 1.0, "b": 0.5, "c": 1.0}, predicted=5e-324)
    assert [*known.names] == []
    known = taught({"a": 1.0, "b": 1.0, "c": 1.0})
    runs = known._bags[1].runs
    known.killed(1, 99, "b", 1.0, seconds=20.0, predicted=5e-324)
    assert known._bags[1].runs == runs
