"""Policies named after what they do with parallel tasks. Single tasks are packed (`Packing`) by all of them.

Each has the options of `Packing`, besides its own.
"""

from typing import ClassVar

from deskgrid.scheduler.parallel.choices import HowMany, Where, WhichNext
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order.classes import Classes
from deskgrid.scheduler.parallel.order.easy import Easy
from deskgrid.scheduler.parallel.order.fcfs import FirstCome
from deskgrid.scheduler.parallel.sizes.ap2 import AP2
from deskgrid.scheduler.parallel.sizes.cirne_berman import CirneBerman
from deskgrid.scheduler.parallel.sizes.hap import HAP
from deskgrid.scheduler.parallel.sizes.map import MAP
from deskgrid.scheduler.parallel.sizes.max import Max
from deskgrid.scheduler.parallel.sizes.nmin import Nmin
from deskgrid.scheduler.parallel.sizes.rhap import RHAP
from deskgrid.scheduler.parallel.sizes.rigid import Rigid
from deskgrid.scheduler.parallel.sizes.scojo import IDEAL, Scojo
from deskgrid.scheduler.parallel.where.ai2 import AdaptiveIntelligent2
from deskgrid.scheduler.parallel.where.best_fit import BestFit
from deskgrid.scheduler.parallel.where.cisne import Normal, Uniform
from deskgrid.scheduler.parallel.where.fastest import Fastest
from deskgrid.scheduler.parallel.where.listed import Listed
from deskgrid.scheduler.parallel.where.tla import TemporalLookAhead
from deskgrid.scheduler.policies.packing import Packing

Choices = tuple[type[WhichNext], type[HowMany], type[Where]]


class ParallelPacking(Packing):
    """Packing, and three choices for parallel tasks: ``choices``, or what `_compose` is given."""

    choices: ClassVar[Choices | None] = None

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        if self.choices is not None:
            which, sizes, where = self.choices
            self._compose(which(), sizes(), where())

    def _compose(self, which: WhichNext, sizes: HowMany, where: Where) -> None:
        self.parallel = Composed(self.name, which, sizes, where, self.margin)


class EasyBackfilling(ParallelPacking):
    """EASY backfilling, rigid, at the fastest site."""

    name: ClassVar[str] = "easy"
    choices = Easy, Rigid, Fastest


class FirstComeFastest(ParallelPacking):
    """FF: first come, first served, rigid, at the fastest site."""

    name: ClassVar[str] = "ff"
    choices = FirstCome, Rigid, Fastest


class FirstComeBestFit(ParallelPacking):
    """BF: first come, first served, rigid, at the site that fits best."""

    name: ClassVar[str] = "bf"
    choices = FirstCome, Rigid, BestFit


class FirstComeAI2(ParallelPacking):
    """AI2: first come, first served, rigid, at the site that fits best or at the fastest."""

    name: ClassVar[str] = "ai2"
    choices = FirstCome, Rigid, AdaptiveIntelligent2


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

    def __init__(
        self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, *, mpl: float | None = None
    ) -> None:
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


class FirstComeAP2(ParallelPacking):
    """AP2: first come, first served, an equal part of the slots for each job that waits, and one for the next."""

    name: ClassVar[str] = "ap2"
    choices = FirstCome, AP2, Listed


class FirstComeMAP(ParallelPacking):
    """MAP: as ap2, but jobs that run count, too. ``f``: how much, from 0 to 1."""

    name: ClassVar[str] = "map"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, *, f: float = 0.5) -> None:
        super().__init__(margin, queue_s, confidence)
        self.f = part("f", f)
        self._compose(FirstCome(), MAP(f), Listed())


class FirstComeHAP(ParallelPacking):
    """HAP: as map, but a part of the PCs' speeds."""

    name: ClassVar[str] = "hap"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, *, f: float = 0.5) -> None:
        super().__init__(margin, queue_s, confidence)
        self.f = part("f", f)
        self._compose(FirstCome(), HAP(f), Listed())


class FirstComeRHAP(ParallelPacking):
    """RHAP: as hap, but a part of what others leave of the PCs. ``most``: the most of the grid that a job gets."""

    name: ClassVar[str] = "rhap"

    def __init__(
        self,
        margin: float = 1.0,
        queue_s: float = 1.0,
        confidence: float = 0.9,
        *,
        f: float = 0.5,
        most: float = 0.3,
    ) -> None:
        super().__init__(margin, queue_s, confidence)
        self.f = part("f", f)
        self.most = part("most", most)
        self._compose(FirstCome(), RHAP(f, most), Listed())


class FirstComeMax(ParallelPacking):
    """RHAP's limit alone: first come, first served, and each job gets ``most`` of the grid."""

    name: ClassVar[str] = "max"

    def __init__(
        self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, *, most: float = 0.3
    ) -> None:
        super().__init__(margin, queue_s, confidence)
        self.most = part("most", most)
        self._compose(FirstCome(), Max(most), Listed())


class ClassesRigid(ParallelPacking):
    """EASY backfilling in the order of SCOJO-P's classes, rigid."""

    name: ClassVar[str] = "rigid"
    choices = Classes, Rigid, Fastest


class ClassesNmin(ParallelPacking):
    """As rigid, but each job gets the smallest size that it can have."""

    name: ClassVar[str] = "nmin"
    choices = Classes, Nmin, Fastest


class ClassesCirneBerman(ParallelPacking):
    """As rigid, but each job chooses at its arrival the size with which it would end first."""

    name: ClassVar[str] = "cirne-berman"
    _shrinks: ClassVar[bool] = False

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(Classes(), CirneBerman(self._shrinks), Fastest())


class ClassesCirneBermanShrink(ClassesCirneBerman):
    """As cirne-berman, but no job chooses a size above the one that suits it."""

    name: ClassVar[str] = "cirne-berman-shrink"
    _shrinks = True


class ClassesScojo(ParallelPacking):
    """SCOJO-P without prediction. ``ideal``: the part of the slots that should be used."""

    name: ClassVar[str] = "scojo"
    _predicts: ClassVar[bool] = False

    def __init__(
        self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, *, ideal: float = IDEAL
    ) -> None:
        super().__init__(margin, queue_s, confidence)
        self.ideal = part("ideal", ideal)
        self._compose(Classes(), Scojo(ideal, self._predicts), Fastest())


class ClassesScojoP(ClassesScojo):
    """SCOJO-P: sizes with which the grid is as busy as it should be, also by jobs that are still to come."""

    name: ClassVar[str] = "scojo-p"
    _predicts = True


def part(option: str, value: float) -> float:
    """The value of an option that is a part of something."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{option} is a number from 0 to 1, not {value!r:.40}")
    return value


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
    FirstComeAP2,
    FirstComeMAP,
    FirstComeHAP,
    FirstComeRHAP,
    FirstComeMax,
    ClassesRigid,
    ClassesNmin,
    ClassesCirneBerman,
    ClassesCirneBermanShrink,
    ClassesScojo,
    ClassesScojoP,
)
