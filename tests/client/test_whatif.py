"""What if, and advice, as a program asks for them."""

from datetime import timedelta
from typing import Any

import pytest

from deskgrid import Change, Eta, Grid
from deskgrid.client.whatif import Misfits
from tests.client.fakebroker import FakeGrid


def row(median: float | None, why: str = "") -> dict[str, Any]:
    return {"median_s": median, "low_s": median, "high_s": median, "confidence": 0.9, "why": why}


def test_each_change_has_an_answer_after_that_of_the_grid_as_it_is(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    fake.broker.answers["whatif"] = {"rows": [row(60.0), row(None, "no PC is up or announced")]}
    bag = grid.bag(abs, [1, 2])
    change = Change(without=("lab1", "b*"), windows={"c": [(5.0, 10.0)]}, more={"d": 2, "*": 1}, split=3, begins_s=4.0)
    as_it_is, without = grid.whatif(bag, [change])
    assert as_it_is == Eta(60.0, 60.0, 60.0)
    assert str(without) == "unknown: no PC is up or announced"
    assert grid.whatif(bag.id, Change(policy="pgs", more=2))[0] == as_it_is
    said = {
        "without": ["lab1", "b*"],
        "windows": [{"pcs": "c", "starts_s": [5.0], "lasts_s": [10.0]}],
        "more": [{"like": "d", "many": 2}, {"like": "*", "many": 1}],
        "split": 3,
        "begins_s": 4.0,
    }
    first, second = fake.memory.asked("whatif")
    assert first == {"bag": bag.id, "changes": [said]}
    assert second == {"bag": bag.id, "changes": [{"policy": "pgs", "more": [{"like": "*", "many": 2}]}]}


@pytest.mark.parametrize("wrong", [{"split": 0}, {"more": -1}, {"more": {"a": 1, "b": -1}}, {"begins_s": -1.0}])
def test_a_change_by_less_than_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="split is 1 or more; more and begins_s are 0 or more"):
        Change(**wrong)
    with pytest.raises(ValueError, match=r"without is a list of patterns, as in \['lab1'\]"):
        Change(without="lab1")


def test_a_bag_need_not_be_submitted(fake: FakeGrid, grid: Grid) -> None:
    fake.broker.answers["whatif new"] = {"rows": [row(9.0)]}
    assert grid.whatif(runtime=300, tasks=10) == [Eta(9.0, 9.0, 9.0)]
    assert fake.memory.asked("whatif new") == [{"tasks": 10, "runtime_s": 300.0, "changes": []}]
    with pytest.raises(ValueError, match="name a bag, or give runtime and tasks"):
        grid.whatif(runtime=300)


def test_advice_is_values_and_sentences(fake: FakeGrid, grid: Grid) -> None:
    fake.memory.hold = True
    longer = {"group": "lab1", "pcs": 3, "closes_s": 1800.0, "hours": 1, "eta": row(3600.0)}
    misfits = {"tasks": 1, "needs_s": 90.0, "longest_s": 60.0, "pieces": 2}
    fake.broker.answers["advise"] = {"now": row(90_000.0), "longer": [longer], "misfits": misfits}
    advice = grid.bag(abs, [1]).advise()
    assert advice.misfits == Misfits(1, 90.0, 60.0, 2)
    (only,) = advice.longer
    assert (only.group, only.pcs, only.hours, only.eta.median) == ("lab1", 3, 1, 3600.0)
    assert only.closes == only.eta.asked + timedelta(seconds=1800.0)
    first, second, third = advice.lines()
    assert first.startswith("1 task needs 1 min 30 s at once")
    assert second.startswith("the others: done ")
    assert third.startswith("leave lab1 (3 PCs) on until ")
