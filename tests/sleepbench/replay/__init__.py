"""What a broker's own journal is made into, and what other policies make of it."""
