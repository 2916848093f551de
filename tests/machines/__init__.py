"""Machines as Debian ships them, on which the demo and the quick tests are run (``make machines``)."""
