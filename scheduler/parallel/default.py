"""The policy for parallel tasks that a grid starts with: the shortest first, equal shares, PCs that are alike."""

from deskgrid.scheduler.parallel.base import ParallelPolicy
from deskgrid.scheduler.parallel.composed import Composed
from deskgrid.scheduler.parallel.order.shortest import Shortest
from deskgrid.scheduler.parallel.sizes.share import EqualShare
from deskgrid.scheduler.parallel.where.alike import Alike


def default_policy(margin: float = 1.0) -> ParallelPolicy:
    """Also for policies that say nothing of parallel tasks. ``margin``: seconds kept free before a window closes."""
    return Composed("packing", Shortest(), EqualShare(), Alike(), margin)
