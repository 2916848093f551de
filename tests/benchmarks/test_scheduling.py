"""The scheduler by itself: what a decision costs, counted in calls, so that a busy machine does not matter."""

import pytest

from benchmarks.scheduling import Loaded
from tests.scheduler.test_cost import cost

DECISIONS = 500


@pytest.mark.parametrize(("policy", "most"), [("packing", 172), ("pgs", 195)])
def test_a_decision_takes_few_calls_although_predictions_are_wrong(policy: str, most: int) -> None:
    loaded = Loaded(policy, 100, 2_000)
    loaded.passes(5, 100)
    calls = cost(loaded._scheduler, lambda: loaded.passes(5, 100))
    print(f"{policy}: {calls / DECISIONS:.0f} calls for a decision")
    assert calls < most * DECISIONS
