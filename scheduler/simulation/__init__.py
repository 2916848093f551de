"""The virtual-clock driver, and when its PCs are there."""
