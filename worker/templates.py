"""The templates of tasks, fetched from the broker when the first task of a bag is about to run."""

from typing import Protocol

from deskgrid import wire
from deskgrid.worker.run.jobs import NoRoomError, TemplateError


class Learns(Protocol):
    """What knows templates."""

    def know(self, digest: str, blob: bytes) -> None: ...
    def knows(self, digest: str) -> bool: ...


class Templates:
    """Those that were asked for, and those that cannot be used here."""

    def __init__(self, runs: Learns) -> None:
        self._runs = runs
        self._fetching: set[str] = set()
        # Why they cannot be used.
        self._broken: dict[str, TemplateError] = {}

    def learn(self, blob: wire.Blob) -> None:
        """A template came."""
        self._fetching.discard(blob.digest)
        try:
            self._runs.know(blob.digest, bytes(blob.data))
        except Exception as error:  # any error is the bag's problem, not this worker's
            self._broken[blob.digest] = error if isinstance(error, TemplateError) else TemplateError(repr(error))

    def missing(self, digest: str) -> list[wire.Message] | None:
        """What to say before a template can be used: it is asked for once. None: it is here, or is broken."""
        if digest in self._broken or self._runs.knows(digest):
            return None
        if digest in self._fetching:
            return []
        self._fetching.add(digest)
        return [wire.Fetch(digest)]

    def failure(self, digest: str) -> tuple[wire.Outcome, str, str] | None:
        """How an attempt ends whose template cannot be used: outcome, type and message; None: it can be used.

        If this PC is to blame, the next attempt fetches it again.
        """
        error = self._broken.get(digest)
        if error is None:
            return None
        if isinstance(error, NoRoomError):
            del self._broken[digest]
            return wire.Outcome.NO_ROOM, "NoRoom", str(error)
        return wire.Outcome.ERROR, "TemplateError", str(error)

    def reconnected(self) -> None:
        """Requests or answers may have been lost with the last connection."""
        self._fetching.clear()
