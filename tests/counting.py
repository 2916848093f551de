"""What was tried, for the end of the output: tests that try many things say how many there were."""

COUNTS: list[str] = []
