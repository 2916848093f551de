"""Parallel tasks: what they need, what a policy for them reads and decides, and the choices that it is made of."""
