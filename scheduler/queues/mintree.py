"""The first, or last, of many runtimes that is below a limit, in O(log n)."""

import math
from array import array
from collections.abc import Sequence
from itertools import pairwise

from deskgrid.scheduler.model import agree

# Sixteen children a node: four or five levels for a million tasks, built at C speed by min() over slices.
_SHIFT = 4
_FAN = 1 << _SHIFT
_MASK = _FAN - 1
# How many levels above the values are cut, not computed again, when the first values are dropped. So values are dropped
# by the thousand.
_LOW = 3
# Stands for a value that was taken out.
GONE = math.inf


def _nodes_above(values: "array[float]", start: int, end: int) -> "array[float]":
    """The nodes above a part of a level that begins with a node's first value; the last node may have fewer values."""
    whole = start + (min(end, len(values)) - start) // _FAN * _FAN
    # At C speed: a min() of sixteen values each, taken in turns from one iterator.
    nodes = array("d", map(min, *[iter(values[start:whole])] * _FAN))
    if rest := values[whole:end]:
        nodes.append(min(rest))
    return nodes


class MinTree:
    """Minimum over an array of runtimes, sixteen to a node, searched for "first (or last) below a limit"."""

    def __init__(self) -> None:
        self.levels: list[array[float]] = [array("d")]

    def __len__(self) -> int:
        return len(self.levels[0])

    def extend(self, values: Sequence[float]) -> None:
        """Append ``values``; only the nodes above them are computed again."""
        start = len(self.levels[0])
        self.levels[0].extend(values)
        level = 0
        while len(self.levels[level]) > _FAN or level + 1 < len(self.levels):
            below = self.levels[level]
            level, start = level + 1, start >> _SHIFT
            if level == len(self.levels):
                self.levels.append(array("d"))
                start = 0
            node = self.levels[level]
            del node[start:]
            node.extend(_nodes_above(below, start << _SHIFT, len(below)))

    def splice(self, start: int, values: Sequence[float]) -> None:
        """Replace all values from ``start`` on by ``values``; the nodes above them are computed again."""
        del self.levels[0][start:]
        self.extend(values)

    def fill(self, start: int, values: Sequence[float]) -> None:
        """Replace as many values from ``start`` on by ``values``; only the nodes above them are computed again."""
        end = start + len(values)
        self.levels[0][start:end] = array("d", values)
        for below, node in pairwise(self.levels):
            start, end = start >> _SHIFT, (end + _MASK) >> _SHIFT
            node[start:end] = array(
                "d", [min(below[i : i + _FAN]) for i in range(start << _SHIFT, end << _SHIFT, _FAN)]
            )

    def behead(self, most: int) -> int:
        """Drop the first values, ``most`` or somewhat fewer. Returns how many. Few nodes are computed again."""
        count = most & -(1 << _LOW * _SHIFT)
        del self.levels[_LOW + 1 :]
        for level, values in enumerate(self.levels):
            del values[: count >> level * _SHIFT]
        while len(self.levels) > 1 and len(self.levels[-2]) <= _FAN:
            self.levels.pop()
        while len(below := self.levels[-1]) > _FAN:
            self.levels.append(_nodes_above(below, 0, len(below)))
        return count

    def clear(self, position: int) -> None:
        """Take the value at ``position`` out."""
        self.put(position, GONE)

    def put(self, position: int, value: float) -> None:
        """Change the value at ``position``."""
        below = self.levels[0]
        below[position] = value
        for node in self.levels[1:]:
            position >>= _SHIFT
            start = position << _SHIFT
            least = min(below[start : start + _FAN])
            if node[position] == least:
                return
            node[position] = least
            below = node

    def least(self) -> float:
        """The minimum, or infinity."""
        top = self.levels[-1]
        return min(top) if top else GONE

    def first_below(self, limit: float, start: int) -> int:
        """The first position from ``start`` on with a value below ``limit``, or -1."""
        values = self.levels[0]
        if start < len(values) and values[start] < limit:
            return start  # the usual case when tasks are taken in order of arrival
        position, top = start, len(self.levels) - 1
        for level, values in enumerate(self.levels):
            end = len(values) if level == top else min(len(values), (position | _MASK) + 1)
            while position < end and values[position] >= limit:
                position += 1
            if position < end:
                return self._descend_first(level, position, limit)
            position = (end + _MASK) >> _SHIFT
        return -1

    def _descend_first(self, level: int, position: int, limit: float) -> int:
        for values in reversed(self.levels[:level]):
            position <<= _SHIFT
            while values[position] >= limit:
                position += 1
        return position

    def last_below(self, limit: float, stop: int) -> int:
        """The last position before ``stop`` with a value below ``limit``, or -1."""
        position, top = stop - 1, len(self.levels) - 1
        for level, values in enumerate(self.levels):
            start = 0 if level == top else max(0, position & ~_MASK)
            while position >= start and values[position] >= limit:
                position -= 1
            if position >= start:
                return self._descend_last(level, position, limit)
            position = (start >> _SHIFT) - 1
        return -1

    def _descend_last(self, level: int, position: int, limit: float) -> int:
        for values in reversed(self.levels[:level]):
            position = min(len(values), (position + 1) << _SHIFT) - 1
            while values[position] >= limit:
                position -= 1
        return position

    def check(self) -> None:
        """Raise `InvariantBroken` unless every node is the least of those below it."""
        for below, node in pairwise(self.levels):
            agree("nodes", list(node), [min(below[i : i + _FAN]) for i in range(0, len(below), _FAN)])
        agree("one node at the top", len(self.levels[-1]) <= _FAN, True)
