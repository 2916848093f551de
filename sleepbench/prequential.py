"""How well predictors do: each task is predicted when it starts, from the tasks that have ended by then.

So many tasks of a stream are in flight at a time: the next one starts when one of them ends, on a virtual clock.
Bags of fewer than `LEAST` tasks teach the predictors, but they are not part of the result.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median
from time import perf_counter

from deskgrid.sleepbench.predictors import BASELINE, OWN, PREDICTORS, Predictor
from deskgrid.sleepbench.workloads.source import WorkloadError
from deskgrid.sleepbench.workloads.task_log import LoggedTask, LoggedTasks

LEAST = 20
# A bag counts as poorly covered if fewer of its tasks than this fraction stay below their 0.9 quantile.
POOR = 0.8
MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """One predictor's result. The JSON has exactly these fields.

    Coverages are fractions of all ``tasks``: of those that took no longer than the quantile 0.9 or 0.95, and of those
    from the quantile 0.05 to 0.95. ``bags_below_80``: the fraction of ``bags`` in which fewer than 80 % of the tasks
    stay below their quantile 0.9. ``pinball90_to_mean``: the pinball loss at 0.9 to that of the running mean, as the
    geometric mean over bags; then as the arithmetic mean; None if no bag can be compared. The last two are medians over
    calls, in microseconds.
    """

    predictor: str
    in_flight: int
    bags: int
    tasks: int
    coverage90: float
    coverage95: float
    coverage_5_95: float
    bags_below_80: float
    pinball90_to_mean: float | None
    pinball90_to_mean_arithmetic: float | None
    predict_us: float
    observe_us: float


@dataclass(frozen=True, slots=True)
class Life:
    """The tasks of a bag in the order of their start: what they took, and the quantiles that deskgrid predicted.

    Each has four: 0.05, 0.5, 0.9 and 0.95. All are in seconds.
    """

    name: str
    seconds: Sequence[float]
    quantiles: Sequence[Sequence[float]]


@dataclass(slots=True)
class _BagScore:
    """How one predictor did on one bag: how many tasks were covered, and the sum of the pinball loss at 0.9.

    ``told``: what its tasks took, and what was predicted; None if nobody wants to see it.
    """

    tasks: int = 0
    below_90: int = 0
    below_95: int = 0
    within: int = 0
    loss: float = 0.0
    told: list[tuple[float, Sequence[float]]] | None = None

    def add(self, seconds: float, quantiles: Sequence[float]) -> None:
        low, _, high, highest = quantiles[:4]
        self.tasks += 1
        self.below_90 += seconds <= high
        self.below_95 += seconds <= highest
        self.within += low <= seconds <= highest
        if self.told is not None:
            self.told.append((seconds, quantiles[:4]))
        self.loss += 0.9 * (seconds - high) if seconds > high else 0.1 * (high - seconds)


@dataclass(slots=True)
class _PredictorRun:
    """One predictor's run over a log."""

    bags: dict[str, _BagScore] = field(default_factory=lambda: defaultdict(_BagScore))
    predicting_s: list[float] = field(default_factory=list)
    observing_s: list[float] = field(default_factory=list)

    def scored(self) -> dict[str, _BagScore]:
        return {name: bag for name, bag in self.bags.items() if bag.tasks >= LEAST}


def measure(log: LoggedTasks, in_flight: int) -> Iterator[PredictionRow]:
    """A row for each predictor, as soon as it is known. Raises `WorkloadError` if no bag is large enough."""
    requests = any(task.requested is not None for stream in log.streams for task in stream)
    base = _play(log, PREDICTORS[BASELINE](), in_flight)
    if not base.scored():
        raise WorkloadError(f"no bag has {LEAST} tasks")
    for name, make in PREDICTORS.items():
        if name != "requested" or requests:
            played = base if name == BASELINE else _play(log, make(), in_flight)
            yield _row(name, in_flight, played, base.scored())


def life(log: LoggedTasks, in_flight: int) -> Life:
    """What deskgrid predicts of the tasks of the largest bag, the first of equals."""
    name = Counter(task.bag for stream in log.streams for task in stream).most_common(1)[0][0]
    told = _play(log, PREDICTORS[OWN](), in_flight, shown=name).bags[name].told or []
    return Life(name, [seconds for seconds, _ in told], [quantiles for _, quantiles in told])


def _play(log: LoggedTasks, predictor: Predictor, in_flight: int, shown: str | None = None) -> _PredictorRun:
    played = _PredictorRun()
    if shown is not None:
        played.bags[shown] = _BagScore(told=[])
    for stream in log.streams:
        _play_stream(stream, predictor, in_flight, played)
    return played


def _play_stream(stream: Sequence[LoggedTask], predictor: Predictor, in_flight: int, played: _PredictorRun) -> None:
    now = 0.0
    ends: list[tuple[float, int]] = []
    started: dict[str, dict[int, float]] = defaultdict(dict)
    predicted: dict[int, Sequence[float]] = {}
    for place in range(len(stream) + in_flight):
        if ends and (len(ends) == in_flight or place >= len(stream)):
            now, ended = heapq.heappop(ends)
            del started[stream[ended].bag][ended]
            _observe(predictor, stream[ended], predicted.pop(ended), played)
        if place < len(stream):
            task = stream[place]
            its = started[task.bag]
            predicted[place] = quantiles = _predict(predictor, task, [now - begun for begun in its.values()], played)
            played.bags[task.bag].add(task.seconds, quantiles)
            its[place] = now
            heapq.heappush(ends, (now + task.seconds, place))


def _predict(
    predictor: Predictor, task: LoggedTask, running: Sequence[float], played: _PredictorRun
) -> Sequence[float]:
    began = perf_counter()
    quantiles = predictor.predict(task, running)
    played.predicting_s.append(perf_counter() - began)
    return quantiles


def _observe(predictor: Predictor, task: LoggedTask, predicted: Sequence[float], played: _PredictorRun) -> None:
    began = perf_counter()
    predictor.observe(task, predicted)
    played.observing_s.append(perf_counter() - began)


def _row(name: str, in_flight: int, played: _PredictorRun, base: Mapping[str, _BagScore]) -> PredictionRow:
    scored = played.scored()
    bags, tasks = scored.values(), sum(bag.tasks for bag in scored.values())
    # A bag that one of the two predicts without any loss has no ratio.
    compared = [bag.loss / base[each].loss for each, bag in scored.items() if bag.loss > 0 and base[each].loss > 0]
    return PredictionRow(
        predictor=name,
        in_flight=in_flight,
        bags=len(scored),
        tasks=tasks,
        coverage90=sum(bag.below_90 for bag in bags) / tasks,
        coverage95=sum(bag.below_95 for bag in bags) / tasks,
        coverage_5_95=sum(bag.within for bag in bags) / tasks,
        bags_below_80=sum(bag.below_90 < POOR * bag.tasks for bag in bags) / len(scored),
        pinball90_to_mean=geometric_mean(compared) if compared else None,
        pinball90_to_mean_arithmetic=fmean(compared) if compared else None,
        predict_us=median(played.predicting_s) / MICROSECOND,
        observe_us=median(played.observing_s) / MICROSECOND,
    )
