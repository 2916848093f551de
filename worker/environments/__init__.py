"""Environments on a PC: the store of unpacked wheels, and the folders that are made of them."""
