"""The table of orders that a priority queue may have."""

from deskgrid.scheduler.queues.by_arrival import NewestFirst, OldestFirst
from deskgrid.scheduler.queues.longest_first import LongestFirst
from deskgrid.scheduler.queues.waiting import WaitingQueue

# The orders of the priority queue, by the name a policy's option has.
ORDERS: dict[str, type[WaitingQueue]] = {
    "newest-first": NewestFirst,
    "longest-first": LongestFirst,
    "fifo": OldestFirst,
}
