"""A task that has failed is tried again: elsewhere, if another worker could take it.

Rule 1: a task that fails again and again pauses before its next attempt, longer each time. Without pauses, a few tasks
that fail at once and have very many retries would keep all others out until their retries ran out.
Rule 2: for another worker, it waits in its category (`deskgrid.scheduler.placing.first`), for at most `WAITS_S` at
a time and `MOST_S` in all, and only while there is such a worker. Then it may go anywhere.
"""

from collections.abc import Collection
from itertools import islice

from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.model import State
from deskgrid.scheduler.policies.base import least_required
from deskgrid.scheduler.state.avoided import FIRST_REST_S, LONGEST_REST_S
from deskgrid.scheduler.state.grid import SchedulerState
from deskgrid.scheduler.state.suitable import could
from deskgrid.scheduler.state.timers import Backoff, Timer

# After each of its first errors, up to this many, a task is tried again at once: it may well work the next time.
AT_ONCE = 3
# The pause after the next error lasts as long as the failed attempt, but at least LEAST_PAUSE_S. The limit is
# MOST_PAUSE_S, or the duration of the attempt if that is longer.
LEAST_PAUSE_S = 1.0
MOST_PAUSE_S = 3600.0
# How long a task waits before it is looked at whether there still is another worker, and how long in all: as long as a
# worker may rest from its bag. Seconds.
WAITS_S, MOST_S = FIRST_REST_S, LONGEST_REST_S
# Workers that are looked at: enough if only few are unlike the others, and a millisecond at most.
WORKERS = 500


def pause_after(errors: int, elapsed: float) -> float:
    """The pause, in seconds, of a task that has failed ``errors`` times, the last time after ``elapsed``."""
    if errors <= AT_ONCE:
        return 0.0
    return Backoff(max(LEAST_PAUSE_S, elapsed), max(MOST_PAUSE_S, elapsed)).nth(errors - AT_ONCE)


def others_could(grid: SchedulerState, task: int, but: Collection[str]) -> bool:
    """Whether a worker is up that could take ``task``, is not one of these, and gets work."""
    batch, requirement = grid.tasks.known(task), least_required(grid.policy)
    key, needs = batch.bag.category.key, requirement.needs(batch.runtime(task)) if grid.policy.timed else 0.0
    return any(
        worker.name not in but
        and not grid.shut(worker)
        and fits(needs, max(worker.ends_at - grid.now, worker.windows.longest_s) * worker.speed)
        and could(grid, worker, key)
        for worker in islice(grid.slots.workers.values(), WORKERS)
    )


def try_again(grid: SchedulerState, task: int, now: float, since: float | None = None) -> None:
    """``task``, which is in no queue, is tried again: elsewhere, if another worker could take it.

    ``since``: when it began to wait for that, if it has.
    """
    bag = grid.tasks.known(task).bag
    category, since = bag.category, now if since is None else since
    single = bag.piece is None and not category.parallel
    if (
        single
        and not bag.barred
        and now - since < MOST_S
        and (failed_on := grid.tasks.failed_on(task))
        and others_could(grid, task, failed_on)
    ):
        grid.tasks.move(task, State.PAUSED)
        grid.timers.set(Timer.PAUSE, task, now + WAITS_S)
        category.elsewhere[task] = since
        grid.categories.waiting[category.key] = category
        grid.changes += 1
    else:
        grid.to_priority([task])


def pause_over(grid: SchedulerState, task: int, now: float) -> None:
    """The pause of a task is over."""
    try_again(grid, task, now, grid.tasks.known(task).bag.category.elsewhere.pop(task, None))
