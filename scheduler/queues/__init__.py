"""Waiting tasks, indexed by runtime."""
