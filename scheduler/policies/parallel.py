"""Policies named after what they do with parallel tasks: a row each. They all pack single tasks (`Packing`).

A row makes three choices: which job is next, how many ranks it gets, and where. A policy has the options of `Packing`,
and those of its choices.
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, NamedTuple, TypeVar

from deskgrid.scheduler.parallel.choices import HowMany, Where, WhichNext
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order.classes import Classes
from deskgrid.scheduler.parallel.order.easy import Easy
from deskgrid.scheduler.parallel.order.fcfs import FirstCome
from deskgrid.scheduler.parallel.sizes.cirne_berman import CirneBerman
from deskgrid.scheduler.parallel.sizes.nmin import Nmin
from deskgrid.scheduler.parallel.sizes.partition import AP2, HAP, MAP, MAX, RHAP
from deskgrid.scheduler.parallel.sizes.rigid import Rigid
from deskgrid.scheduler.parallel.sizes.scojo import Scojo
from deskgrid.scheduler.parallel.where.ai2 import AdaptiveIntelligent2
from deskgrid.scheduler.parallel.where.best_fit import BestFit
from deskgrid.scheduler.parallel.where.cisne import Normal, Uniform
from deskgrid.scheduler.parallel.where.fastest import Fastest
from deskgrid.scheduler.parallel.where.listed import Listed
from deskgrid.scheduler.parallel.where.tla import TemporalLookAhead
from deskgrid.scheduler.policies.packing import Packing

MadeT = TypeVar("MadeT", WhichNext, HowMany, Where)


class PolicyRow(NamedTuple):
    """A policy: its name, its choices, and which of their options it has."""

    name: str
    which: Callable[..., WhichNext]
    sizes: Callable[..., HowMany]
    where: Callable[..., Where]
    options: tuple[str, ...] = ()


ROWS = (
    # EASY backfilling; first come, first served: at the fastest site, at the one that fits best, or at one of both.
    PolicyRow("easy", Easy, Rigid, Fastest),
    PolicyRow("ff", FirstCome, Rigid, Fastest),
    PolicyRow("bf", FirstCome, Rigid, BestFit),
    PolicyRow("ai2", FirstCome, Rigid, AdaptiveIntelligent2),
    # TLA: at the site that is best for all that wait.
    PolicyRow(
        "tla",
        FirstCome,
        Rigid,
        TemporalLookAhead,
        ("simulation_depth", "allocation_depth", "inner", "seed", "explain"),
    ),
    # CISNE: on the PCs with the least load, or so that jobs that compute share PCs with those that communicate.
    PolicyRow("cisne-normal", FirstCome, Rigid, Normal, ("mpl",)),
    PolicyRow("cisne-uniform", FirstCome, Rigid, Uniform, ("mpl",)),
    PolicyRow("cisne-normal-easy", Easy, Rigid, Normal, ("mpl",)),
    PolicyRow("cisne-uniform-easy", Easy, Rigid, Uniform, ("mpl",)),
    # RHAP's paper: equal partitions.
    PolicyRow("ap2", FirstCome, AP2, Listed),
    PolicyRow("map", FirstCome, MAP, Listed, ("f",)),
    PolicyRow("hap", FirstCome, HAP, Listed, ("f",)),
    PolicyRow("rhap", FirstCome, RHAP, Listed, ("f", "most")),
    PolicyRow("max", FirstCome, MAX, Listed, ("most",)),
    # SCOJO-P's paper: EASY backfilling in the order of its classes.
    PolicyRow("rigid", Classes, Rigid, Fastest),
    PolicyRow("nmin", Classes, Nmin, Fastest),
    PolicyRow("cirne-berman", Classes, CirneBerman, Fastest),
    PolicyRow("cirne-berman-shrink", Classes, partial(CirneBerman, shrinks=True), Fastest),
    PolicyRow("scojo", Classes, Scojo, Fastest, ("ideal",)),
    PolicyRow("scojo-p", Classes, partial(Scojo, predicts=True), Fastest, ("ideal",)),
)


class ParallelPacking(Packing):
    """Packing, and the three choices of ``row`` for parallel tasks. `policy_of` makes a class for each row.

    ``options``: those of the row; the others are as in ``defaults``.
    """

    row: ClassVar[PolicyRow]
    defaults: ClassVar[dict[str, Any]]

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, **options: Any) -> None:
        super().__init__(margin, queue_s, confidence)
        row = self.row
        which, sizes, where = _made(row.which, options), _made(row.sizes, options), _made(row.where, options)
        self.parallel = Composed(self.name, which, sizes, where, self.margin)
        vars(self).update(self.defaults | options)


def _made(maker: Callable[..., MadeT], options: dict[str, Any]) -> MadeT:
    takes = signature(maker).parameters
    return maker(**{name: value for name, value in options.items() if name in takes})


def policy_of(row: PolicyRow) -> type[ParallelPacking]:
    """Make the class of a policy. Its signature has the options of the row, for checks and for people who ask."""
    known = {each.name: each for maker in row[1:4] for each in signature(maker).parameters.values()}
    own = [known[name].replace(kind=Parameter.KEYWORD_ONLY) for name in row.options]
    members = {
        "name": row.name,
        "row": row,
        "defaults": {each.name: each.default for each in own},
        "__signature__": Signature([*signature(Packing).parameters.values(), *own]),
    }
    return type(row.name, (ParallelPacking,), members)


PARALLEL: tuple[type[ParallelPacking], ...] = tuple([policy_of(row) for row in ROWS])
