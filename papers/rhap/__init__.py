"""RHAP: how many ranks moldable jobs get on unequal PCs that others use, too (A. Chhabra, G. Singh)."""
