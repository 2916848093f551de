"""Policies for parallel tasks, played without the core."""
