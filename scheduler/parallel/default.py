"""The policy for parallel tasks that a grid starts with."""

from deskgrid.scheduler.parallel.base import ParallelPolicy
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order.easy import Easy
from deskgrid.scheduler.parallel.sizes.rigid import Rigid
from deskgrid.scheduler.parallel.where.fastest import Fastest


def default_policy(margin: float = 1.0) -> ParallelPolicy:
    """Also for policies that say nothing of parallel tasks. ``margin``: seconds kept free before a window closes."""
    return Composed("packing", Easy(), Rigid(), Fastest(), margin)
