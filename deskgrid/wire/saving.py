"""What the broker and the workers both know of the end of a window.

How long before it a checkpointable task saves; and how a worker says that it is over, and only what runs may end.

All times are seconds.
"""

# A worker that announces no more of its window than this takes nothing new: its window is over, and the tasks that run
# end within the grace of its plan.
ENDING_S = 1e-3
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
