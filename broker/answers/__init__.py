"""Answers to questions: what is there, when it ends, and why it waits."""
