"""Stored files on a PC: the cache, the folders of tasks, and the transfers from and to the broker."""
