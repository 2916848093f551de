"""Gangs on sites: a scenario of one's own, simulated or on real workers, and whether both agree."""
