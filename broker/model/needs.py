"""What tasks need beside their seconds, and what PCs have, in the words of the scheduler."""

from functools import lru_cache

from deskgrid.scheduler.need import Need, Speedup
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured
from deskgrid.wire import Join, PackedSpeedup, TaskOptions

# What a PC that runs MPI processes has for the scheduler, and a task of these needs. No label of people begins like it.
MPI = "--mpi"
# What a PC that has a version of Python has for it, and a task that needs one. No label of people has a space.
PYTHON = "Python "


@lru_cache(256)
def need_of(options: TaskOptions) -> Need:
    """What each task of a bag with these options needs."""
    (least, most), slots, memory = options.ranks, options.slots, options.memory
    labels = {*options.labels, *[MPI] * options.mpi, *([] if options.python is None else [PYTHON + options.python])}
    return Need(least, most, slots, memory, frozenset(labels), speedup_of(options.speedup), options.gang)


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


def labels_of(join: Join) -> frozenset[str]:
    """The labels of a PC."""
    return frozenset([*join.labels, *[MPI] * join.mpi, *[PYTHON + python for python in join.pythons]])
