"""Bytes that nobody should send: to the codec by the million, and floods of them to a real port."""
