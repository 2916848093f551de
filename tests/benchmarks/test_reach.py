"""How much of the source runs for one no-op task, and for a worker that joins: it is to become less, and never more."""

import pytest

from benchmarks.reach import Reached, measured

# What was measured, and a few more for what is done at intervals. Who needs less lowers the ceiling.
TASK, JOIN_BROKER, JOIN_WORKER = Reached(820, 170), Reached(300, 80), Reached(460, 95)


@pytest.mark.slow
def test_a_task_and_a_join_need_no_more_of_the_source_than_before() -> None:
    found = measured()
    print(found)
    for least, ceiling in (
        (found["task"]["all"], TASK),
        (found["join"]["broker"], JOIN_BROKER),
        (found["join"]["worker"], JOIN_WORKER),
    ):
        assert least.functions <= ceiling.functions
        assert least.files <= ceiling.files
