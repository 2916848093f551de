"""The failure of a task that was given up because it crashed: its last error, and all the PCs where it crashed."""

from collections.abc import Sequence
from dataclasses import replace

from deskgrid.wire import Payload, read_failure


def with_crash_sites(payload: Payload, places: Sequence[str]) -> bytes:
    """The failure in ``payload`` with the names of the workers added."""
    failure = read_failure(payload)
    where = f"(crashed {len(places)} times, on {', '.join(places)})"
    return replace(failure, message=f"{failure.message} {where}").packed()
