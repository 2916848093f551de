"""A smooth surface through the logarithms of a few runtimes: a Gaussian process with a fixed kernel, in pure Python.

The kernel is a plane, a parabola in each parameter and in all of them together, and a small rest that is local. A
kernel that is fitted to so few points (by its marginal likelihood) did worse. It costs the cube of the points.
"""

import math
from collections.abc import Sequence
from statistics import fmean

# The variance of the logarithm of a runtime around the surface: what a coefficient of variation of 0.1 makes.
NOISE = 0.01
# The variances of the parts of the kernel, for parameters from 0 to 1, and how far the local one reaches.
_LEVEL, _PARABOLAS, _TOGETHER, _LOCAL, _REACH = 0.05, 1.2, 0.6, 0.05, 0.3

Point = Sequence[float]


class Surface:
    """``points``: parameters from 0 to 1; ``seconds``: the runtime at each, above 0."""

    def __init__(self, points: Sequence[Point], seconds: Sequence[float]) -> None:
        logs = [math.log(each) for each in seconds]
        self._points, self._mean = points, fmean(logs)
        rows = [[_kernel(a, b) for b in points[: place + 1]] for place, a in enumerate(points)]
        for row in rows:
            row[-1] += NOISE
        self._weights = _solved(rows, [each - self._mean for each in logs])

    def seconds(self, point: Point) -> float:
        """The runtime that is expected there."""
        kernels = [_kernel(point, other) for other in self._points]
        return math.exp(self._mean + _dot(self._weights, kernels))


def _kernel(a: Point, b: Point) -> float:
    products = [(x - 0.5) * (y - 0.5) for x, y in zip(a, b, strict=True)]
    plane = sum(products)
    local = _LOCAL * math.exp(-(math.dist(a, b) ** 2) / (2.0 * _REACH**2))
    return _LEVEL + plane + _PARABOLAS * sum([each * each for each in products]) + _TOGETHER * plane * plane + local


def _solved(rows: list[list[float]], right: Sequence[float]) -> list[float]:
    """Solve a symmetric system, of which ``rows`` has the lower triangle, by Cholesky's method."""
    lower, forward = list[list[float]](), list[float]()
    for row, value in zip(rows, right, strict=True):
        found = list[float]()
        for place, other in enumerate(lower):
            found.append((row[place] - _dot(found, other)) / other[place])
        rest = value - _dot(found, forward)
        found.append(math.sqrt(row[-1] - _dot(found, found)))
        lower.append(found)
        forward.append(rest / found[-1])
    weights = [0.0] * len(lower)
    for place in reversed(range(len(lower))):
        known = sum([lower[below][place] * weights[below] for below in range(place + 1, len(lower))])
        weights[place] = (forward[place] - known) / lower[place][place]
    return weights


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum([x * y for x, y in zip(a, b, strict=False)])
