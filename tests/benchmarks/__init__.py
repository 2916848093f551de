"""The benchmark measures what it claims to measure; here with sizes that take seconds."""
