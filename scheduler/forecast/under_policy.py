"""How much sooner or later a bag ends under another policy.

The forward run places tasks by a rule of its own, so it cannot tell policies apart. The simulator can: it is the real
scheduler with a virtual clock. So a picture is simulated under both policies, with the same runtimes, and the forecast
is stretched by the ratio of the two ends.

Rule: each slot is a PC of its own here, whose first window begins when what it runs now should have ended.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import inf
from random import Random
from statistics import median

from deskgrid.scheduler.forecast.picture import PC, Durations, Picture, Waiting
from deskgrid.scheduler.model import SchedulerError
from deskgrid.scheduler.parallel.need import SINGLE
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.simulation.runs import Arrival, SimulatedPC, Stalled
from deskgrid.scheduler.simulation.simulator import Simulator
from deskgrid.scheduler.simulation.timetable import Span, Timetable

# Tasks of a picture that is simulated at most, and of all its simulations under one policy, roughly: a task takes about
# 50 microseconds.
TASKS = 20_000
SIMULATED = 10_000
# The most simulations under one policy: their mean is what counts.
SIMULATIONS = 5
WEEK_S, WEEKS = 604_800.0, 8


class Untried(SchedulerError):
    """Another policy cannot be tried: more tasks wait than there is time for, or some need several slots at once."""


def stretch(picture: Picture, bag: int, present: Callable[[], Policy], other: Callable[[], Policy], seed: int) -> float:
    """When ``bag`` ends under the other policy, divided by when it ends under the present one. Infinity: never.

    Raises `Untried`.
    """
    if any(waiting.need != SINGLE for waiting in picture.bags):
        raise Untried("another policy can be tried only where all tasks need one slot of any PC")
    tasks = sum([group.count for waiting in picture.bags for group in waiting.groups])
    if tasks > TASKS:
        raise Untried(f"{tasks:,} tasks wait, too many to try another policy with: at most {TASKS:,}")
    seeds = range(seed, seed + max(1, min(SIMULATIONS, SIMULATED // max(1, tasks))))
    before = [simulated_end(picture, bag, present(), Random(each)) for each in seeds]
    after = [simulated_end(picture, bag, other(), Random(each)) for each in seeds]
    if not sum(before) or max(before) == inf:
        return 1.0
    return sum(after) / sum(before)


def simulated_end(picture: Picture, bag: int, policy: Policy, chance: Random) -> float:
    """When the last waiting task of a bag ends, in seconds; infinity if it never does."""
    rest = {pc.name: [_rest(picture, pc, place, chance) for place in range(len(pc.running))] for pc in picture.pcs}
    bags = [waiting for waiting in picture.bags if not waiting.barred and any(group.count for group in waiting.groups)]
    arrivals = sorted([(_arrival(waiting, chance), waiting.number) for waiting in bags], key=lambda each: each[0].at)
    starts = [0, *accumulate([len(arrival.runtimes) for arrival, _ in arrivals])]
    own = next((range(*starts[n : n + 2]) for n, (_, number) in enumerate(arrivals) if number == bag), None)
    if own is None:
        return 0.0
    pcs = [
        SimulatedPC(f"{pc.name} {slot}", timetable(pc, rest[pc.name][slot] if slot < len(rest[pc.name]) else 0.0))
        for pc in picture.pcs
        for slot in range(pc.slots)
    ]
    try:
        run = Simulator(policy, pcs, [arrival for arrival, _ in arrivals], trace=True).run()
    except Stalled:
        return inf
    return max([execution.end for execution in run.executions if execution.task in own])


def timetable(pc: PC, busy_s: float) -> Timetable:
    """The windows of a slot that is busy at first; those of the coming week come again, as a forecast has it."""

    def spans() -> Iterator[Span]:
        again = WEEKS if pc.spans and pc.spans[-1].opens > 0.0 and pc.spans[-1].closes < inf else 1
        last = busy_s
        for week in range(again):
            for span in pc.spans:
                opens, closes = max(last, span.opens + week * WEEK_S), span.closes + week * WEEK_S
                if opens < closes:
                    yield Span(opens, closes, closes)
                    last = closes

    return spans


def _rest(picture: Picture, pc: PC, place: int, chance: Random) -> float:
    """How much longer a task runs on a PC. One that has outlived all that is known ends soon."""
    running = pc.running[place]
    waiting = next(each for each in picture.bags if each.number == running.bag)
    points = [point - running.elapsed for point in waiting.groups[running.group].durations.points]
    return chance.choice([point for point in points if point > 0.0] or [0.0])


def _arrival(waiting: Waiting, chance: Random) -> Arrival:
    """The waiting tasks of a bag, as the simulator takes them: what is predicted is the middle of what is known."""
    predicted, actual = list[float](), list[float]()
    for group in waiting.groups:
        predicted += [median(group.durations.points)] * group.count
        actual += _draws(group.durations, group.count, chance)
    return Arrival(predicted, actual, at=waiting.begins, owner=waiting.share)


def _draws(durations: Durations, count: int, chance: Random) -> Sequence[float]:
    return chance.choices(durations.points, k=count)
