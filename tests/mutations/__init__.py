"""Faults put into the code on purpose: the virtual network has to find each of them."""
