"""The owner of a PC comes first: whether somebody uses it, and what becomes of its tasks meanwhile."""
