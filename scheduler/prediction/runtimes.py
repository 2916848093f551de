"""Runtimes, predicted as quantiles and learned from what tasks took. Pure.

Rule 1: a bag's own runs count most. Before it has any, and beside a few, there is a prior: the runs of its function; if
there are none, those of its program; if there are none either, those of everything.
Rule 2: what a user predicted is evidence, not an order. It is a prior, too: the prediction, multiplied by the ratios of
actual to predicted runtimes that were seen of the same program.
Rule 3: memory is bounded. Of each kind only the samples that were used last are kept, and nobody's many samples push
out the few of others: a name may begin with its owner and a line break.
Rule 4: no value can surprise. Absurd runtimes are limited, and so is what one PC contributes (`sample`).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from math import exp, isfinite, log, sqrt
from statistics import NormalDist, fmean, median
from typing import NamedTuple

from deskgrid.scheduler.prediction.calibration import LEVELS, Calibration, stage_of
from deskgrid.scheduler.prediction.kept import Learned, LeastRecentlyUsed, owner_of
from deskgrid.scheduler.prediction.sample import POINTS, Mixture, Sample

# Runtimes are taken to be within these bounds, in seconds: a microsecond, and ten years.
SHORTEST, LONGEST = 1e-6, 3.2e8
# No quantile above the median is more than this many times the longest run that is known.
BEYOND = 1.5
# The spread of the logarithm of actual to predicted runtimes, before any is known of a program.
PREDICTED_SPREAD = 0.6
# The least part of tasks that may take longer than all that are known, so that it matters how much longer. And of the
# logarithms of runtimes, the spread that is expected of such tasks, and how many runs that weighs.
UNKNOWN = 0.1
EXPECTED_SPREAD, EXPECTED_WEIGHT = 1.0, 2.0
# What holds for others counts for a new owner if there are so many of them.
OTHERS = 3

# The levels of the points of a whole distribution.
SPREAD_POINTS = 48
SPREAD_LEVELS = tuple((place + 0.5) / SPREAD_POINTS for place in range(SPREAD_POINTS))

_NORMAL = NormalDist()


@cache
def first_ratios() -> tuple[float, ...]:
    """Actual to predicted runtimes, before any are known of a program."""
    return tuple(exp(PREDICTED_SPREAD * _NORMAL.inv_cdf((place + 0.5) / POINTS)) for place in range(POINTS))


class Features(NamedTuple):
    """What is known of a task before it runs.

    ``bag``, ``function``, ``program``: names, from the narrowest to the widest; an empty one is unknown. ``pc``: where
    it runs. ``predicted``: seconds, as its user said.
    """

    bag: str
    function: str = ""
    program: str = ""
    pc: str = ""
    predicted: float | None = None


class Prediction(NamedTuple):
    """Seconds that 5, 50, 90 and 95 % of such tasks do not exceed. ``stage``: of the bag, when this was predicted."""

    low: float
    median: float
    high: float
    highest: float
    stage: int


class RuntimeSpread(NamedTuple):
    """Equally likely seconds, ascending, and how many tasks of the bag they stand on.

    ``wide``: the seconds if the tasks that take longer than all that have ended take much longer. Empty: these are few.
    """

    points: tuple[float, ...]
    own: int
    wide: tuple[float, ...] = ()


class RunsByName:
    """The last runs by the name of a function, or of a program. Seconds."""

    def __init__(self) -> None:
        self.samples = LeastRecentlyUsed[Sample]()
        self.fresh: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        """The names of which runs are remembered."""
        return self.samples.keys()

    def add(self, name: str, run: float, pc: str) -> None:
        """Add a run, if the name is known."""
        if name:
            _add(self.samples, name, run, pc)
            self.fresh[name] = None

    def kept(self, name: str) -> list[float]:
        """The remembered runs, oldest first, to be kept for `restore`."""
        sample = self.samples.get(name)
        return [] if sample is None else sample.runs()

    def restore(self, name: str, runs: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life."""
        for run in runs:
            self.add(name, _bounded(run), "")


class Calibrations:
    """How predictions held, by owner; the empty name for tasks without one."""

    def __init__(self) -> None:
        self._known = LeastRecentlyUsed[Calibration]()
        self.fresh: dict[str, None] = {}

    @property
    def names(self) -> Collection[str]:
        """The owners of whose tasks it is known how predictions held."""
        return self._known.keys()

    def of(self, owner: str) -> Calibration:
        """That of an owner. A new owner begins with the median of what is known of others."""
        return self._known.use(owner, self._new)

    def _new(self) -> Calibration:
        found = Calibration()
        if len(self._known) >= OTHERS:
            known = [each.logs() for each in self._known.values()]
            found.restore([median(place) for place in zip(*known, strict=True)])
        return found

    def kept(self, owner: str) -> list[float]:
        """How predictions held for an owner, to be kept for `restore`."""
        found = self._known.get(owner)
        return [] if found is None else found.logs()

    def restore(self, owner: str, logs: Sequence[float]) -> None:
        """Go on with what `kept` returned in an earlier life."""
        if owner and logs:
            self._known.use(owner, Calibration).restore(logs)


class Runtimes:
    """What was learned. One object serves a whole grid."""

    def __init__(self) -> None:
        # A sample takes about 20 kB.
        self._bags = LeastRecentlyUsed[Sample]()
        self._functions, self._programs = RunsByName(), RunsByName()
        self._ratios = LeastRecentlyUsed[Sample]()
        self._all = Sample()
        self._calibrations = Calibrations()

    @property
    def learned(self) -> Mapping[str, Learned]:
        """What goes on from one life of the driver to the next, by kind."""
        return {"function": self._functions, "program": self._programs, "calibration": self._calibrations}

    def predict(self, features: Features, running: Sequence[float] = ()) -> Prediction | None:
        """Predict a task's runtime; None if nothing is known that it could be predicted from.

        ``running``: how long running tasks of the same bag have run, in seconds.
        """
        own, points, known = self._evidence(features, running)
        if not own and not points:
            return None
        longest = max(own[-1] if own else 0.0, points[-1] if points else 0.0)
        found = Mixture(own, points).quantiles(LEVELS, running)
        stage = stage_of(self._ended(features.bag), known)
        low, median, high, highest = self._calibration(features).corrected(stage, found, BEYOND * longest)
        return Prediction(low, median, high, highest, stage)

    def spread(self, features: Features, running: Sequence[float] = ()) -> RuntimeSpread | None:
        """As `predict`, but the whole distribution, and uncorrected; on a PC of speed 1."""
        own, points, known = self._evidence(features, running)
        if own and not known:
            points = []  # what all tasks of the grid took says little
        if not own and not points:
            return None
        found = Mixture(own, points).quantiles(SPREAD_LEVELS, running)
        return RuntimeSpread(
            tuple(found), min(self._ended(features.bag), len(own)), self._wide(features, points, running)
        )

    def _wide(self, features: Features, points: Sequence[float], running: Sequence[float]) -> tuple[float, ...]:
        """What `RuntimeSpread.wide` says. ``points``: from before the bag."""
        bag, function = self._bags.get(features.bag), self._functions.samples.get(features.function)
        own = [] if bag is None else bag.sorted
        seen = max(len(own), 0 if function is None else function.count)
        if not seen:
            return ()
        longest = max([*own[-1:], *points[-1:]])
        shorter = [seconds for seconds in running if seconds < longest]
        # Of so many tasks that have ended or outlasted these, and one more, as many take longer.
        longer = len(running) - len(shorter) + 1
        unknown = longer / (seen + longer)
        if unknown < UNKNOWN:
            return ()
        known = [level / (1.0 - unknown) for level in SPREAD_LEVELS if level < 1.0 - unknown]
        found = Mixture(own, points).quantiles(known, shorter)
        spread, begins = _log_spread(own or points), _NORMAL.inv_cdf(1.0 - unknown)
        last = max([longest, *running])
        beyond = [_NORMAL.inv_cdf(level) - begins for level in SPREAD_LEVELS[len(known) :]]
        return (*found, *[_bounded(last * exp(spread * each)) for each in beyond])

    def _calibration(self, features: Features) -> Calibration:
        """That of the owner."""
        return self._calibrations.of(_owner(features))

    def _ended(self, bag: str) -> int:
        """How many tasks of a bag have ended."""
        sample = self._bags.get(bag)
        return 0 if sample is None else sample.count

    def _evidence(self, features: Features, running: Sequence[float]) -> tuple[list[float], list[float], bool]:
        """The bag's own runs, the points from before, and whether these are of its own kind."""
        bag = self._bags.get(features.bag)
        own = bag.sorted if bag is not None else []
        points, known = self._prior(features)
        longest = max(own[-1] if own else 0.0, points[-1] if points else 0.0)
        if longest and running and max(running) > longest:
            # These have run for longer than all that is known: they count with what they have shown.
            longer = [seconds for seconds in running if seconds > longest]
            own = [*own, *sorted(map(_bounded, longer))]
        return own, points, known

    def _prior(self, features: Features) -> tuple[list[float], bool]:
        """Points from before the bag, and whether they are of its own kind."""
        if features.predicted is not None:
            ratios = self._ratios.get(features.program)
            points = first_ratios() if ratios is None else ratios.points()
            expected = _bounded(features.predicted)
            return [expected * point for point in points], True
        for sample in (self._functions.samples.get(features.function), self._programs.samples.get(features.program)):
            if sample is not None:
                return sample.points(), True
        return (self._all.points() if self._all.count else []), False

    def observe(self, features: Features, seconds: float, predicted: Prediction | None = None) -> None:
        """A task took ``seconds``. ``predicted``: what `predict` said when it began, which is then judged."""
        if predicted is not None:
            self._calibration(features).learn(predicted.stage, predicted, seconds)
            if owner := _owner(features):
                self._calibrations.fresh[owner] = None
        run, pc = _bounded(seconds), features.pc
        _add(self._bags, features.bag, run, pc)
        self._functions.add(features.function, run, pc)
        self._programs.add(features.program, run, pc)
        self._all.add(run, pc)
        if features.predicted is not None:
            _add(self._ratios, features.program, run / _bounded(features.predicted), pc, first_ratios())

    def end(self, bag: str) -> None:
        """A bag's own runs are no longer needed; its function and its program keep theirs."""
        self._bags.drop(bag)

    def knows(self, features: Features) -> bool:
        """Whether there are runs of the function or the program."""
        return features.function in self._functions.samples or features.program in self._programs.samples


def _owner(features: Features) -> str:
    """Whose task it is; empty if nobody is named."""
    named = next(filter(None, (features.bag, features.function, features.program)), "")
    return owner_of(named) if "\n" in named else ""


def _add(samples: LeastRecentlyUsed[Sample], name: str, run: float, pc: str, known: Sequence[float] = ()) -> None:
    """Add a run to the sample of a name, if the name is known; a new sample begins with ``known``."""
    if name:
        samples.use(name, lambda: Sample(known)).add(run, pc)


def _log_spread(runs: Sequence[float]) -> float:
    """The spread of the logarithms of runtimes, in part as expected."""
    logs = [log(run) for run in runs]
    mean = fmean(logs)
    total = EXPECTED_WEIGHT * EXPECTED_SPREAD**2 + sum([(each - mean) ** 2 for each in logs])
    return sqrt(total / (EXPECTED_WEIGHT + len(logs) - 1))


def _bounded(seconds: float) -> float:
    return min(max(seconds, SHORTEST), LONGEST) if isfinite(seconds) else LONGEST
