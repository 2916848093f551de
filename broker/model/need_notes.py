"""What is told of tasks that need what no PC, or no site, has, or a longer window: the bag is accepted and waits. Pure.

A PC counts whether its window is open or not, as long as the broker knows it. Of the windows, only those of PCs that
have what the tasks need count: labels, memory, and wheels of their environment.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence

from deskgrid import wire
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.needs import PYTHON, amounts_of, labels_of, need_of
from deskgrid.broker.model.state import BrokerState
from deskgrid.durations import precise
from deskgrid.scheduler.need import MEMORY
from deskgrid.sizes import size
from deskgrid.wire import RESOURCE_UNIT, TaskOptions

WAIT = "the tasks wait until that changes"
# How the note begins of a bag that was submitted before any worker joined, or is back after a restart.
NO_WORKER = "no worker is connected: the bag waits"


def need_note(options: TaskOptions, pcs: Sequence[wire.Join]) -> str:
    """Return why none of ``pcs`` can run tasks with these options; empty if some can, or if there are no PCs at all."""
    why = _why(options, pcs) if pcs else ""
    return f"{why}; {WAIT}" if why else ""


def python_missing(options: TaskOptions, pcs: Collection[wire.Join]) -> str:
    """Return why none of ``pcs`` has the Python of these tasks; empty if one has it, or if there are no PCs at all."""
    python = options.python
    if python is None or not pcs or any(python in pc.pythons for pc in pcs):
        return ""
    found = sorted({each for pc in pcs for each in pc.pythons}, key=lambda each: [*map(int, each.split("."))])
    return f"no PC has Python {python}: {f'they have {_listed(found)}' if found else 'they have none for calls'}"


def _why(options: TaskOptions, pcs: Sequence[wire.Join]) -> str:
    python = options.python
    if missing := python_missing(options, pcs):
        return missing
    mine = pcs if python is None else [pc for pc in pcs if python in pc.pythons]
    which = "" if len(mine) == len(pcs) else f" with Python {python}"
    found = [pc for pc in mine if labels_of(pc).issuperset(options.labels)]
    if not found:
        return _labels_missing(options.labels, mine, which)
    if options.labels:
        which += f"{' and' if which else ' with'} {_labels_text(options.labels)}"
    if options.mpi:
        found = [pc for pc in found if pc.mpi]
        if not found:
            return f"no PC{which} allows MPI, which `deskgrid worker --mpi` does"
        which += f"{' and' if which else ' with'} MPI"
    enough, which, missing = _with_amounts(options, found, which)
    if missing:
        return missing
    slots = max([pc.slots for pc in enough])
    if slots < options.slots:
        return f"no PC{which} has {options.slots} slots: the most is {slots}"
    return _why_not_together(options, enough, which)


def _with_amounts(options: TaskOptions, pcs: Sequence[wire.Join], which: str) -> tuple[Sequence[wire.Join], str, str]:
    """The PCs that have as much as a task needs of what is counted, these in words, and why there are none."""
    # A PC that does not say how much memory it has may have enough.
    for name, amount in need_of(options).amounts.by_name:
        has = [amounts_of(pc)[name] for pc in pcs]
        pcs = [pc for pc, its in zip(pcs, has, strict=True) if its >= amount]
        text = amount_text(name, amount)
        if not pcs:
            most = f": the most is {_quantity(name, max(has))}" if max(has) else ""
            return (), which, f"no PC{which} has {text}{most}"
        which += f"{' and' if which else ' with'} {text}"
    return pcs, which, ""


def _labels_missing(labels: Sequence[str], pcs: Sequence[wire.Join], which: str) -> str:
    nowhere = [label for label in labels if not any(label in labels_of(pc) for pc in pcs)]
    if nowhere:
        return f"no PC{which} has {_labels_text(nowhere)}"
    return f"no PC{which} has all of the labels {_listed(labels)}"


def _labels_text(labels: Sequence[str]) -> str:
    return f"the label{'s' * (len(labels) > 1)} {_listed(labels)}"


def _why_not_together(options: TaskOptions, pcs: Sequence[wire.Join], which: str) -> str:
    """Why no site has room for the least number of ranks. A PC that others do not reach is a site of its own."""
    least = options.ranks[0]
    room = Counter[tuple[str, str]]()
    for pc in pcs:
        room[pc.site, "" if pc.address else pc.name] += pc.slots // options.slots
    ((_, alone), most), *_ = room.most_common(1)
    if least <= most:
        return ""
    needs = f"a task needs {least} ranks" + (f" of {options.slots} slots" if options.slots > 1 else "")
    sites = Counter[str]()
    for (site, _), ranks in room.items():
        sites[site] += ranks
    if alone and least <= max(sites.values()):
        return f"{needs}, and PCs{which} are not reached by others of their site, or do not know by which address"
    return f"{needs} at one site, and PCs{which} have room for {most} at most"


def which_pcs(options: TaskOptions, environment: str = "", *, mixed: bool = False) -> str:
    """Say in words which PCs have what tasks need, to follow "PCs"; empty if all have it. ``environment``: its name.

    ``mixed``: not all PCs have the same versions of Python.
    """
    needs = [f"Python {options.python}"] if mixed and options.python else []
    needs += [_labels_text(options.labels)] if options.labels else []
    needs += ["MPI"] if options.mpi else []
    needs += [amount_text(name, amount) for name, amount in need_of(options).amounts.by_name]
    needs += [f"a system that its environment {environment} has wheels for"] if environment else []
    return f" with {_listed(needs)}" if needs else ""


def lacks_text(labels: Sequence[str], short: Sequence[tuple[str, float]]) -> str:
    """Say what a PC lacks: labels or a Python, as the scheduler has them, or that of which it has too little."""
    if pythons := [label for label in labels if label.startswith(PYTHON)]:
        return f"the PC does not have {_listed(pythons)}"
    if labels:
        return f"the PC does not have {_labels_text(labels)}"
    (name, has), *_ = short
    return f"the PC has {amount_text(name, has)}, which is too little" if has else f"the PC has no {name}"


def amount_text(name: str, amount: float) -> str:
    """An amount of the scheduler as people read it: 2 gpu, 200G of scratch."""
    quantity = _quantity(name, amount)
    return f"{quantity} {name}" if quantity[-1].isdigit() else f"{quantity} of {name}"


def _quantity(name: str, amount: float) -> str:
    """A size, or a number."""
    units = amount if name == MEMORY else amount / RESOURCE_UNIT
    return size(units) if name == MEMORY or units >= 1 << 20 else f"{units:.15g}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
