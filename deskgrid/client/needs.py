"""What each task needs beside its seconds, as a program gives it: ranks, slots, memory, resources, labels, speed-ups.

Each is read into the fields of `TaskOptions`. What is refused is refused in one line that names the option, and says
what to give instead.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deskgrid import wire
from deskgrid.errors import BagRejected
from deskgrid.resources import resources_of
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.sizes import read_size
from deskgrid.wire import PackedSpeedup, TaskOptions
from deskgrid.wire.limits import SPEEDUP_LIMIT, SPEEDUPS_LIMIT

# What a program gives as ranks, as a speed-up, as memory, and as labels.
Gang = int | tuple[int, int]
SpeedupGiven = Amdahl | Downey | Mapping[int, float]
Size = int | str
Labels = str | Iterable[str]

_SPEEDUPS = "Amdahl(s), Downey(A, sigma), or a table such as {1: 1, 2: 1.9, 4: 3.4}"


def read_gang(gang: object) -> dict[str, object]:
    """Read how many ranks a task has. Raises `BagRejected`."""
    pair = gang if isinstance(gang, tuple | list) else (gang, gang)
    if len(pair) != 2 or any(type(ranks) is not int or not 1 <= ranks <= wire.RANKS_LIMIT for ranks in pair):
        raise BagRejected(
            f"gang is a number of ranks from 1 to {wire.RANKS_LIMIT:,}, or the least and the most, such as (2, 16), "
            f"not {gang!r:.80}"
        )
    least, most = pair
    if least > most:
        raise BagRejected(f"gang has the least number of ranks first: give gang=({most}, {least}), not {gang!r:.80}")
    return {"ranks": (least, most), "gang": True}


def read_memory(memory: object) -> dict[str, object]:
    """Read how much memory each rank needs. Raises `BagRejected`."""
    count = memory
    if isinstance(memory, str):
        try:
            count = read_size(memory)
        except ValueError:
            count = None
    if type(count) is not int or count < 1:
        raise BagRejected(f'memory is a number of bytes, or a size such as "512M" or "4G", not {memory!r:.80}')
    if count > wire.MEMORY_LIMIT:
        raise BagRejected(f"memory is {memory!r:.80}, which is more than any PC has")
    return {"memory": count}


def read_resources(resources: object) -> dict[str, object]:
    """Read the counted resources that each rank needs. Raises `BagRejected`."""
    if not isinstance(resources, Mapping):
        raise BagRejected(f'resources are names with amounts, such as {{"gpu": 1}}, not {resources!r:.80}')
    try:
        return {"resources": resources_of(resources)}
    except ValueError as error:
        raise BagRejected(f"resources: {error}") from error


def read_labels(labels: object) -> dict[str, object]:
    """Read the labels that PCs must have. Raises `BagRejected`."""
    given = [labels] if isinstance(labels, str) else labels
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise BagRejected(f'labels are names such as "gpu" or {{"gpu", "matlab"}}, not {labels!r:.80}')
    names = set[str]()
    for name in given:
        if not isinstance(name, str) or not re.fullmatch(wire.LABEL, name):
            raise BagRejected(f'a label is 1 to 64 letters, digits or . _ -, such as "gpu", not {name!r:.80}')
        names.add(name)
    if len(names) > wire.LABELS_LIMIT:
        raise BagRejected(f"labels are {wire.LABELS_LIMIT} at most, not {len(names)}")
    return {"labels": tuple(sorted(names))}


def read_speedup(speedup: object) -> dict[str, object]:
    """Read how much faster a task is on more ranks. Raises `BagRejected`."""
    if isinstance(speedup, Mapping):
        speedup = _table(speedup)
    if callable(speedup):
        raise BagRejected(f"speedup is {_SPEEDUPS}; give a function's values as a table")
    packed = _packed(speedup)
    if not packed:
        raise BagRejected(f"speedup is {_SPEEDUPS}, not {speedup!r:.80}")
    if any(isinstance(number, float) and number > SPEEDUP_LIMIT for number in packed):
        raise BagRejected(f"speedup has no numbers above {SPEEDUP_LIMIT:g}, as {speedup!r:.80} has")
    return {"speedup": packed}


def _table(given: Mapping[Any, Any]) -> Measured:
    """Read a table of speed-ups by numbers of ranks."""
    for ranks, value in given.items():
        if type(ranks) is not int or not 1 <= ranks <= wire.RANKS_LIMIT or type(value) not in (int, float):
            raise BagRejected(f"speedup has numbers of ranks and their speed-ups, not {ranks!r:.40}: {value!r:.40}")
    if given.get(1) != 1:
        raise BagRejected("a table of speed-ups begins with 1: 1, which is the speed-up of one rank")
    if len(given) > SPEEDUPS_LIMIT:
        raise BagRejected(f"speedup has {SPEEDUPS_LIMIT} numbers of ranks at most, not {len(given)}")
    try:
        found = Measured(tuple(sorted([(ranks, float(value)) for ranks, value in given.items()])))
    except (ValueError, OverflowError) as error:
        raise BagRejected(f"speedup: {error}") from error
    if min(value for _, value in found.points) < 1 / SPEEDUP_LIMIT:
        raise BagRejected(f"speedup has no speed-ups below {1 / SPEEDUP_LIMIT:g}, as {given!r:.80} has")
    return found


def _packed(speedup: object) -> PackedSpeedup:
    """Return a speed-up as `TaskOptions` has it; nothing if it is none."""
    match speedup:
        case Amdahl(serial):
            return "amdahl", float(serial)
        case Downey(average, sigma):
            return "downey", float(average), float(sigma)
        case Measured(points):
            return "table", *[number for point in points for number in point]
    return ()


def check_needs(options: TaskOptions) -> None:
    """Check that what a task needs goes together. Raises `BagRejected`."""
    slots: Any = options.slots  # what a program gives may be of any type
    least, most = options.ranks
    if type(slots) is not int or not 1 <= slots <= wire.SLOTS_LIMIT:
        raise BagRejected(f"slots is a number of slots of one PC from 1 to {wire.SLOTS_LIMIT:,}, not {slots!r:.80}")
    if type(options.mpi) is not bool:
        raise BagRejected(f"mpi is True or False, not {options.mpi!r:.80}")
    if least < most and not options.speedup:
        raise BagRejected(
            f"gang=({least}, {most}) lets the grid choose the number of ranks: say with speedup what more of them are "
            f"worth, as {_SPEEDUPS}, or give one number"
        )
    for name in ("speedup", "mpi"):
        if getattr(options, name) and not options.gang:
            raise BagRejected(f"{name} is for tasks of several ranks: give gang, too, such as gang=4")
    if not options.gang and slots == 1:
        return
    what = "gang" if options.gang else "slots"
    if options.checkpoint:
        raise BagRejected(f"checkpoint is for tasks of one slot: leave out {what}, or save the state in files yourself")
    if options.copies:
        raise BagRejected(f"copies is for tasks of one slot: leave out {what} or copies")


# How options are read that a program gives in another form.
READERS: Mapping[str, Callable[[Any], Mapping[str, object]]] = {
    "memory": read_memory,
    "resources": read_resources,
    "labels": read_labels,
    "speedup": read_speedup,
}
