"""Which job is next."""
