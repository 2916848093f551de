"""Runtimes are learned from what tasks took."""
