"""What is told of tasks that need more than a slot for some time: at submit, and by `explain`. Pure.

A bag that no PC, or no site, can run as things are is accepted, and waits. A PC counts whether its window is open or
not, as long as the broker knows it.
"""

from collections import Counter
from collections.abc import Sequence

from deskgrid import wire
from deskgrid.durations import precise
from deskgrid.scheduler.parallel.need import Need
from deskgrid.scheduler.views.together import Together
from deskgrid.sizes import size
from deskgrid.wire import TaskOptions

WAIT = "the tasks wait until that changes"
LONGER = "the tasks wait for longer windows"


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
        which += f"{' and' if which else ' that allows'} MPI"
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


def never_together(need: Need, seconds: float, best: Together | None) -> str:
    """Return why enough ranks for ``need`` are never together for ``seconds``; empty if they are."""
    if best is not None and best.ranks >= need.least:
        return ""
    what = what_is_needed(need)
    if best is None:
        return f"a task needs {what} for {precise(seconds)}, and no window known is that long: {LONGER}"
    return f"a task needs {what} for {precise(seconds)}; at most {_most(need, best)}: {LONGER}"


def together_text(need: Need, best: Together | None) -> str:
    """Say when as many ranks as ``need`` asks for can be together, or how many can."""
    if best is None:
        return "no PC that is known has what it needs for so long"
    if best.ranks < need.least:
        return f"at most {_most(need, best)}"
    if best.starts_in_s > 0:
        return f"PCs{_at(best)} have room for it in {precise(best.starts_in_s)}, at the earliest"
    return f"PCs{_at(best)} have room for it, when other tasks there have ended, and those before it have begun"


def lacks_text(labels: Sequence[str], memory: float | None) -> str:
    """Say what a PC lacks: labels, or, if its bytes of memory are given, memory."""
    if labels:
        return f"the PC has not the label{'s' * (len(labels) > 1)} {_listed(labels)}"
    return f"the PC has {size(memory or 0)} of memory, which is too little"


def what_is_needed(need: Need) -> str:
    """What a parallel task needs at once: 4 slots of one PC, or 2 to 16 ranks of one site."""
    slots = f"{need.slots} slots of one PC"
    if not need.gang:
        return slots
    ranks = f"{need.least} to {need.most}" if need.least < need.most else f"{need.most}"
    noun = "rank" if need.most == 1 else "ranks"
    return f"{ranks} {noun} of one site" + (f", each on {slots}," if need.slots > 1 else "")


def _most(need: Need, best: Together) -> str:
    when = f", in {precise(best.starts_in_s)}" if best.starts_in_s > 0 else ""
    are = "is" if best.ranks == 1 else "are"
    at = f" at {best.site}" if best.site else ""
    return f"{best.ranks} {are} together for so long{at}{when}"


def _at(best: Together) -> str:
    return f" of {best.site}" if best.site else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
