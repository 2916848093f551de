"""Benchmark: deskgrid and its peers, measured beside each other on one machine. Nothing of it is installed."""
