"""Hostile peers, with and without a valid key, against a real broker, with honest clients beside them."""
