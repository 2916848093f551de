"""Policies named after what they do with parallel tasks. Single tasks are packed (`Packing`) by all of them."""

from typing import ClassVar

from deskgrid.scheduler.parallel.choices import HowMany, Where, WhichNext
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order.easy import Easy
from deskgrid.scheduler.parallel.order.fcfs import FirstCome
from deskgrid.scheduler.parallel.sizes.rigid import Rigid
from deskgrid.scheduler.parallel.where.fastest import Fastest
from deskgrid.scheduler.policies.packing import Packing


class ParallelPacking(Packing):
    """``margin``, ``queue_s``, ``confidence``: as for `Packing`."""

    def _compose(self, which: WhichNext, sizes: HowMany, where: Where) -> None:
        self.parallel = Composed(self.name, which, sizes, where, self.margin)


class EasyBackfilling(ParallelPacking):
    """EASY backfilling, rigid, at the fastest site."""

    name: ClassVar[str] = "easy"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(Easy(), Rigid(), Fastest())


class FastestFirst(ParallelPacking):
    """FF of the TLA paper: first come, first served, rigid, at the fastest site."""

    name: ClassVar[str] = "ff"

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9) -> None:
        super().__init__(margin, queue_s, confidence)
        self._compose(FirstCome(), Rigid(), Fastest())
