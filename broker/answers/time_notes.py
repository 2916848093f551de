"""What is told of tasks for which no window is long enough: the bag is accepted, and waits. Pure.

Only the windows of PCs that have what the tasks need count: labels, memory, and wheels of their environment.
"""

from collections.abc import Callable, Container

from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.need_notes import WAIT, which_pcs
from deskgrid.broker.model.state import BrokerState
from deskgrid.durations import precise

# How the note begins of a bag that was submitted before any worker joined.
NO_WORKER = "no worker has connected yet: the bag waits"


def time_note(
    state: BrokerState, bag: OpenBag, longest_s: float, some: Callable[[float], int | str], without: Container[str]
) -> str:
    """Return why the longest task of a bag cannot run; empty if it can.

    ``longest_s``: what that task needs at once. ``some``: how many need as much as a window of so many seconds, or a
    word for it. ``without``: the names of PCs for which the environment of the bag has no wheels.
    """
    scheduler, now, need = state.scheduler, state.now, bag.need
    margin_s = scheduler.policy.requirement.margin
    if scheduler.has_longer_window(longest_s + margin_s, now, need, without):
        return ""
    window_s, speed = scheduler.best_window(now, need, without)
    label = "" if bag.environment is None else bag.environment.label
    which = which_pcs(bag.row.options, label, mixed=not scheduler.grid.slots.all_have(need.labels))
    if window_s:
        longest = precise(window_s)
        if scheduler.grid.slots.uneven:
            there = "" if speed == 1.0 else f" ({precise(window_s / speed)} on one of speed {speed:.2g})"
            longest += f" for a PC of speed 1{there}"
        return _too_long(some(window_s - margin_s), bag, longest, margin_s, which)
    if scheduler.longest_window(now):
        return f"no window is known of PCs{which}; {WAIT}"
    return f"{NO_WORKER}; {state.facts.joining}"


def _too_long(some: int | str, bag: OpenBag, longest: str, margin_s: float, which: str) -> str:
    """The note of a bag with ``some`` tasks that are too long for any known window.

    ``longest``: how long the longest is. ``which``: which PCs count.
    """
    of_pcs = f" of PCs{which}" if which else ""
    window = f"the longest is {longest}, less {precise(margin_s)} for starting up"
    if bag.row.options.checkpoint:
        return f"no window known{of_pcs} is long enough for a piece of {some} of {bag.total} tasks: {window}"
    one = bag.total == 1
    are = "its task is" if one else f"{some} of {bag.total} tasks {'is' if some == 1 else 'are'}"
    they = "it waits" if one or some == 1 else "they wait"
    split = "unless you split it or have it" if one or some == 1 else "unless you split them or have them"
    return f"{are} longer than any window known{of_pcs}: {window}; {they} for a longer one, {split} save checkpoints"
