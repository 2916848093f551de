"""When will it be done: work against the windows that are open and announced, as if it were a fluid.

An estimate, and on the early side: tasks cannot be cut, so the last pieces of windows go unused. It takes the plans and
the predictions at their word.
"""

import math

from scheduler.core import Scheduler
from scheduler.fluid import done_at


class Capacity:
    """Slots over time, from ``now`` on; built once for any number of questions."""

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        spans: list[tuple[float, float, int]] = []
        for worker in scheduler.slots.workers.values():
            slots = len(worker.slots)
            spans.append((0.0, worker.uptime(now), slots))
            spans += [(w.opens - now, w.closes - now, slots) for w in worker.windows if w.opens > now]
        for away in scheduler.away.values():
            spans += [(max(0.0, w.opens - now), w.closes - now, away.slots) for w in away.windows if w.closes > now]
        self._spans = spans
        self._steps: list[tuple[float, int]] | None = None

    def time_to_do(self, work_s: float, longest_s: float) -> float | None:
        """Seconds until ``work_s`` slot seconds have passed, with a task of ``longest_s`` among them; None: never."""
        fits = [start + longest_s for start, end, _ in self._spans if end - start > longest_s]
        if not fits:
            return None
        self._steps = self._steps or self._sorted_steps()
        soonest = max(min(fits), done_at(self._steps, work_s))
        return None if math.isinf(soonest) else soonest

    def _sorted_steps(self) -> list[tuple[float, int]]:
        opens = [(start, slots) for start, _, slots in self._spans]
        closes = [(end, -slots) for _, end, slots in self._spans if end < math.inf]
        return sorted([*opens, *closes])
