"""Durations for people, in one format for the status screen, explanations and messages."""

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400


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
