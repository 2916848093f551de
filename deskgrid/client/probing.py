"""Which tasks a bag begins with, if it is to show early how long its tasks take.

The numbers in an item are its parameters. The first tasks are chosen so that they are spread over all values of every
parameter: they are the items nearest to the points of a low-discrepancy sequence (Roberts, 2018: the additive
recurrence whose step in each of d dimensions is a power of the root of x^(d+1) = x + 1).
"""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from numbers import Real
from typing import Any

from deskgrid.errors import BagRejected
from deskgrid.wire import PROBES_LIMIT, TaskOptions

# A parameter is not looked for in tuples deeper than this, nor after so many others.
DEPTH, PARAMETERS = 4, 16
# Nor after so many parts of an item, whatever they are.
PARTS = 64
# Of more items, so many are drawn, from which the first tasks are chosen: that takes a tenth of a second.
CANDIDATES = 4_096
# Draws the same at each submission.
SEED = 17

Point = tuple[float, ...]

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def probes(items: Sequence[Any]) -> tuple[int, ...]:
    """The numbers of the items to begin with, in this order."""
    count = len(items)
    chance = random.Random(SEED)
    drawn = range(count) if count <= CANDIDATES else sorted(chance.sample(range(count), CANDIDATES))
    points = scaled([parameters(items[item]) for item in drawn])
    if points is None:
        return tuple(chance.sample(range(count), min(count, PROBES_LIMIT)))
    return tuple([drawn[place] for place in spread(points, PROBES_LIMIT)])


def checked_probes(items: Sequence[Any], options: TaskOptions) -> tuple[int, ...]:
    """`probes`, unless the options of the bag are against it. Raises `BagRejected`."""
    if options.checkpoint:
        raise BagRejected("a bag whose tasks save checkpoints cannot explore: choose one of the two")
    if options.gang or options.slots > 1:
        raise BagRejected("explore is for tasks of one slot: leave out explore, gang and slots")
    return probes(items)


def parameters(item: Any) -> Point:
    """The numbers in an item: in a number, a text, and in tuples, lists, dictionaries and dataclasses of these."""
    found = islice(_numbers(item, DEPTH), PARTS)
    return tuple(islice((number for number in found if number is not None), PARAMETERS))


def _numbers(value: Any, depth: int) -> Iterator[float | None]:
    """The numbers in a value, and None for each part of it that is no number."""
    if isinstance(value, Real):
        yield _finite(value)
        return
    yield None
    if isinstance(value, str):
        yield from map(float, _NUMBER.findall(value[:1_000]))
    elif depth > 0:
        for part in _parts(value):
            yield from _numbers(part, depth - 1)


def _finite(value: Real) -> float:
    """As a float; what no float can be is out of the way."""
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return -math.inf if value < 0 else math.inf
    return math.inf if math.isnan(number) else number


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        yield from islice(value, PARAMETERS)
    elif isinstance(value, Mapping):
        # By name: not all items need to have them in the same order.
        yield from (value[name] for name in sorted(value, key=str)[:PARAMETERS])
    elif is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in fields(value))


def scaled(points: Sequence[Point]) -> list[Point] | None:
    """The points with each parameter by the rank of its value, from 0 to 1, without those that are always the same.

    So it does not matter whether a parameter grows by steps or by factors. None if there are no parameters that differ,
    or if some points have more parameters than others.
    """
    if len({len(point) for point in points}) != 1:
        return None
    columns = list[list[float]]()
    for values in zip(*points, strict=True):
        ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
        if len(ranks) > 1:
            columns.append([ranks[value] / (len(ranks) - 1) for value in values])
    return list(zip(*columns, strict=True)) or None


def spread(points: Sequence[Point], count: int) -> list[int]:
    """The places of ``count`` points, or of all if there are fewer, spread over the unit cube that they are in."""
    left = dict.fromkeys(range(len(points)))
    chosen = list[int]()
    for target in islice(_sequence(len(points[0])), min(count, len(points))):
        place = min(left, key=lambda place: math.dist(points[place], target))
        del left[place]
        chosen.append(place)
    return chosen


def _sequence(dimensions: int) -> Iterator[Point]:
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = [root ** -(power + 1) for power in range(dimensions)]
    at = [0.5] * dimensions
    while True:
        yield tuple(at)
        at = [(place + step) % 1.0 for place, step in zip(at, steps, strict=True)]
