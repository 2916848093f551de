"""Who says how long a job will wait and run: SDPN, Hanzich, Li and Smith by simulation; Historical by what has been.

The first two have an analytical model of how jobs slow each other down. Li and Smith look up in the past how long
similar jobs took. Historical looks up waiting times, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, sqrt
from statistics import NormalDist, fmean, stdev
from typing import ClassVar, NamedTuple, Protocol

from deskgrid.papers.cisne.ahead import Going, LookAhead, Model, Moment, SeenJob
from deskgrid.papers.cisne.jobs import Kind
from deskgrid.papers.printed import table_of
from deskgrid.scheduler.parallel.base import ParallelPolicy


class EndedJob(NamedTuple):
    """A job that has ended. ``busy``: how many processes ran when it arrived."""

    kind: Kind
    busy: int
    waited: float
    ran: float


class PredictedSeconds(NamedTuple):
    """A prediction, in seconds."""

    waits: float
    runs: float


class JobPredictor(Protocol):
    """Says of each job, when it arrives, how long it will take."""

    @property
    def name(self) -> str:
        """As in rows."""

    def predict(self, moment: Moment) -> PredictedSeconds:
        """What becomes of the job that arrives: the last of those that wait."""


class Simulating:
    """A predictor that simulates, with a model of its own."""

    def __init__(self, name: str, model: Model, policy: ParallelPolicy) -> None:
        self.name = name
        self._model = model
        self._policy = policy

    def predict(self, moment: Moment) -> PredictedSeconds:
        """Play it (Algorithm 1)."""
        return PredictedSeconds(*LookAhead(moment, self._policy, self._model).play(moment.waiting[-1][0]))


class Analytical:
    """What both analytical models have in common: they know how much of a job is left."""

    def __init__(self) -> None:
        self.moment: Moment

    def begin(self, moment: Moment) -> None:
        """Remember it."""
        self.moment = moment

    def left(self, seen: SeenJob, now: float) -> float:
        """As it is seen: a job's own processor time says how far it is."""
        return seen.left


class Slowdowns(Analytical):
    """SDPN: jobs are slowed down as much as their slowest processor and their busiest link say (Eq. 1 to 4)."""

    def seconds(self, going: Sequence[Going]) -> list[float]:
        """T_p SP + T_c SC, of the whole job."""
        uses = self.moment.uses
        idle, link, processes = [1.0 - use.cpu for use in uses], [use.link for use in uses], [0] * len(uses)
        asked = [0.0] * len(uses)
        known = [(each.job.cpu, each.job.bandwidth) for each in going]
        for each, (cpu, bandwidth) in zip(going, known, strict=True):
            for number, count in each.ranks:
                asked[number] += count * cpu
                link[number] += count * bandwidth
                processes[number] += count
        found = []
        for each, (cpu, _) in zip(going, known, strict=True):
            # Availability (Eq. 2): what nobody else uses, and at least an even share of what users leave.
            power = min([max(idle[n] - asked[n] + cpu, idle[n] / processes[n]) for n, _ in each.ranks])
            network = max([link[n] for n, _ in each.ranks])
            found.append(each.job.computes / power + each.job.communicates * max(1.0, network))
        return found


class Multiprogramming(Analytical):
    """Hanzich: a job takes as many times as long as there are processes on the fullest of its PCs."""

    def seconds(self, going: Sequence[Going]) -> list[float]:
        """Computing and communicating alike, whatever users do."""
        processes = [0] * len(self.moment.uses)
        for each in going:
            for number, count in each.ranks:
                processes[number] += count
        return [each.job.seconds * max([processes[number] for number, _ in each.ranks]) for each in going]


class SimilarJobs:
    """Li and Smith: a job takes as long as ``similar`` jobs did, whatever runs beside it."""

    def __init__(self, similar: Callable[[Kind], float]) -> None:
        self._similar = similar
        self._known: dict[Kind, float] = {}
        self._least: float = table_of("sdpn")["assumed"]["least_left"]

    def begin(self, moment: Moment) -> None:
        """Nothing of the moment matters."""

    def left(self, seen: SeenJob, now: float) -> float:
        """What its elapsed time leaves of it. If that is more than similar jobs took, a little."""
        return max(self._least, 1.0 - (now - seen.started) / self._takes(seen.job.kind))

    def seconds(self, going: Sequence[Going]) -> list[float]:
        """As long as similar jobs."""
        return [self._takes(each.job.kind) for each in going]

    def _takes(self, kind: Kind) -> float:
        if kind not in self._known:
            self._known[kind] = self._similar(kind)
        return self._known[kind]


# What two jobs may have in common, from much to little.
TEMPLATES: Sequence[Callable[[Kind], tuple[object, ...]]] = (
    lambda kind: (kind.program, kind.cls, kind.size),
    lambda kind: (kind.program, kind.cls),
    lambda kind: (kind.program, kind.size),
    lambda kind: (kind.program,),
    lambda kind: (kind.size,),
    lambda kind: (),
)


def by_templates(past: Sequence[EndedJob], confidence: float) -> Callable[[Kind], float]:
    """Smith: the mean of the jobs that have the same template, of that template whose mean is known best."""

    def similar(kind: Kind) -> float:
        best = (inf, 0.0)
        for template in TEMPLATES:
            same = [each.ran for each in past if template(each.kind) == template(kind)]
            if len(same) > 1:
                interval = NormalDist().inv_cdf((1.0 + confidence) / 2.0) * stdev(same) / sqrt(len(same))
                best = min(best, (interval, fmean(same)))
        return best[1]

    return similar


def by_distance(past: Sequence[EndedJob], width: float) -> Callable[[Kind], float]:
    """Li: the mean of all, weighted by a Gaussian of how far each is from the job in what is known of both."""

    def similar(kind: Kind) -> float:
        weights = [exp(-((_distance(each.kind, kind) / width) ** 2)) for each in past]
        return sum([weight * each.ran for weight, each in zip(weights, past, strict=True)]) / sum(weights)

    return similar


def _distance(one: Kind, other: Kind) -> float:
    """Euclidean: 1 for each name that differs, and the size by its number of doublings."""
    doublings = abs(one.size.bit_length() - other.size.bit_length())
    return sqrt((one.program != other.program) + (one.cls != other.cls) + doublings**2)


@dataclass(frozen=True, slots=True)
class Historical:
    """A job waits and runs as long as those that were most like it, and arrived when as much was running.

    ``neighbours``: how many of these count.
    """

    name: ClassVar[str] = "historical"
    past: Sequence[EndedJob]
    neighbours: int

    def predict(self, moment: Moment) -> PredictedSeconds:
        """The mean of the most similar; of what waits nothing is known."""
        kind = moment.waiting[-1][1].kind
        slots = len(moment.uses) * moment.mpl
        busy = sum([count for seen in moment.running for _, count in seen.ranks])
        nearest = sorted(self.past, key=lambda each: _distance(each.kind, kind) + abs(each.busy - busy) / slots)
        chosen = nearest[: self.neighbours]
        return PredictedSeconds(fmean([each.waited for each in chosen]), fmean([each.ran for each in chosen]))


def predictors(past: Sequence[EndedJob], policy: ParallelPolicy) -> list[JobPredictor]:
    """All five. ``policy``: such a one as the laboratory has."""
    assumed = table_of("sdpn")["assumed"]
    return [
        Simulating("sdpn", Slowdowns(), policy),
        Simulating("hanzich", Multiprogramming(), policy),
        Historical(past, assumed["neighbours"]),
        Simulating("li", SimilarJobs(by_distance(past, assumed["width"])), policy),
        Simulating("smith", SimilarJobs(by_templates(past, assumed["confidence"])), policy),
    ]
