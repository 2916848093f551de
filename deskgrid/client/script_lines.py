"""The lines of functions that travel by value, so that a traceback of a task shows them as one of the program would."""

import linecache
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType

from deskgrid.client.generators import codes_in, importable

# More lines are not brought: a traceback shows a few of them. Bytes, of all files together.
_BYTES = 256 * 2**10


def lines_of(functions: Iterable[FunctionType]) -> dict[str, bytes]:
    """Return files as they travel: with all lines of these functions where they are in the file; others are empty."""
    files: dict[str, set[int]] = {}
    for function in functions:
        if not importable(function):
            files.setdefault(function.__code__.co_filename, set()).update(_lines(function.__code__))
    found, left = {}, _BYTES
    for name, numbers in sorted(files.items()):
        all_lines = linecache.getlines(name)
        kept = [line if number in numbers else "\n" for number, line in enumerate(all_lines[: max(numbers)], 1)]
        data = "".join(kept).encode(errors="replace")
        left -= len(data)
        if all_lines and left >= 0:
            found[name] = data
    return found


def _lines(code: CodeType) -> Iterator[int]:
    for each in codes_in(code):
        numbers = [line for _, _, line in each.co_lines() if line]
        yield from range(min(numbers, default=1), max(numbers, default=0) + 1)
