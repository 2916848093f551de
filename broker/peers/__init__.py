"""The conversations with workers and clients."""
