"""How many ranks a job gets."""
