"""The worker as a whole: the agent against a real broker, its tasks in real processes."""
