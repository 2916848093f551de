"""Gangs on sites: scenarios of one's own, simulated and live."""
