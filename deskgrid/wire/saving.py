"""How long before the end of a window a checkpointable task saves; the broker and the workers count with the same time.

All times are seconds.
"""

# Saving and sending may take twice as long as the last time, and a bit more. Nobody loses more than LEAD_MOST_S of a
# window by that.
LEAD_LEAST_S = 10.0
LEAD_MOST_S = 120.0
_MORE_S = 5.0
# What saving and sending a checkpoint costs before it was measured.
FIRST_COST_S = 1.0
# What beginning a piece takes, beside loading its checkpoint.
_BEGIN_S = 1.0


def lead_s(cost: float) -> float:
    """How long before its window closes a piece ends. ``cost``: how long saving and sending took the last time."""
    return min(max(2.0 * cost + _MORE_S, LEAD_LEAST_S), LEAD_MOST_S)


def reserve_s(cost: float) -> float:
    """What a slot must have left for a piece, beside the time in which the task works: to begin, to load, to save."""
    return _BEGIN_S + min(cost, LEAD_MOST_S) + lead_s(cost)
