"""How soon a parameter sweep is known, by the order in which its tasks are run.

Every sweep is drawn from a seeded generator: a grid of one to four parameters in the order of nested loops, whose
runtimes are a smooth function of the parameters, with some noise.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

from deskgrid.client.probing import probes, scaled
from deskgrid.scheduler.prediction.runtimes import Features, Runtimes
from deskgrid.sleepbench.surface import Surface

# After so many tasks, all others are predicted.
POINTS = (6, 8, 12, 16, 24, 48)
# The errors that are looked for.
GOALS = (0.2, 0.1)
# Of so many of the other tasks, evenly spread, the error is taken.
LOOKED_AT = 60
# Coefficients of variation of the noise.
NOISES = (0.0, 0.05, 0.1, 0.15)
# The values of each parameter, by how many parameters there are.
SIZES = {1: (100, 300), 2: (10, 20), 3: (5, 8), 4: (4, 5)}
# How a parameter from 0 to 1 acts on the logarithm of the runtime.
_SHAPES: tuple[Callable[[float], float], ...] = (
    lambda x: x,
    lambda x: math.log1p(9.0 * x) / math.log(10.0),
    lambda x: x * x,
    lambda x: math.exp(-(((x - 0.5) / 0.35) ** 2)),
    lambda x: 1.0 / (1.0 + math.exp(-10.0 * (x - 0.5))),
)

Item = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """``items``: the parameters of each task; ``expected`` and ``seconds``: its runtime without and with noise."""

    items: Sequence[Item]
    expected: Sequence[float]
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """What is known after ``points`` tasks. The JSON has exactly these fields.

    ``rest_error``: how far the predictions of the other tasks are from their expected runtimes, as a fraction: the mean
    over tasks, and of that the median over ``sweeps``; ``rest_error_p90``: what nine sweeps of ten do not exceed.
    ``total_error``: the median error of the total.
    """

    order: str
    predictor: str
    points: int
    sweeps: int
    rest_error: float
    rest_error_p90: float
    total_error: float


def drawn(chance: random.Random) -> Sweep:
    """Draw a sweep. The longest task takes some 3 to 30 times as long as the shortest."""
    count = chance.choice((1, 2, 2, 3, 3, 4))
    sizes = [chance.randint(*SIZES[count]) for _ in range(count)]
    shares = [chance.random() for _ in sizes]
    spread = chance.uniform(1.0, 3.0)
    weights = [chance.choice((1, 1, -1)) * spread * share / sum(shares) for share in shares]
    shapes = [chance.choice(_SHAPES) for _ in sizes]
    together = chance.uniform(-0.3, 0.3) * spread if count > 1 else 0.0
    axes = [_axis(size, chance) for size in sizes]
    noise = math.sqrt(math.log1p(chance.choice(NOISES) ** 2))
    items, expected, seconds = list[Item](), list[float](), list[float]()
    for places in product(*map(range, sizes)):
        at = [place / (size - 1) for place, size in zip(places, sizes, strict=True)]
        log = 3.0 + together * at[0] * at[-1]
        log += sum([weight * shape(x) for weight, shape, x in zip(weights, shapes, at, strict=True)])
        items.append(tuple([axis[place] for axis, place in zip(axes, places, strict=True)]))
        expected.append(math.exp(log))
        seconds.append(math.exp(log + chance.gauss(-noise * noise / 2.0, noise)))
    return Sweep(items, expected, seconds)


def _axis(size: int, chance: random.Random) -> list[float]:
    """The values of a parameter: by equal steps, or by equal factors."""
    least, most = 1.0, chance.choice((4.0, 10.0, 100.0))
    if chance.random() < 0.4:
        return [least * (most / least) ** (place / (size - 1)) for place in range(size)]
    return [least + (most - least) * place / (size - 1) for place in range(size)]


def _in_order(sweep: Sweep) -> list[int]:
    return list(range(len(sweep.items)))


def _random(sweep: Sweep) -> list[int]:
    order = _in_order(sweep)
    random.Random(len(order)).shuffle(order)
    return order


def _explored(sweep: Sweep) -> list[int]:
    """As a bag with ``explore`` is run: its probes, then the others in order."""
    first = probes(sweep.items)
    return [*first, *(item for item in _in_order(sweep) if item not in first)]


ORDERS: dict[str, Callable[[Sweep], list[int]]] = {"in-order": _in_order, "random": _random, "explore": _explored}


def _by_quantiles(sweep: Sweep, ended: Sequence[int], others: Sequence[int]) -> tuple[list[float], float]:
    """As the broker predicts: parameters are not looked at. The total is that of the mean."""
    known = Runtimes()
    for item in ended:
        known.observe(Features("sweep"), sweep.seconds[item])
    found = known.predict(Features("sweep"))
    each = found.median if found is not None else 0.0
    return [each] * len(others), fmean([sweep.seconds[item] for item in ended])


def _by_surface(sweep: Sweep, ended: Sequence[int], others: Sequence[int]) -> tuple[list[float], float]:
    points = scaled(sweep.items) or []
    surface = Surface([points[item] for item in ended], [sweep.seconds[item] for item in ended])
    found = [surface.seconds(points[item]) for item in others]
    return found, fmean(found)


# By name: what is predicted of the others, each and on average, from those that have ended. Seconds.
PREDICTORS = {"quantiles": _by_quantiles, "surface": _by_surface}


def measure(count: int, seed: int) -> Iterator[SweepRow]:
    """Rows for so many sweeps, by order and predictor."""
    chance = random.Random(seed)
    sweeps = [drawn(chance) for _ in range(count)]
    for order, ordered in ORDERS.items():
        orders = [ordered(sweep) for sweep in sweeps]
        for name in PREDICTORS:
            for points in POINTS:
                errors = [_errors(name, *each, points) for each in zip(sweeps, orders, strict=True)]
                rest, total = sorted([error for error, _ in errors]), [error for _, error in errors]
                worst = rest[math.ceil(0.9 * count) - 1]
                yield SweepRow(order, name, points, count, median(rest), worst, median(total))


def _errors(name: str, sweep: Sweep, order: Sequence[int], points: int) -> tuple[float, float]:
    ended, others = order[:points], order[points:]
    others = others[:: max(1, len(others) // LOOKED_AT)]
    found, mean = PREDICTORS[name](sweep, ended, others)
    rest = fmean([abs(each / sweep.expected[item] - 1.0) for each, item in zip(found, others, strict=True)])
    return rest, abs(mean / fmean([sweep.seconds[item] for item in others]) - 1.0)


def needed(rows: Sequence[SweepRow], order: str, predictor: str, goal: float) -> int | None:
    """After how many tasks the error of the rest is at most ``goal``, and stays so; None: after none of `POINTS`."""
    found: int | None = None
    for row in reversed([row for row in rows if (row.order, row.predictor) == (order, predictor)]):
        if row.rest_error > goal:
            break
        found = row.points
    return found
