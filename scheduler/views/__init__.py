"""What the scheduler shows: the snapshot, why a task waits, when a bag will be done."""
