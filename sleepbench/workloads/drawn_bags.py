"""Bags that are drawn, for measurements without a log: some programs, each with bags of its own size and spread."""

from math import exp, log
from random import Random

from deskgrid.sleepbench.workloads.task_log import LoggedTask, LoggedTasks

PROGRAMS = 12
# The bounds of a program's usual runtime, in seconds, and of the spread of the logarithm within a bag.
USUAL_S = (3.0, 600.0)
SPREAD = (0.05, 1.0)
# The spread of the logarithm of a bag's mean about that of its program, and from a bag's beginning to its end.
BAGS, DRIFT = 0.4, 0.2
# Tasks of a bag.
SIZES = (20, 2_000)


def drawn_bags(seed: int, count: int) -> LoggedTasks:
    """So many bags."""
    chance = Random(seed)
    programs = [
        (f"program {number}", _between(USUAL_S, chance), _between(SPREAD, chance)) for number in range(PROGRAMS)
    ]
    streams = []
    for bag in range(count):
        program, usual, spread = chance.choice(programs)
        usual *= exp(chance.gauss(0.0, BAGS))
        size, drift = round(_between(SIZES, chance)), chance.gauss(0.0, DRIFT)
        streams.append(
            tuple(
                LoggedTask(
                    f"bag {bag}",
                    program,
                    program,
                    usual * exp(drift * place / size) * chance.lognormvariate(0.0, spread),
                )
                for place in range(size)
            )
        )
    tasks = sum(map(len, streams))
    return LoggedTasks(f"{tasks:,} tasks of {count:,} bags, drawn", tuple(streams))


def _between(bounds: tuple[float, float], chance: Random) -> float:
    """Log-uniform."""
    return exp(chance.uniform(log(bounds[0]), log(bounds[1])))
