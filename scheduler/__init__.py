"""Decisions, and nothing else: no clock, no socket, no file, no thread, no unseeded random number."""
