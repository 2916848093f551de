"""The grid is run forward from a picture of it."""
