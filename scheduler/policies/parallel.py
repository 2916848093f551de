"""Policies named after what they do with parallel tasks. Single tasks are packed (`Packing`) by all of them.

Each has the options of `Packing`, besides its own.
"""

from math import inf
from typing import ClassVar

from deskgrid.scheduler.parallel.choices import HowMany, Where, WhichNext
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order.easy import Easy
from deskgrid.scheduler.parallel.order.fcfs import FirstCome
from deskgrid.scheduler.parallel.sizes.rigid import Rigid
from deskgrid.scheduler.parallel.where.ai2 import AdaptiveIntelligent2
from deskgrid.scheduler.parallel.where.best_fit import BestFit
from deskgrid.scheduler.parallel.where.cisne import Normal, Uniform
from deskgrid.scheduler.parallel.where.fastest import Fastest
from deskgrid.scheduler.parallel.where.tla import TemporalLookAhead
from deskgrid.scheduler.policies.packing import Packing


class ParallelPacking(Packing):
    """Packing, and three choices for parallel tasks."""

    def _compose(self, which: WhichNext, sizes: HowMany, where: Where) -> None:
        self.parallel = Composed(self.name, which, sizes, where, self.margin)


class EasyBackfilling(ParallelPacking):
    """EASY backfilling, rigid, at the fastest site."""

    name: ClassVar[str] = "easy"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(Easy(), Rigid(), Fastest())


class FirstComeFastest(ParallelPacking):
    """FF: first come, first served, rigid, at the fastest site."""

    name: ClassVar[str] = "ff"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(FirstCome(), Rigid(), Fastest())


class FirstComeBestFit(ParallelPacking):
    """BF: first come, first served, rigid, at the site that fits best."""

    name: ClassVar[str] = "bf"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(FirstCome(), Rigid(), BestFit())


class FirstComeAI2(ParallelPacking):
    """AI2: first come, first served, rigid, at the site that fits best or at the fastest."""

    name: ClassVar[str] = "ai2"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(FirstCome(), Rigid(), AdaptiveIntelligent2())


class FirstComeTLA(ParallelPacking):
    """TLA: first come, first served, rigid, at the site that is best for all that wait.

    The other options are those of `TemporalLookAhead`.
    """

    name: ClassVar[str] = "tla"

    def __init__(
        self,
        margin: float = 1.0,
        queue_s: float = 1.0,
        confidence: float = 0.9,
        *,
        simulation_depth: int | None = 640,
        allocation_depth: int = 1,
        inner: str = "ff",
        seed: int = 0,
        explain: bool = True,
    ) -> None:
        super().__init__(margin, queue_s, confidence)
        self.simulation_depth = simulation_depth
        self.allocation_depth = allocation_depth
        self.inner = inner
        self.seed = seed
        self.explain = explain
        where = TemporalLookAhead(simulation_depth, allocation_depth, inner, seed, explain)
        self._compose(FirstCome(), Rigid(), where)


class CisneNormal(ParallelPacking):
    """CISNE: first come, first served, rigid, on the PCs with the least load. ``mpl``: as for `Normal`."""

    name: ClassVar[str] = "cisne-normal"
    _which: ClassVar[type[FirstCome]] = FirstCome
    _where: ClassVar[type[Normal]] = Normal

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, *, mpl: float = inf) -> None:
        super().__init__(margin, queue_s, confidence)
        self.mpl = mpl
        self._compose(self._which(), Rigid(), self._where(mpl))


class CisneUniform(CisneNormal):
    """CISNE: first come, first served, rigid, so that jobs that compute share PCs with those that communicate."""

    name: ClassVar[str] = "cisne-uniform"
    _where = Uniform


class CisneNormalEasy(CisneNormal):
    """As cisne-normal, with EASY backfilling."""

    name: ClassVar[str] = "cisne-normal-easy"
    _which = Easy


class CisneUniformEasy(CisneUniform):
    """As cisne-uniform, with EASY backfilling."""

    name: ClassVar[str] = "cisne-uniform-easy"
    _which = Easy


PARALLEL = (
    EasyBackfilling,
    FirstComeFastest,
    FirstComeBestFit,
    FirstComeAI2,
    FirstComeTLA,
    CisneNormal,
    CisneUniform,
    CisneNormalEasy,
    CisneUniformEasy,
)
