"""Bytes that nobody should send: to the codec by the million, and to a real port."""
