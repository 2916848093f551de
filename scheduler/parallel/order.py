"""Which parallel task is next: in the order of their arrival, with or without gaps filled, or the shortest first."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from deskgrid.scheduler.parallel.base import ParallelJob


class FirstCome:
    """First come, first served: while the head waits, all wait."""

    backfills = False
    overtakes = False

    def order(self, waiting: Sequence[ParallelJob], now: float) -> list[ParallelJob]:
        """As they came."""
        return list(waiting)


class Easy(FirstCome):
    """EASY backfilling (Lifka 1995): a job may overtake others if it does not delay the first of those that wait."""

    backfills = True


# A job counts as this power of its ranks times longer: it keeps others from more PCs.
WIDTH = 0.3
# Each second that it waits counts as so many seconds less. So a job of an hour is overtaken by no shorter one that
# comes 20 hours after it.
RISE = 0.05


class Shortest:
    """The shortest first, so that few wait for long ones; who waits rises. Others may fill gaps, as with `Easy`.

    Of jobs that came together, which are one piece of work to somebody, the largest is first: the last of them ends
    sooner, and windows that are long enough for it are not spent on others.
    """

    backfills = True
    overtakes = True

    def order(self, waiting: Sequence[ParallelJob], now: float) -> list[ParallelJob]:
        """The least work first; of those that came together, the most."""
        together: defaultdict[float, list[ParallelJob]] = defaultdict(list)
        for job in waiting:
            together[job.arrived].append(job)
        ranked = []
        for arrived, jobs in together.items():
            rise = RISE * (now - arrived)
            if len(jobs) > 1:
                jobs.sort(key=work, reverse=True)
            ranked.append((fmean(map(work, jobs)) - rise, arrived, jobs))
        ranked.sort(key=_turn)
        return [job for *_, jobs in ranked for job in jobs]


def work(job: ParallelJob) -> float:
    """How long it takes with the fewest ranks, in seconds that count more the more ranks it needs."""
    need = job.need
    return need.seconds(job.runtime, need.least) * math.pow(need.least * need.slots, WIDTH)


def _turn(batch: tuple[float, float, list[ParallelJob]]) -> tuple[float, float]:
    return batch[:2]
