"""What is said of a task that is given up because it crashes: to its last words, all the PCs on which it did."""

from collections.abc import Sequence
from dataclasses import replace

from deskgrid.wire import Payload, read_failure


def with_places(payload: Payload, places: Sequence[str]) -> bytes:
    """The account of a crash with the workers named."""
    failure = read_failure(payload)
    where = f"(crashed {len(places)} times, on {', '.join(places)})"
    return replace(failure, message=f"{failure.message} {where}").packed()
