"""Tasks on their way into a queue, or looked for in one, as ranges of numbers: a bag of one runtime is one range."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, count, islice, repeat
from operator import add, ne, or_, sub
from typing import Any, NamedTuple, Protocol, TypeVar


class TaskRanges(NamedTuple):
    """Runs on their way, in order: the first task of each, how many tasks it has, and their runtime."""

    firsts: list[int]
    counts: list[int]
    runtimes: list[float]


def grouped(tasks: Sequence[int], runtimes: Sequence[float]) -> TaskRanges:
    """Group tasks into runs, keeping their order."""
    if len(tasks) < 2:
        return TaskRanges(list(tasks), [1] * len(tasks), list(runtimes))
    changes = map(
        or_,
        map(ne, runtimes, islice(runtimes, 1, None)),
        map(ne, map(add, tasks, repeat(1)), islice(tasks, 1, None)),
    )
    starts = [0, *compress(count(1), changes)]
    counts = list(map(sub, chain(islice(starts, 1, None), (len(tasks),)), starts))
    return TaskRanges(list(map(tasks.__getitem__, starts)), counts, list(map(runtimes.__getitem__, starts)))


class _Consecutive(Protocol):
    """Tasks whose numbers follow each other."""

    first: int
    count: int


BatchT = TypeVar("BatchT", bound=_Consecutive)


def by_batch(tasks: Sequence[int], batch_of: Callable[[int], BatchT]) -> Iterator[tuple[BatchT, slice]]:
    """Split ``tasks``, in order, into pieces of one batch each: the batch, and where in ``tasks`` the piece is."""
    begin = 0
    while begin < len(tasks):
        batch = batch_of(tasks[begin])
        first, end, after = batch.first, batch.first + batch.count, begin + 1
        while after < len(tasks) and first <= tasks[after] < end:
            after += 1
        yield batch, slice(begin, after)
        begin = after


# Ranges of task numbers, (first, how many), ascending and without overlap.
Spans = Sequence[tuple[int, int]]


def cut(first: int, held: int, spans: Spans) -> Iterator[tuple[int, int, bool]]:
    """A run in pieces, (first, how many, whether it is in ``spans``), in order."""
    end = first + held
    place = max(0, bisect_right(spans, (first, math.inf)) - 1)
    while first < end:
        while place < len(spans) and sum(spans[place]) <= first:
            place += 1
        begins, many = spans[place] if place < len(spans) else (end, 0)
        inside = begins <= first
        until = min(end, begins + many if inside else begins)
        yield first, until - first, inside
        first = until


def spans_of(tasks: Iterable[int]) -> list[tuple[int, int]]:
    """The ranges that ascending task numbers make."""
    spans: list[tuple[int, int]] = []
    begin = end = -1
    for task in tasks:
        if task != end:
            if end > begin:
                spans.append((begin, end - begin))
            begin = task
        end = task + 1
    return [*spans, (begin, end - begin)] if end > begin else spans


def joined(spans: Spans) -> Spans:
    """The same tasks in as few ranges as possible."""
    fewer: list[tuple[int, int]] = []
    for first, many in spans:
        if fewer and sum(fewer[-1]) == first:
            fewer[-1] = fewer[-1][0], fewer[-1][1] + many
        else:
            fewer.append((first, many))
    return fewer


# Deleting up to this many parts of a list one by one costs no more than building it again.
_PARTS = 64


def drop_places(places: Sequence[int], *rows: list[Any]) -> None:
    """Delete the items at these ascending, mostly consecutive places from several lists."""
    parts = spans_of(places)
    if len(parts) > _PARTS:
        gone = set(places)
        for row in rows:
            row[:] = [value for place, value in enumerate(row) if place not in gone]
        return
    for first, many in reversed(parts):
        for row in rows:
            del row[first : first + many]


def within(tasks: Iterable[int], spans: Spans) -> list[int]:
    """Those of ``tasks`` that are in ``spans``."""
    return [task for task in tasks if (place := bisect_right(spans, (task, math.inf))) and task < sum(spans[place - 1])]
