"""For how long a parallel task waits patiently. Then it comes first, and slots are kept for it whatever is late.

Rule 1: its patience lasts for five times its runtime, and for ten minutes at least. Where some jobs overtake others,
the one whose patience ended first comes before all that are patient (`least_patient`). So nothing that comes later
delays it.
Rule 2: if the patience of many has ended, the grid has too much to do, and whoever came first would have to wait for as
long as in the order of arrival. So the next one comes first only when those before it have less than a quarter of the
slots.
Rule 3: while such a job waits for work that is late by at most half the time since its patience ended, that work may
end at any moment (`tolerance`). Otherwise others would always seem to end before that, and be late, too.
"""

from collections.abc import Iterable, Sequence

from deskgrid.scheduler.parallel.base import ParallelJob, Site

# A job is patient for so many times its runtime on its fewest ranks, and for so many seconds at least.
PATIENCE = 5.0
LEAST_S = 600.0
# The part of all slots that jobs have whose patience had ended when they began, before the next one comes first.
PART = 0.25


def patience_ends(job: ParallelJob) -> float:
    """When its patience ends."""
    return job.arrived + max(LEAST_S, PATIENCE * job.need.seconds(job.runtime, job.need.least))


def least_patient(jobs: Iterable[ParallelJob], sites: Sequence[Site], now: float) -> ParallelJob | None:
    """The job that comes first because its patience ended first, if there is one."""
    job = min(jobs, key=patience_ends, default=None)
    if job is None or (since := patience_ends(job)) > now:
        return None
    before = [
        running.size * running.job.need.slots
        for site in sites
        for running in site.running
        if patience_ends(running.job) <= min(since, running.started)
    ]
    return job if sum(before) < PART * sum([site.slots for site in sites]) else None


def tolerance(job: ParallelJob, now: float) -> float:
    """By how many seconds work may be late that is expected to end at any moment while the job waits for it."""
    return max(0.0, (now - patience_ends(job)) / 2.0)
