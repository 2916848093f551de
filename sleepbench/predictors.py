"""Predictors of elapsed times, to be compared: deskgrid's, and what is usual elsewhere.

All of them see a task when it starts, and its elapsed time when it ends. A predictor of a single value claims that
value for every quantile. As long as a bag has shown nothing, such a predictor goes by the function's tasks, and then by
all tasks.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from deskgrid.scheduler.prediction.calibration import LEVELS
from deskgrid.scheduler.prediction.prediction_error import PredictionError, ratios
from deskgrid.scheduler.prediction.runtimes import Features, Prediction, Runtimes
from deskgrid.sleepbench.workloads.task_log import LoggedTask

# What is predicted while nothing is known: the broker assumes the same. Seconds.
ASSUMED_S = 60.0
# What the tasks of a bag, of a function, and all tasks have in common.
_ALL = ""


class Predictor(Protocol):
    """Predicts the quantiles `LEVELS` of a task's elapsed time, in seconds; more values may follow them."""

    def predict(self, task: LoggedTask, running: Sequence[float]) -> Sequence[float]:
        """``running``: how long running tasks of the same bag have run."""

    def observe(self, task: LoggedTask, predicted: Sequence[float]) -> None:
        """A task has ended. ``predicted``: what `predict` returned when it started."""


def _kinds(task: LoggedTask) -> tuple[str, ...]:
    return f"bag {task.bag}", f"function {task.function}", _ALL


class RunningMean:
    """The mean of the bag's tasks."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float]] = {}

    def mean(self, task: LoggedTask) -> float:
        """The mean of the narrowest kind that is known. Seconds."""
        for kind in _kinds(task):
            if kind in self._sums:
                count, total = self._sums[kind]
                return total / count
        return ASSUMED_S

    def predict(self, task: LoggedTask, running: Sequence[float]) -> Sequence[float]:
        """See `Predictor`."""
        return (self.mean(task),) * len(LEVELS)

    def observe(self, task: LoggedTask, predicted: Sequence[float]) -> None:
        """See `Predictor`."""
        for kind in _kinds(task):
            count, total = self._sums.get(kind, (0, 0.0))
            self._sums[kind] = count + 1, total + task.seconds


class Requested:
    """What the user requested; the running mean for tasks without a request."""

    def __init__(self) -> None:
        self._others = RunningMean()

    def predict(self, task: LoggedTask, running: Sequence[float]) -> Sequence[float]:
        """See `Predictor`."""
        return self._others.predict(task, running) if task.requested is None else (task.requested,) * len(LEVELS)

    def observe(self, task: LoggedTask, predicted: Sequence[float]) -> None:
        """See `Predictor`."""
        self._others.observe(task, predicted)


class LastTwo:
    """The mean of the last two tasks (Tsafrir, Etsion and Feitelson, 2007)."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def predict(self, task: LoggedTask, running: Sequence[float]) -> Sequence[float]:
        """See `Predictor`."""
        found = next((self._last[kind] for kind in _kinds(task) if kind in self._last), (ASSUMED_S, ASSUMED_S))
        return (sum(found) / 2,) * len(LEVELS)

    def observe(self, task: LoggedTask, predicted: Sequence[float]) -> None:
        """See `Predictor`."""
        for kind in _kinds(task):
            self._last[kind] = self._last.get(kind, (task.seconds,) * 2)[1], task.seconds


class MeanWithRatios:
    """The running mean, stretched by quantiles of the last 200 ratios of elapsed time to predicted mean."""

    def __init__(self) -> None:
        self._mean = RunningMean()
        self._error = PredictionError()

    def predict(self, task: LoggedTask, running: Sequence[float]) -> Sequence[float]:
        """See `Predictor`. The mean itself comes last."""
        mean = self._mean.mean(task)
        return (*(mean * self._error.quantile(level) for level in LEVELS), mean)

    def observe(self, task: LoggedTask, predicted: Sequence[float]) -> None:
        """See `Predictor`."""
        self._mean.observe(task, predicted)
        self._error.add(ratios(predicted[-1:], [task.seconds]))


class OwnPredictor:
    """deskgrid's own."""

    def __init__(self) -> None:
        self._runtimes = Runtimes()

    def predict(self, task: LoggedTask, running: Sequence[float]) -> Sequence[float]:
        """See `Predictor`."""
        found = self._runtimes.predict(_features(task), running)
        return (ASSUMED_S,) * len(LEVELS) if found is None else found

    def observe(self, task: LoggedTask, predicted: Sequence[float]) -> None:
        """See `Predictor`."""
        judged = predicted if isinstance(predicted, Prediction) else None
        self._runtimes.observe(_features(task), task.seconds, judged)


def _features(task: LoggedTask) -> Features:
    return Features(task.bag, task.function, task.program, predicted=task.requested)


# Every other predictor is compared with this one.
BASELINE, OWN = "running-mean", "deskgrid"
PREDICTORS: dict[str, Callable[[], Predictor]] = {
    "requested": Requested,
    BASELINE: RunningMean,
    "last-two": LastTwo,
    "mean-with-ratios": MeanWithRatios,
    OWN: OwnPredictor,
}
