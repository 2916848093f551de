"""The processes that run tasks."""
