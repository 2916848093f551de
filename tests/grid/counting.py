"""What the sweeps tried, for the end of the output."""

COUNTS: list[str] = []
