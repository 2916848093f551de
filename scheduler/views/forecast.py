"""When a bag will be done, by its total work and the open and announced windows.

The estimate is on the early side: it treats work as if it could be cut into any pieces, but tasks cannot be cut, so the
last pieces of windows go unused. It assumes that plans and predictions hold.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from deskgrid.scheduler.state.slots import Away, Worker

# When a window opens and closes, in seconds from now on, and its number of slots.
Span = tuple[float, float, int]


def spans_of_worker(worker: Worker, now: float) -> Iterator[Span]:
    """The open and the announced windows of a worker that is up."""
    slots = len(worker.slots)
    yield 0.0, worker.uptime(now), slots
    for window in worker.windows:
        if window.opens > now:
            yield window.opens - now, window.closes - now, slots


def spans_of_away(away: Away, now: float) -> Iterator[Span]:
    """The announced windows of a worker that is away. Windows that have closed meanwhile end before they open."""
    for window in away.windows:
        yield max(0.0, window.opens - now), window.closes - now, away.slots


class Capacity:
    """Slots over time, from now on. It is built once; after that, each question costs next to nothing."""

    def __init__(self) -> None:
        # Lengths of windows (negated), the longest first; and when the first window of at least that length opens.
        self._lengths: list[float] = []
        self._opens: list[float] = []
        # Times at which the number of slots changes; the slots from then on, and the work that is done by then.
        self._times: list[float] = []
        self._slots: list[int] = []
        self._done = [0.0]

    def build(self, spans: Iterable[Span]) -> Iterator[int]:
        """Take these windows, in pieces. After each piece, yields how many windows there are."""
        spans = [span for span in spans if span[1] > span[0]]  # the others have closed
        by_length = sorted([(start - end, start) for start, end, _ in spans])
        self._lengths = [length for length, _ in by_length]
        self._opens = list(accumulate([start for _, start in by_length], min))
        yield len(spans)
        steps = sorted([(start, slots) for start, _, slots in spans] + [(e, -n) for _, e, n in spans if e < math.inf])
        yield len(spans)
        self._times = [time for time, _ in steps]
        self._slots = list(accumulate([change for _, change in steps]))
        for (before, after), slots in zip(pairwise(self._times), self._slots, strict=False):
            self._done.append(self._done[-1] + slots * (after - before))
        yield len(spans)

    @property
    def longest_s(self) -> float:
        """The longest window; 0.0 if there is none."""
        return -self._lengths[0] if self._lengths else 0.0

    def holds(self, seconds: float) -> bool:
        """Whether some window is longer than ``seconds``."""
        return self.longest_s > seconds

    def time_to_do(self, work_s: float, longest_s: float, takes_s: float) -> float | None:
        """Seconds until ``work_s`` slot seconds have passed; None: never.

        Among them is a task that needs a window of ``longest_s``, and then takes ``takes_s`` of it.
        """
        if not self.holds(longest_s):
            return None
        fits = self._opens[bisect_left(self._lengths, -longest_s) - 1] + takes_s
        place = max(0, bisect_left(self._done, work_s) - 1)
        if not self._slots[place]:
            return None
        return max(fits, self._times[place] + (work_s - self._done[place]) / self._slots[place])
