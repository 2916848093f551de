"""A library that a bag brings in a storm: its wheel, made on the spot, and a task that imports it.

This module travels to PCs, so it imports nothing of ours before it is asked to.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = """
import hashlib

def answer(item):
    return item, hashlib.sha256(str(item).encode()).hexdigest()
"""


def brought(given: tuple[int, float]) -> tuple[int, str]:
    """What `tests.chaos.book.work` does, with a library that no PC has."""
    import time

    import stormlib  # type: ignore[import-not-found]

    item, seconds = given
    time.sleep(seconds)
    found: tuple[int, str] = stormlib.answer(item)
    return found


@contextmanager
def only_index(folder: Path) -> Iterator[None]:
    """All wheels that pip finds are in ``folder``: the library, and what the process for tasks needs."""
    from tests.wheels import installed_wheel, make_wheel

    make_wheel(folder / "index", "stormlib", files={"stormlib.py": SOURCE})
    for name in ("cloudpickle", "msgpack"):
        installed_wheel(folder / "index", name)
    before = dict(os.environ)
    os.environ |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder / "index"),
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(folder / "index"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
