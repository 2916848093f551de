"""Peers that are let in, or are not, and mean harm, against a real broker with honest people beside them."""
