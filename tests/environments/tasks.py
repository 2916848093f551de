"""Tasks that need libraries, in a module that tests nothing."""

from collections.abc import Callable
from typing import Any


def measured(item: int) -> Any:
    """Use libraries that this machine does not have."""
    import alpha  # type: ignore[import-not-found]
    import labtools  # type: ignore[import-not-found]

    return item * labtools.METRE, alpha.VERSION


def by_value() -> Callable[[int], Any]:
    """Return the same as a function that travels by value."""

    def here(item: int) -> Any:
        return measured(item)

    return here


def total(size: int) -> int:
    """Use numpy, which "mine" finds."""
    import numpy as np

    return int(np.ones(size).sum())
