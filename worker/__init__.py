"""The agent on one PC: its planned uptime, its slots, the processes that run tasks."""
