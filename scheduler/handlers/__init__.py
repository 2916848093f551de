"""What events do to the state: one module for each subject. None of them places a task."""
