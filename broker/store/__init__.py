"""What the broker remembers on disk: the journal, large values beside it, and whether both are whole."""
