"""Malformed messages: millions of them to the codec, and floods of them to a real port."""
