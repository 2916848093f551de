"""How much of the source runs for one no-op task, and for a worker that joins: it is to become less, and never more."""

import pytest

from benchmarks.reach import Reached, measured

# What was measured, and a few more for what is done at intervals. Who needs less lowers the ceiling.
CEILINGS = {
    ("task", "client"): Reached(196, 40),
    ("task", "broker"): Reached(447, 95),
    ("task", "worker"): Reached(240, 50),
    ("join", "broker"): Reached(274, 72),
    ("join", "worker"): Reached(388, 84),
}


@pytest.mark.alone  # on a busy machine more is done at intervals
def test_a_task_and_a_join_need_no_more_of_the_source_than_before() -> None:
    found = measured()
    print(found)
    for (what, role), ceiling in CEILINGS.items():
        least = found[what][role]
        assert (least.functions <= ceiling.functions, least.files <= ceiling.files) == (True, True), (what, role)
