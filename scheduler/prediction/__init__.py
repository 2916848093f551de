"""How long a task will take, learned from the tasks that have ended."""
