"""A set of task numbers that stay near each other, at a byte each; ranges are found at C speed."""

import re
from collections.abc import Iterator

# Tasks in a page: a set takes memory where it has tasks, and not from the first task that there ever was.
_BITS = 16
PAGE = 1 << _BITS
_ABSENT, _PRESENT = re.compile(b"\0+"), re.compile(b"\1+")


class TaskSet:
    """Task numbers. Ranges are (first, how many) or, where it says so, a first task and an end."""

    def __init__(self) -> None:
        self.size = 0
        self._pages: dict[int, bytearray] = {}

    def __contains__(self, task: int) -> bool:
        page = self._pages.get(task >> _BITS)
        return page is not None and page[task & PAGE - 1] == 1

    def add(self, first: int, count: int) -> None:
        """Add a range."""
        for number, start, end in _parts(first, first + count):
            page = self._pages.setdefault(number, bytearray(PAGE))
            self.size += page.count(0, start, end)
            page[start:end] = b"\1" * (end - start)

    def remove(self, first: int, count: int) -> None:
        """Remove those of a range that are here."""
        for number, start, end in _parts(first, first + count) if self.size else ():
            page = self._pages.get(number)
            if page is not None and (here := page.count(1, start, end)):
                self.size -= here
                page[start:end] = bytes(end - start)
                if 1 not in page:
                    del self._pages[number]

    def count(self, first: int, count: int) -> int:
        """How many of a range are here."""
        parts = _parts(first, first + count) if self.size else ()
        return sum([page.count(1, start, end) for number, start, end in parts if (page := self._pages.get(number))])

    def ranges(self, first: int, count: int) -> Iterator[tuple[int, int]]:
        """The ranges of those that are here, ascending."""
        for number, start, end in _parts(first, first + count) if self.size else ():
            for found in _PRESENT.finditer(self._pages.get(number, b""), start, end):
                yield (number << _BITS) + found.start(), found.end() - found.start()

    def gaps(self, first: int, count: int) -> Iterator[tuple[int, int]]:
        """The ranges of those that are not here, ascending, each as long as it can be."""
        begin = end = first
        for number, start, stop in _parts(first, first + count):
            page = self._pages.get(number)
            found = ((start, stop),) if page is None else (gap.span() for gap in _ABSENT.finditer(page, start, stop))
            for opens, closes in found:
                if (number << _BITS) + opens != end:
                    if end > begin:
                        yield begin, end - begin
                    begin = (number << _BITS) + opens
                end = (number << _BITS) + closes
        if end > begin:
            yield begin, end - begin

    def first_gap(self, first: int, end: int) -> int:
        """The first task, from ``first`` to before ``end``, that is not here; ``end`` if all are."""
        for number, start, stop in _parts(first, end):
            page = self._pages.get(number)
            found = start if page is None else page.find(0, start, stop)
            if found >= 0:
                return (number << _BITS) + found
        return end

    def last_gap(self, first: int, end: int) -> int:
        """The last task, from ``first`` to before ``end``, that is not here; ``first`` - 1 if all are."""
        while end > first:
            number = end - 1 >> _BITS
            base = number << _BITS
            begin = max(first, base)
            page = self._pages.get(number)
            found = end - 1 if page is None else base + page.rfind(0, begin - base, end - base)
            if found >= begin:
                return found
            end = begin
        return first - 1


def _parts(first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """A range of tasks by page: the page's number, and the start and end in it."""
    while first < end:
        number, start = first >> _BITS, first & PAGE - 1
        stop = min(PAGE, start + end - first)
        yield number, start, stop
        first += stop - start
