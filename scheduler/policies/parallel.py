"""Policies named after what they do with parallel tasks. They all pack single tasks (`Packing`).

Each makes three choices: which job is next, how many ranks it gets, and where. A policy has the options of `Packing`,
and those of its choices.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, NamedTuple, TypeVar

from deskgrid.scheduler.parallel.choices import HowMany, Where, WhichNext
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order import Easy
from deskgrid.scheduler.parallel.sizes import Rigid
from deskgrid.scheduler.parallel.where import Fastest
from deskgrid.scheduler.policies.packing import Packing

MadeT = TypeVar("MadeT", WhichNext, HowMany, Where)


class Choices(NamedTuple):
    """Makes the three choices."""

    which: Callable[..., WhichNext]
    sizes: Callable[..., HowMany]
    where: Callable[..., Where]


class ParallelPacking(Packing):
    """Packing, and three choices for parallel tasks. `policy_of` makes a class for each policy.

    ``options``: those of the choices; the others are as in ``defaults``.
    """

    choices: ClassVar[Choices]
    defaults: ClassVar[dict[str, Any]]

    def __init__(self, margin: float = 1.0, queue_s: float = 1.0, confidence: float = 0.9, **options: Any) -> None:
        super().__init__(margin, queue_s, confidence)
        which, sizes, where = self.choices
        made = _made(which, options), _made(sizes, options), _made(where, options)
        self.parallel = Composed(self.name, *made, self.margin)
        vars(self).update(self.defaults | options)


def _made(maker: Callable[..., MadeT], options: dict[str, Any]) -> MadeT:
    takes = signature(maker).parameters
    return maker(**{name: value for name, value in options.items() if name in takes})


def policy_of(
    name: str,
    which: Callable[..., WhichNext],
    sizes: Callable[..., HowMany],
    where: Callable[..., Where],
    *,
    options: Sequence[str] = (),
) -> type[ParallelPacking]:
    """Make the class of a policy that has these ``options`` of its choices.

    They are in its signature, for checks and for people who ask.
    """
    choices = Choices(which, sizes, where)
    known = {each.name: each for maker in choices for each in signature(maker).parameters.values()}
    own = [known[option].replace(kind=Parameter.KEYWORD_ONLY) for option in options]
    members = {
        "name": name,
        "choices": choices,
        "defaults": {each.name: each.default for each in own},
        "__signature__": Signature([*signature(Packing).parameters.values(), *own]),
    }
    return type(name, (ParallelPacking,), members)


# Backfilling: later jobs fill gaps, if they do not delay the first that waits.
EASY = policy_of("easy", Easy, Rigid, Fastest)
