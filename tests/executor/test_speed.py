"""How fast one process runs no-op tasks: the rate is printed (``pytest -s``), and only a disaster fails the test."""

import time

import pytest

from tests.executor.rig import Rig, call, python_template
from tests.pace import pace

BATCH = 200
BATCHES = 50
# Beats for a task. A process does it in less than a hundredth of a beat.
DISASTER = 0.25


@pytest.mark.alone
def test_tasks_that_do_nothing_cost_little(rig: Rig) -> None:
    digest, nothing = rig.know(python_template(lambda: None)), call()
    rig.pid()
    before = pace()
    start = time.perf_counter()
    for _ in range(BATCHES):
        rig.executor.run(0, rig.jobs(digest, *[nothing] * BATCH))
        left = BATCH
        while left:
            rig.woken.wait(10)
            left -= len(rig.poll())
        rig.ended.clear()
    seconds = (time.perf_counter() - start) / (BATCH * BATCHES)
    print(f"\n{1 / seconds:,.0f} no-op tasks/s through one process, in batches of {BATCH}")
    assert seconds < DISASTER * max(before, pace())
