"""The benchmark measures what it says, in a size that takes seconds."""
