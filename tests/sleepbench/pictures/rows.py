"""Rows by hand, as few fields as a picture needs."""

from deskgrid.sleepbench.scenarios import Row


def row(scenario: int, policy: str, makespan_min: float, *, run: int = 1, kills: int = 0, wasted_s: float = 0.0) -> Row:
    """One run, above the bound of the paper's scenarios."""
    return Row(scenario, policy, run, run, makespan_min, 60.25, None, 240, kills, kills, wasted_s, 0.0)


# Two runs of three policies in two scenarios. Means of scenario 3: 86, 120, 63.5.
ROWS = [
    row(scenario, policy, minutes + extra, run=run, kills=kills, wasted_s=60.0 * kills)
    for scenario, policy, minutes, kills in (
        (0, "pgs", 63.0, 0),
        (0, "fcfs", 63.0, 0),
        (0, "packing", 60.3, 0),
        (3, "pgs", 85.0, 0),
        (3, "fcfs", 119.0, 250),
        (3, "packing", 62.5, 2),
    )
    for run, extra in ((1, 0.0), (2, 2.0))
]
