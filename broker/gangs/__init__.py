"""Parallel tasks at the broker: how their attempts begin, meet, speak PMI-1, and end."""
