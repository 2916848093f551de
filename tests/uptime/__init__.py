"""Planned uptime: the four plans, the weekly calendar against a brute-force clock, the broker's file, the alarm."""
