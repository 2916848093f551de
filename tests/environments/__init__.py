"""Environments: from what a program asks for to what its tasks import."""
