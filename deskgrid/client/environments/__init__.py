"""Environments of bags: what is asked for, resolved to wheels for each sort of PC, and kept for the next time.

`asked` reads what users write; `mine` finds what a program uses; `resolve` has pip or uv choose wheels; `store` keeps
these; `made` puts an environment together. Nothing here is imported unless a bag has an environment.
"""
