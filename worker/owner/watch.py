"""Asks all probes of this PC, in a thread of its own: a window system that hangs must not hold up the worker.

Rule 1: whoever is logged in at the screen has a keyboard. If nothing tells when it was used last, nobody can tell.
Rule 2: a helper that has fallen silent (`deskgrid.worker.owner.helper`) is such a keyboard, as long as its user has
processes here.
"""

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from deskgrid.durations import duration
from deskgrid.worker.owner.helper import PresenceHelpers
from deskgrid.worker.owner.other_systems import macos_idle_s, windows_idle_s
from deskgrid.worker.owner.policy import Presence
from deskgrid.worker.owner.probes import Seat, Terminals, on_battery
from deskgrid.worker.owner.x11 import X11, NoX11

# How often probes are asked; those that change seldom; and for how long an answer holds if none follows. Seconds.
SAMPLE_S, SELDOM_S, HOLDS_S = 0.5, 5.0, 10.0
# The share of the processors that others use before that counts as use, and below which it does not any more.
LOADED, CALM = 0.5, 0.3


class Probes:
    """All that tells on this PC. ``helpers``: what the sessions of users say; None: they cannot here."""

    def __init__(self, helpers: PresenceHelpers | None = None) -> None:
        self._helpers = helpers
        self._terminals = Terminals()
        self._seat = Seat()
        self._x11 = X11(os.environ)
        self._somebody: bool | None = None
        self._battery = False
        self._seldom_at = -inf
        # What each said last, for people.
        self.said: dict[str, str] = {}

    def ask(self, now: float) -> Presence:
        """Ask all of them. ``now``: monotonic seconds."""
        if now - self._seldom_at >= SELDOM_S:
            self._seldom_at = now
            self._somebody, self._battery = self._seat.somebody(), on_battery()
            self.said["logind"] = _SEAT[self._somebody]
            self.said["battery"] = "in use" if self._battery else "not in use"
        keyboards = [*self._keyboards(now)]
        typed = self._terminals.idle_s(now) if sys.platform != "win32" else None
        self._note("terminals", typed, "there are none")
        busy = "it runs on its battery" if self._battery else ""
        return combined(keyboards, typed, self._somebody, busy)

    def _keyboards(self, now: float) -> Iterable[float | None]:
        """Yield how long each keyboard has been idle; None: it has fallen silent."""
        if sys.platform == "win32":
            import ctypes

            yield from self._known("Windows", windows_idle_s(ctypes.windll.user32, ctypes.windll.kernel32))
        elif sys.platform == "darwin":
            if now == self._seldom_at:  # it is a program
                self._of_mac = macos_idle_s()
            yield from self._known("ioreg", self._of_mac)
        else:
            try:
                yield from self._known("X11", self._x11.idle_s())
            except NoX11 as error:
                self.said["X11"] = str(error)
        for name, idle_s in () if self._helpers is None else self._helpers.idle_s(now):
            self._note(name, idle_s, "has fallen silent")
            yield idle_s

    def _known(self, name: str, idle_s: float | None) -> Iterable[float]:
        self._note(name, idle_s, "does not say")
        return () if idle_s is None else (idle_s,)

    def _note(self, name: str, idle_s: float | None, otherwise: str) -> None:
        self.said[name] = otherwise if idle_s is None else f"idle for {duration(idle_s)}"

    def close(self) -> None:
        self._x11.close()
        if self._helpers is not None:
            self._helpers.close()


_SEAT = {None: "is not here", True: "somebody is logged in at the screen", False: "nobody is logged in at the screen"}


def combined(
    keyboards: Sequence[float | None], typed_s: float | None, somebody: bool | None, busy: str = ""
) -> Presence:
    """What the probes say together. ``keyboards``: seconds without input of each that is known; None: it is silent.

    ``typed_s``: seconds since something was typed on a terminal. ``somebody``: whether anybody is logged in.
    """
    seated = bool(keyboards) or bool(somebody)
    if None in keyboards or (somebody and not keyboards):
        return Presence(None, busy, seated)
    known = [seconds for seconds in (*keyboards, typed_s) if seconds is not None]
    return Presence(min(known, default=None if somebody is None else inf), busy, seated)


def what_probes_say() -> dict[str, str]:
    """Ask each probe of this PC once; return what it says, by its name, for people."""
    probes = Probes()
    probes.ask(time.monotonic())
    probes.close()
    return probes.said


class PresenceWatch:
    """``wake`` is called from the thread when somebody begins to use the PC. ``loads``: as `OthersLoad.means`."""

    def __init__(
        self, wake: Callable[[], None], loads: Callable[[], Sequence[float]], probes: Probes | None = None
    ) -> None:
        self._helpers = None if probes is not None else _helpers()
        self._probes = Probes(self._helpers) if probes is None else probes
        self._wake = wake
        self._loads = loads
        self._is_loaded = False
        self._last = self._probes.ask(time.monotonic()), time.monotonic()
        self._stop, self._stopping = socket.socketpair()  # on Windows, nothing else can be selected
        self._thread = threading.Thread(target=self._run, name="deskgrid-owner", daemon=True)
        self._thread.start()

    def read(self, now: float) -> Presence:
        """What is known at ``now``, monotonic seconds."""
        presence, at = self._last
        idle_s = None if presence.idle_s is None or now - at > HOLDS_S else presence.idle_s + max(0.0, now - at)
        return Presence(idle_s, presence.busy or self._load(), presence.seated)

    def _load(self) -> str:
        loads = self._loads()
        if loads:
            self._is_loaded = loads[1] > (CALM if self._is_loaded else LOADED)
        return "others use its processors" if self._is_loaded else ""

    def _run(self) -> None:
        sources: list[Any] = [self._stop, *([] if self._helpers is None else [self._helpers])]
        while self._stop not in select.select(sources, [], [], SAMPLE_S)[0]:
            (before, at), now = self._last, time.monotonic()
            try:
                presence = self._probes.ask(now)
            except Exception as error:  # of a window system: nobody can tell now, and perhaps the next time
                presence = before._replace(idle_s=None)
                self._probes.said["all"] = f"{type(error).__name__}: {error}"
            self._last = presence, now
            typed = before.idle_s is None or presence.idle_s is None or presence.idle_s < before.idle_s + (now - at) / 2
            if typed or presence.busy != before.busy:
                self._wake()

    def close(self) -> None:
        """End the thread."""
        with suppress(OSError):
            self._stopping.send(b"\0")
        self._thread.join(2.0)
        self._probes.close()
        if not self._thread.is_alive():
            self._stop.close()
            self._stopping.close()


def _helpers() -> PresenceHelpers | None:
    if sys.platform == "linux":
        with suppress(OSError):
            return PresenceHelpers()
    return None
