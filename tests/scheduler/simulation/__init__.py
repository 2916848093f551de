"""Simulated runs with gangs: when they begin and end, on PCs that are unequal and that others use."""
