"""Durations as people read them, in one format for the screen, explanations and messages, and as they type them."""

import re

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400

_UNITS = {"s": 1, "min": MINUTE_S, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(s|min|m|h|d) ?")


def duration(seconds: float) -> str:
    """Format ``seconds``, rounded down: 0.4 s, 45 s, 3 min 20 s, 12 min, 2 h 05 min, 3 d 4 h."""
    if seconds < 10:
        return f"{int(seconds * 10) / 10:g} s"
    whole = int(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < 10 * MINUTE_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S:02} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min"
    if whole < DAY_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S:02} min"
    return f"{whole // DAY_S} d {whole % DAY_S // HOUR_S} h"


def precise(seconds: float) -> str:
    """Format ``seconds`` with three digits below a minute, for durations that readers compare with each other."""
    return f"{seconds:.3g} s" if seconds < MINUTE_S else duration(seconds)


def read_duration(text: str, unit_s: float = 1.0) -> float:
    """Return the seconds in ``text``: a plain number, of ``unit_s`` seconds each, or parts with units: ``1h30min``.

    The units are s, min or m, h, and d. Raises ValueError for anything else.
    """
    parts = _PART.findall(text)
    if parts and not _PART.sub("", text):
        return sum(float(number) * _UNITS[unit] for number, unit in parts)
    return float(text) * unit_s
