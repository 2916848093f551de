"""Jobs drawn by the model of Lublin and Feitelson: sizes, runtimes that go with them, and arrivals with a day cycle.

U. Lublin, D. G. Feitelson, The workload on parallel supercomputers: modeling the characteristics of rigid jobs, Journal
of Parallel and Distributed Computing 63(11), 2003. lublin.toml has the parameters, under the names of the authors, and
says what each is.

Rule 1: jobs are of one type. The model's batch and interactive jobs are not told apart.
Rule 2: sizes, runtimes and arrivals each have a generator of their own: with other arrivals the jobs stay the same.
"""

import math
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from random import Random
from typing import NamedTuple

# A day has so many intervals, each with its own part of the arrivals.
INTERVALS = 48
INTERVAL_S = 1800.0
# A term of a series that adds less than this part no longer counts.
NEGLIGIBLE = 1e-12

# The model's parameters, by name.
Parameters = dict[str, float]


class LublinJob(NamedTuple):
    """``submitted_s``: since midnight before the first job; ``runtime_s``: on ``processors``."""

    submitted_s: float
    runtime_s: float
    processors: int


def lublin_jobs(seed: int, count: int, machine: int = 128, **changed: float) -> list[LublinJob]:
    """So many jobs for a machine of so many processors. ``changed``: parameters that are not as in lublin.toml."""
    parameters = _parameters() | _sizes_of(machine) | changed
    sizes, runtimes, gaps = (Random(f"lublin {what} {seed}") for what in ("sizes", "runtimes", "arrivals"))
    return [
        LublinJob(submitted, _runtime(parameters, runtimes, size), size)
        for submitted in islice(_arrivals(parameters, gaps), count)
        for size in [_size(parameters, sizes)]
    ]


@cache
def _parameters() -> Parameters:
    return tomllib.loads(files(__package__).joinpath("lublin.toml").read_text(encoding="utf-8"))


def _sizes_of(machine: int) -> Parameters:
    """The largest size, and where the two uniform distributions meet, as far from it as for 128 processors."""
    known = _parameters()
    largest = math.log2(machine)
    return {"uhi": largest, "umed": largest - (known["uhi"] - known["umed"])}


def _size(known: Parameters, chance: Random) -> int:
    kind = chance.random()
    if kind <= known["serial_prob"]:
        return 1
    first = chance.random() <= known["uprob"]
    low, high = (known["ulow"], known["umed"]) if first else (known["umed"], known["uhi"])
    power = chance.uniform(low, high)
    if kind <= known["serial_prob"] + known["pow2_prob"]:
        power = math.floor(power + 0.5)
    return int(2.0**power + 0.5)


def _runtime(known: Parameters, chance: Random, size: int) -> float:
    """Seconds. Sizes beyond the model's own have the probability 0 of the shorter runtimes."""
    short = known["pa"] * size + known["pb"]
    while True:
        shape, scale = (known["a1"], known["b1"]) if chance.random() <= short else (known["a2"], known["b2"])
        drawn = chance.gammavariate(shape, scale)
        if drawn <= known["longest"]:
            return math.exp(drawn)


def _arrivals(known: Parameters, chance: Random) -> Iterator[float]:
    """Seconds since midnight, ascending. A gap is a number of mean intervals, and a busy interval takes more of them.

    So time goes slower in the rush hours, and the part of an interval that has passed is the part of its weight.
    """
    weights = interval_weights(known)
    interval, used = 0, 0.0  # which interval of all days, and how much of its weight has passed
    while True:
        drawn = chance.gammavariate(known["aarr"] * known["arar"], known["barr"])
        if drawn > known["longest_gap"]:
            continue
        used += math.exp(drawn) / INTERVAL_S
        while used > weights[interval % INTERVALS]:
            used -= weights[interval % INTERVALS]
            interval += 1
        yield INTERVAL_S * (interval + used / weights[interval % INTERVALS])


def interval_weights(known: Parameters | None = None) -> Sequence[float]:
    """How many jobs arrive in each interval of a day, from midnight on, if 1 is the mean."""
    known = known or _parameters()
    shape, scale, starts = known["anum"], known["bnum"], int(known["starts"])
    parts = [0.0] * INTERVALS
    for place in range(starts, starts + INTERVALS):
        part = gamma_cdf(place + 0.5, shape, scale) - gamma_cdf(place - 0.5, shape, scale)
        parts[(place - 1) % INTERVALS] = part
    mean = sum(parts) / INTERVALS
    return [part / mean for part in parts]


def gamma_cdf(value: float, shape: float, scale: float) -> float:
    """The probability that a gamma variate is at most ``value``, by the series of the incomplete gamma function."""
    x = value / scale
    if x <= 0.0:
        return 0.0
    term = total = 1.0 / shape
    place = shape
    while term > NEGLIGIBLE * total:
        place += 1.0
        term *= x / place
        total += term
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape))
