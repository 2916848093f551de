"""When a parallel task has waited for too long: then it comes first, and slots are kept for it whatever is late.

Rule 1: a job is overdue when it has waited for five times its runtime, and for ten minutes at least. Where some jobs
overtake others, the one that is overdue the longest comes before all that are not (`most_overdue`). So nothing that
comes later delays it.
Rule 2: if much is overdue, the grid has too much to do, and whoever came first would have to wait for as long as in the
order of arrival. So the next one comes first only when those before it have less than a quarter of the slots.
Rule 3: while an overdue job waits for work that is late by at most half as long as the job is overdue, that work may
end at any moment (`tolerance`). Otherwise others would always seem to end before that, and be late, too.
"""

from collections.abc import Iterable, Sequence

from deskgrid.scheduler.parallel.base import Job, Site

# A job is overdue when it has waited for so many times its runtime on its fewest ranks, and for so many seconds.
PATIENCE = 5.0
LEAST_S = 600.0
# The part of all slots that jobs have that were overdue when they began, before the next one comes first.
PART = 0.25


def overdue_at(job: Job) -> float:
    """When it is overdue."""
    return job.arrived + max(LEAST_S, PATIENCE * job.need.seconds(job.runtime, job.need.least))


def most_overdue(jobs: Iterable[Job], sites: Sequence[Site], now: float) -> Job | None:
    """The job that comes first because it is overdue, if there is one."""
    job = min(jobs, key=overdue_at, default=None)
    if job is None or (since := overdue_at(job)) > now:
        return None
    before = [
        running.size * running.job.need.slots
        for site in sites
        for running in site.running
        if overdue_at(running.job) <= min(since, running.started)
    ]
    return job if sum(before) < PART * sum([site.slots for site in sites]) else None


def tolerance(job: Job, now: float) -> float:
    """By how many seconds work may be late that is expected to end at any moment while the job waits for it."""
    return max(0.0, (now - overdue_at(job)) / 2.0)
