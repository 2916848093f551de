"""Counts of what was tried, for the end of the output: tests with many cases report how many there were."""

COUNTS: list[str] = []
