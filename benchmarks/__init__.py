"""Benchmark: deskgrid compared with its peers on one machine. This package is not installed."""
