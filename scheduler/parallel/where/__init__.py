"""Where a job starts."""
