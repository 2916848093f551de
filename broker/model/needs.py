"""What tasks need beside their seconds, and what PCs have, in the words of the scheduler."""

from functools import lru_cache
from math import inf

from deskgrid.scheduler.need import MEMORY, Amounts, Need, Speedup, amounts
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.wire import Join, PackedSpeedup, Resources, TaskOptions, counted

# What a PC that runs MPI processes has for the scheduler, and a task of these needs. No label of people begins like it.
MPI = "--mpi"
# What a PC that has a version of Python has for it, and a task that needs one. No label of people has a space.
PYTHON = "Python "


# What the platforms of wheels call systems and processors, and what labels do.
_SYSTEMS = {"linux": "linux", "musllinux": "linux", "macosx": "macos", "win": "windows", "win32": "windows"}
_PROCESSORS = {"amd64": "x86_64", "": "x86"}


@lru_cache(256)
def need_of(options: TaskOptions) -> Need:
    """What each task of a bag with these options needs."""
    (least, most), slots, needed = options.ranks, options.slots, _amounts(options.resources, options.memory)
    labels = {*options.labels, *[MPI] * options.mpi, *([] if options.python is None else [PYTHON + options.python])}
    return Need(least, most, slots, needed, frozenset(labels), speedup_of(options.speedup), options.gang)


def speedup_of(packed: PackedSpeedup) -> Speedup | None:
    """The speed-up of a moldable task, as it travels; None if there is none."""
    match packed:
        case ("amdahl", float(serial)):
            return Amdahl(serial)
        case ("downey", float(average), float(sigma)):
            return Downey(average, sigma)
        case ("table", *numbers):
            return Measured(tuple([(int(n), float(s)) for n, s in zip(numbers[::2], numbers[1::2], strict=True)]))
    return None


def amounts_of(join: Join) -> Amounts:
    """What a PC has of what is counted."""
    return _amounts(join.resources, join.memory or inf)


def _amounts(resources: Resources, memory: float) -> Amounts:
    return amounts({**dict(counted(resources)), MEMORY: memory})


def labels_of(join: Join) -> frozenset[str]:
    """The labels of a PC."""
    found = [] if join.platform is None else _found_labels(join.platform)
    return frozenset([*found, *join.labels, *[MPI] * join.mpi, *[PYTHON + python for python in join.pythons]])


def _found_labels(platform: str) -> list[str]:
    """The labels that every PC has: its system, and its kind of processor."""
    system, _, machine = platform.partition("_")
    return [f"os={_SYSTEMS[system]}", f"arch={_PROCESSORS.get(machine, machine)}"]
