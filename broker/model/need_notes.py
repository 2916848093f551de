"""What is told of tasks that need what no PC, or no site, has: the bag is accepted, and waits. Pure.

A PC counts whether its window is open or not, as long as the broker knows it.
"""

from collections import Counter
from collections.abc import Sequence

from deskgrid import wire
from deskgrid.sizes import size
from deskgrid.wire import TaskOptions

WAIT = "the tasks wait until that changes"


def need_note(options: TaskOptions, pcs: Sequence[wire.Join]) -> str:
    """Return why none of ``pcs`` can run tasks with these options; empty if some can, or if there are no PCs at all."""
    why = _why(options, pcs) if pcs else ""
    return f"{why}; {WAIT}" if why else ""


def _why(options: TaskOptions, pcs: Sequence[wire.Join]) -> str:
    found = [pc for pc in pcs if set(options.labels) <= set(pc.labels)]
    if not found:
        return _labels_missing(options.labels, pcs)
    which = f" with the label{'s' * (len(options.labels) > 1)} {_listed(options.labels)}" if options.labels else ""
    if options.mpi:
        found = [pc for pc in found if pc.mpi]
        if not found:
            return f"no PC{which} allows MPI, which `deskgrid worker --mpi` does"
        which += f"{' and' if which else ' with'} MPI"
    # A PC that does not say how much memory it has may have enough.
    memories = [pc.memory for pc in found]
    found = [pc for pc in found if not pc.memory or pc.memory >= options.memory]
    if not found:
        return f"no PC{which} has {size(options.memory)} of memory: the most is {size(max(memories))}"
    if options.memory:
        which += f"{' and' if which else ' with'} {size(options.memory)} of memory"
    slots = max([pc.slots for pc in found])
    if slots < options.slots:
        return f"no PC{which} has {options.slots} slots: the most is {slots}"
    return _why_not_together(options, found, which)


def _labels_missing(labels: Sequence[str], pcs: Sequence[wire.Join]) -> str:
    nowhere = [label for label in labels if not any(label in pc.labels for pc in pcs)]
    if nowhere:
        return f"no PC has the label{'s' * (len(nowhere) > 1)} {_listed(nowhere)}"
    return f"no PC has all of the labels {_listed(labels)}"


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


def which_pcs(options: TaskOptions, environment: str = "") -> str:
    """Say in words which PCs have what tasks need, to follow "PCs"; empty if all have it. ``environment``: its name."""
    needs = [f"the label{'s' * (len(options.labels) > 1)} {_listed(options.labels)}"] if options.labels else []
    needs += ["MPI"] if options.mpi else []
    needs += [f"{size(options.memory)} of memory"] if options.memory else []
    needs += [f"a system that its environment {environment} has wheels for"] if environment else []
    return f" with {_listed(needs)}" if needs else ""


def lacks_text(labels: Sequence[str], memory: float | None) -> str:
    """Say what a PC lacks: labels, or, if its bytes of memory are given, memory."""
    if labels:
        return f"the PC does not have the label{'s' * (len(labels) > 1)} {_listed(labels)}"
    return f"the PC has {size(memory or 0)} of memory, which is too little"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
