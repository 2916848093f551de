"""How much of a long proof is tried, and counts of it for the end of the output."""

import os
from collections.abc import Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

COUNTS: list[str] = []


def everything() -> bool:
    """Whether all of each proof was asked for: ``PROOFS=all``, as `make soak` does."""
    return os.environ.get("PROOFS") == "all"


def tried(cases: Sequence[ItemT], one_in: int) -> Sequence[ItemT]:
    """The cases to try: one in so many, the same each time, or all of them."""
    return cases if everything() else cases[::one_in]
