"""Counted resources of PCs beside slots and memory, such as graphics cards: what a PC has, and what a task needs."""

import re
from collections.abc import Iterable, Mapping

from deskgrid.sizes import read_size
from deskgrid.wire import MEMORY_LIMIT, RESOURCE_NAME, RESOURCES_LIMIT

# The resource whose parts are devices: programs find in their environment which of them they have.
GPU = "gpu"


def read_amounts(texts: Iterable[str]) -> dict[str, str]:
    """Read NAME or NAME=AMOUNT, each name once: amounts by name. Raises ValueError with one line."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        if name.strip() in found:
            raise ValueError(f"{name.strip()!r} is given twice")
        found[name.strip()] = amount if equals else "1"
    return found


def resources_of(given: Mapping[str, object], *, none: bool = False) -> tuple[str, ...]:
    """Return amounts by name as they travel: ``("gpu=1", "scratch=214748364800")``. Raises ValueError with one line.

    An amount is a number, to a thousandth, or a size such as ``"200G"``. ``none``: an amount may be 0, and is left out.
    """
    found = list[str]()
    for name, amount in given.items():
        if name in ("memory", "slots"):
            raise ValueError(f"{name} is no resource: it has an option of its own")
        if re.fullmatch(RESOURCE_NAME, str(name)) is None:
            raise ValueError(f"{name!r:.80} is not the name of a resource: 1 to 64 letters, digits or . _ -, like gpu")
        thousandths = _thousandths(name, amount)
        if name == GPU and thousandths > 1000 and thousandths % 1000:
            raise ValueError(f"{name}={amount!s:.40}: above 1, it is a whole number")
        if not thousandths and not none:
            raise ValueError(f"{name}={amount!s:.40} is nothing: leave it out")
        if thousandths:
            found.append(f"{name}={thousandths / 1000:.3f}".rstrip("0").rstrip("."))
    if len(found) > RESOURCES_LIMIT:
        raise ValueError(f"at most {RESOURCES_LIMIT} resources, not {len(found)}")
    return tuple(sorted(found))


def _thousandths(name: str, amount: object) -> int:
    count: object = amount
    if isinstance(amount, str):
        try:
            count = float(amount) if re.fullmatch(r"\s*[0-9.]+\s*", amount) else read_size(amount)
        except ValueError:
            count = None
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 <= count <= MEMORY_LIMIT:
        raise ValueError(f'{name} is a number from 0, or a size such as "200G", not {amount!r:.80}')
    thousandths = round(count * 1000)
    if abs(thousandths - count * 1000) > 1e-6 * max(1.0, count):
        raise ValueError(f"{name}={amount!s:.40} is finer than a thousandth")
    return thousandths
