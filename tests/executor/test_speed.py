"""How fast one process runs no-op tasks: the rate is printed (``pytest -s``), and only a disaster fails the test."""

import time

from tests.executor.rig import Rig, call, python_template

BATCH = 200
BATCHES = 50
# Tasks per second; one process of a two-core machine of 2024 does more than 100,000.
DISASTER = 2_000


def test_tasks_that_do_nothing_cost_little(rig: Rig) -> None:
    digest, nothing = rig.know(python_template(lambda: None)), call()
    rig.pid()
    start = time.perf_counter()
    for _ in range(BATCHES):
        rig.executor.run(0, rig.jobs(digest, *[nothing] * BATCH))
        left = BATCH
        while left:
            rig.woken.wait(10)
            left -= len(rig.poll())
        rig.ended.clear()
    rate = BATCH * BATCHES / (time.perf_counter() - start)
    print(f"\n{rate:,.0f} no-op tasks/s through one process, in batches of {BATCH}")
    assert rate > DISASTER
