"""What a program gives as a value, checked where it gives it: an error names the value, and says what it takes."""

from collections.abc import Iterable
from typing import Any

from deskgrid.errors import BagRejected


def check(what: str, value: object, kind: type | tuple[type, ...], takes: str, error: Any = BagRejected) -> None:
    """Refuse ``value`` unless it is of ``kind``. ``what``: its name; ``takes``: what it has to be."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise error(f"{what} is {takes}, not {value!r:.80}")


def check_iterable(what: str, value: object, takes: str, error: Any = BagRejected) -> None:
    """Refuse ``value`` if nothing can go through it; its own code does not run."""
    if not isinstance(value, Iterable) and not hasattr(type(value), "__getitem__"):
        raise error(f"{what} is {takes}, not {value!r:.80}")


def check_list(what: str, value: object, takes: str) -> None:
    """Refuse ``value`` unless it is a collection, and not one text."""
    check_iterable(what, value, takes)
    if isinstance(value, str | bytes):
        raise BagRejected(f"{what} is {takes}, not {value!r:.80}")


def texts(what: str, value: Any, takes: str) -> tuple[str, ...]:
    """Return ``value``, a collection of texts; refuse anything else."""
    check_list(what, value, takes)
    found = tuple(value)
    if not all(isinstance(each, str) for each in found):
        raise BagRejected(f"{what} is {takes}, not {value!r:.80}")
    return found
