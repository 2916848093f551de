"""How long a desktop session has been idle, as its own programs tell: X11, GNOME (also on Wayland), and others."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deskgrid.worker.owner.x11 import X11, NoX11

# How long a desktop may take to answer. Seconds.
ANSWER_S = 1.0
# Destination, object, interface and method of those that say how long there was no input; and what one second is.
_MUTTER = "org.gnome.Mutter.IdleMonitor", "/org/gnome/Mutter/IdleMonitor/Core", "org.gnome.Mutter.IdleMonitor"
_SAVER = "org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", "org.freedesktop.ScreenSaver"
_BUSES = ((*_MUTTER, "GetIdletime", 1000.0), (*_SAVER, "GetSessionIdleTime", 1000.0))

Way = Callable[[], float | None]


def ways(environment: Mapping[str, str], run: Callable[..., Any] = subprocess.run) -> list[Way]:
    """Return the ways to ask, the best first; each returns seconds, or None if it does not work here."""
    x11 = X11(environment)

    def of_x11() -> float | None:
        try:
            return x11.idle_s()
        except NoX11:
            return None

    return [of_x11, *(_of_bus(call, per_s, run) for *call, per_s in _BUSES)]


def _of_bus(call: Sequence[str], per_s: float, run: Callable[..., Any]) -> Way:
    argv = ["busctl", "--user", "--json=short", "call", *call]

    def ask() -> float | None:
        try:
            done = run(argv, capture_output=True, text=True, timeout=ANSWER_S, check=True)
            return float(json.loads(done.stdout)["data"][0]) / per_s
        except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError, IndexError):
            return None

    return ask
