"""When Python looks for garbage in cycles: while nobody waits.

A full collection looks at every object of the broker, which takes 90 ms with 10,000 bags. Young objects are looked at
as usual, and nearly all garbage is among them.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# A full collection is due so long after the last one, and is done when nothing but heartbeats has come for a while. It
# is done anyway when it is overdue, or when so many partial ones have left young objects: of about 7,000 each. Seconds.
DUE_S = 60.0
OVERDUE_S = 900.0
OVERDUE_PARTIAL = 150
# Python begins a full collection after so many partial ones: never.
_NEVER = 2**31 - 1


class Garbage:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._collected_at = 0.0

    @contextmanager
    def full_collections_deferred(self) -> Iterator[None]:
        """Keep Python from full collections in the meantime."""
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], _NEVER)
        try:
            yield
        finally:
            gc.set_threshold(*before)

    def collect(self, now: float, *, idle: bool) -> None:
        """Collect all garbage, if it is time; ``idle``: nobody waits."""
        overdue = gc.get_count()[2] >= OVERDUE_PARTIAL
        if overdue or now >= self._collected_at + (DUE_S if idle else OVERDUE_S):
            gc.collect()
            self._collected_at = now
