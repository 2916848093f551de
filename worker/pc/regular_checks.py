"""Looks from time to time what is not well on this PC, in a thread: programs and name servers may take a while."""

import threading
from collections.abc import Callable, Iterable

from deskgrid import wire
from deskgrid.worker.pc.checks import Finding

# Seconds between two looks; and after a look that was due while the broker was away, which would only say that.
LOOK_S, AGAIN_S = 3600.0, 60.0
# How long the end of the worker waits for a look. Seconds.
END_S = 0.5


class RegularChecks:
    """``look``: makes all checks. ``has_broker``: whether the broker knows this worker now."""

    def __init__(self, look: Callable[[], Iterable[Finding]], has_broker: Callable[[], bool]) -> None:
        self._look = look
        self._has_broker = has_broker
        # What is not well, as of the last look; None before the first.
        self.found: tuple[wire.Finding, ...] | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deskgrid-checks", daemon=True)

    def begin(self) -> None:
        """Look for the first time, unless that was done."""
        if not self._thread.ident:
            self._thread.start()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._ending.wait(wait_s):
            wait_s = AGAIN_S
            if self._has_broker():
                self.found, wait_s = not_well(self._look), LOOK_S

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        if self._thread.ident:
            self._thread.join(END_S)


def not_well(look: Callable[[], Iterable[Finding]]) -> tuple[wire.Finding, ...]:
    """Make all checks, and return what is not well, as it is told to the broker; first what there is to do."""
    try:
        found = [each for each in look() if each.state != "well"]
    except Exception as error:  # of a system that answers as no other: the worker goes on
        found = [Finding("checks", "do", f"they failed: {type(error).__name__}: {error}")]
    found.sort(key=lambda each: each.state != "do")
    return tuple(
        wire.Finding(each.what, each.state == "do", wire.cut(each.said, wire.LINE_BYTES))
        for each in found[: wire.FINDINGS_LIMIT]
    )
