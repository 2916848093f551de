"""The architecture: which folder may import which, which code reads no clock, what ``import deskgrid`` loads."""
