"""What tasks need beside their seconds, and what PCs have, in the words of the scheduler."""

from functools import lru_cache

from deskgrid.scheduler.parallel.need import SINGLE, Need
from deskgrid.scheduler.parallel.speedup import Amdahl, Downey, Measured, Speedup
from deskgrid.wire import Join, PackedSpeedup, TaskOptions

# What a PC that runs MPI processes has for the scheduler, and a task of these needs. No label of people begins like it.
MPI = "--mpi"


def need_of(options: TaskOptions) -> Need:
    """What each task of a bag with these options needs."""
    least, most = options.ranks
    labels = (*options.labels, MPI) if options.mpi else options.labels
    return _need(least, most, options.slots, options.memory, labels, options.speedup, options.gang)


@lru_cache(256)
def _need(*facts: object) -> Need:
    """One value for all bags with the same need; for nearly all of them, this is `SINGLE`."""
    least, most, slots, memory, labels, speedup, gang = facts
    need = Need(least, most, slots, memory, frozenset(labels), speedup_of(speedup), gang)
    return SINGLE if need == SINGLE else need


def speedup_of(packed: PackedSpeedup) -> Speedup | None:
    """The speed-up of a moldable task, as it travels; None if there is none."""
    match packed:
        case ("amdahl", float(serial)):
            return Amdahl(serial)
        case ("downey", float(average), float(sigma)):
            return Downey(average, sigma)
        case ("table", *numbers):
            return Measured(tuple(zip(numbers[::2], numbers[1::2], strict=True)))
    return None


def labels_of(join: Join) -> frozenset[str]:
    """The labels of a PC."""
    return frozenset((*join.labels, MPI) if join.mpi else join.labels)
