"""What the scheduler knows of tasks, of workers, and of how far either can be trusted."""
