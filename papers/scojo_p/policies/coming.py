"""Which jobs are still to come, by what has come at the same time of day (SCOJO-P, Sections 4.2 and 5.2).

A day has 48 intervals. Each class of jobs has the number that arrives in each of them, a mean over the days seen, and
means of what one job asks for. Days begin with the clock's own zero: what matters is that they repeat.
"""

from dataclasses import dataclass, field

from deskgrid.scheduler.parallel.base import ParallelJob
from deskgrid.scheduler.parallel.sizes import working_set

INTERVALS = 48
INTERVAL_S = 1800.0
DAY_S = INTERVALS * INTERVAL_S

# The sizes of which runtimes are remembered, as factors of the size that suits a job; between them it is interpolated.
FACTORS = (0.5, 1.0, 2.0)


@dataclass(slots=True)
class _Class:
    """Sums over the jobs of one class that were seen: how many in each interval, and by factor: sizes, seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * INTERVALS)
    seen: int = 0
    sizes: list[float] = field(default_factory=lambda: [0.0] * len(FACTORS))
    seconds: list[float] = field(default_factory=lambda: [0.0] * len(FACTORS))

    def mean(self, sums: list[float], factor: float) -> float:
        """The mean at ``factor``, linear between `FACTORS`, and the same beyond them."""
        if factor <= FACTORS[0]:
            return sums[0] / self.seen
        if factor >= FACTORS[2]:
            return sums[2] / self.seen
        low = 0 if factor < FACTORS[1] else 1
        part = (factor - FACTORS[low]) / (FACTORS[low + 1] - FACTORS[low])
        return (sums[low] + part * (sums[low + 1] - sums[low])) / self.seen


class ArrivalRates:
    """What was seen, by class. ``since``: when it was first looked at."""

    def __init__(self, classes: int) -> None:
        self._classes = [_Class() for _ in range(classes)]
        self._since: float | None = None
        self._days = 1.0

    def note(self, job: ParallelJob, number: int) -> None:
        """A job of class ``number`` has come."""
        at = job.arrived
        self._since = at if self._since is None else self._since
        self._days = max(1.0, (at - self._since) / DAY_S)
        known = self._classes[number]
        known.seen += 1
        known.counts[int(at % DAY_S // INTERVAL_S)] += 1
        need, suits = job.need, working_set(job.need)
        for place, factor in enumerate(FACTORS):
            size = min(need.most, max(need.least, round(factor * suits)))
            known.sizes[place] += size
            known.seconds[place] += need.seconds(job.runtime, size)

    def work(self, now: float, seconds: float, factor: float) -> float:
        """Slot-seconds within the next ``seconds`` of jobs to come, as in Fig. 1, if all have ``factor`` of what suits.

        Each is counted as if it came at the beginning: as long as it runs, but no longer than ``seconds``.
        """
        total = 0.0
        for known in self._classes:
            if known.seen:
                size, lasts = known.mean(known.sizes, factor), known.mean(known.seconds, factor)
                total += self._expected(known, now, seconds) * size * min(lasts, seconds)
        return total

    def _expected(self, known: _Class, now: float, seconds: float) -> float:
        """How many jobs come within the next ``seconds``."""
        days, rest = divmod(seconds, DAY_S)
        found = days * known.seen
        at = now % DAY_S
        while rest > 0.0:
            interval = int(at // INTERVAL_S) % INTERVALS
            part = min(rest, INTERVAL_S - at % INTERVAL_S)
            found += known.counts[interval] * part / INTERVAL_S
            rest -= part
            at += part
        return found / self._days
