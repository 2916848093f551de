"""Papers on parallel tasks, repeated in virtual time."""
