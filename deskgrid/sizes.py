"""Sizes of memory and disks, as people type and read them: 512M, 1.5G. K, M, G and T are powers of 1024."""

import re

_SIZE = re.compile(r"(\d{1,18}(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = " KMGT"


def read_size(text: str) -> int:
    """Return the bytes in ``text``: a number, perhaps with a unit, such as 512M or 2 GiB. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r:.80} is not a size like 512M or 2G")
    return int(float(found[1]) * 1024 ** _UNITS.index(found[2].upper() or " "))


def size(count: float) -> str:
    """Format ``count`` bytes with three digits at most: 900 B, 1.5 G, 16 G."""
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.3g} {_UNITS[power].strip() or 'B'}"
