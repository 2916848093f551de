"""How much sooner or later a bag ends under another policy.

The forward run places tasks by a rule of its own, so it cannot tell policies apart. The simulator can: it is the real
scheduler with a virtual clock. So a picture is simulated under both policies, with the same runtimes, and the forecast
is stretched by the ratio of the two ends.

Rule: if all tasks need one slot of any PC, each slot is a PC of its own here, whose first window begins when what it
runs now should have ended. Else PCs are whole, and what they run now runs there at first.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from math import inf
from random import Random
from statistics import median

from deskgrid.scheduler.forecast.picture import Durations, Picture, PictureBag, PicturePC, PictureTask
from deskgrid.scheduler.model import SchedulerError
from deskgrid.scheduler.need import SINGLE, Need
from deskgrid.scheduler.policies.base import Policy
from deskgrid.scheduler.prediction.beyond import beyond
from deskgrid.scheduler.simulation.runs import Arrival, SimulatedPC, Stalled
from deskgrid.scheduler.simulation.simulator import Simulator
from deskgrid.scheduler.simulation.timetable import RealWindow, Timetable

# Tasks of a picture that is simulated at most, and of all its simulations under one policy, roughly: a task takes about
# 50 microseconds, and beside parallel ones so many times as long.
TASKS = 20_000
SIMULATED = 10_000
PARALLEL = 50
# The most simulations under one policy: their mean is what counts.
SIMULATIONS = 5
# The bag of what runs already, while that is simulated.
RUNS_NOW = -2


class Untried(SchedulerError):
    """Another policy cannot be tried, because more tasks wait than there is time for."""


def stretch(picture: Picture, bag: int, present: Callable[[], Policy], other: Callable[[], Policy], seed: int) -> float:
    """When ``bag`` ends under the other policy, divided by when it ends under the present one. Infinity: never.

    Raises `Untried`.
    """
    tasks = sum([group.count for waiting in picture.bags for group in waiting.groups])
    parallel = any(waiting.need.parallel for waiting in picture.bags)
    takes = PARALLEL if parallel else 1
    if tasks * takes > TASKS:
        most = f"at most {TASKS // takes:,}" + (" where some are parallel" if parallel else "")
        raise Untried(f"{tasks:,} tasks wait, too many to try another policy with: {most}")
    seeds = range(seed, seed + max(1, min(SIMULATIONS, SIMULATED // max(1, tasks * takes))))
    before = [simulated_end(picture, bag, present(), Random(each)) for each in seeds]
    after = [simulated_end(picture, bag, other(), Random(each)) for each in seeds]
    if not sum(before) or max(before) == inf:
        return 1.0
    return sum(after) / sum(before)


def simulated_end(picture: Picture, bag: int, policy: Policy, chance: Random) -> float:
    """When the last waiting task of a bag ends, in seconds; infinity if it never does."""
    bags = [waiting for waiting in picture.bags if not waiting.barred and any(group.count for group in waiting.groups)]
    arrivals = sorted([(_arrival(waiting, chance), waiting.number) for waiting in bags], key=lambda each: each[0].at)
    if all(waiting.need == SINGLE for waiting in bags):
        pcs = _slots(picture, chance)
    else:
        parallel = any(waiting.need.parallel for waiting in bags)
        pcs = [_whole(pc, parallel) for pc in picture.pcs]
        arrivals = [(arrival, RUNS_NOW) for arrival in _run_now(picture, chance)] + arrivals
    starts = [0, *accumulate([len(arrival.runtimes) for arrival, _ in arrivals])]
    own = next((range(*starts[n : n + 2]) for n, (_, number) in enumerate(arrivals) if number == bag), None)
    if own is None:
        return 0.0
    try:
        run = Simulator(policy, pcs, [arrival for arrival, _ in arrivals], trace=True).run()
    except Stalled:
        return inf
    ends = [execution.end for execution in run.executions if execution.task in own]
    return max(ends + [gang.end for gang in run.gangs if gang.task in own])


def _slots(picture: Picture, chance: Random) -> list[SimulatedPC]:
    """Each slot as a PC."""
    found = list[SimulatedPC]()
    for pc in picture.pcs:
        rest = [_rest(picture, running, chance) for running in pc.running]
        rest += [0.0] * (pc.slots - len(rest))
        found += [SimulatedPC(f"{pc.name} {slot}", timetable(pc, rest[slot])) for slot in range(pc.slots)]
    return found


def _whole(pc: PicturePC, parallel: bool) -> SimulatedPC:
    """A PC with all its slots. One that others cannot reach is a site of its own."""
    site = pc.site if pc.reachable else f"only {pc.name}"
    speed = pc.speed if parallel else 1.0
    return SimulatedPC(
        pc.name, timetable(pc, 0.0), pc.slots, speed=speed, site=site, amounts=pc.amounts, labels=pc.labels
    )


def _run_now(picture: Picture, chance: Random) -> Iterator[Arrival]:
    """What runs now on PCs that are up: each as a gang, with a rank for each slot."""
    found: dict[tuple[str, int], tuple[PictureTask, list[PicturePC]]] = {}
    for pc in picture.pcs:
        if not pc.spans or not pc.spans[0].opens <= 0.0 < pc.spans[0].closes:
            continue  # it should have gone: nobody knows when it does
        for slot, running in enumerate(pc.running):
            key = ("", running.gang) if running.gang else (pc.name, slot)
            found.setdefault(key, (running, []))[1].append(pc)
    for running, on in found.values():
        rest = _rest(picture, running, chance, len(on), min([pc.speed for pc in on]))
        ranks = Counter([pc.name for pc in on])
        yield Arrival([rest], need=Need(len(on), len(on), gang=True), running=list(ranks.items()))


def timetable(pc: PicturePC, busy_s: float) -> Timetable:
    """The windows of a slot that is busy at first, and those that are expected beyond them."""

    def spans() -> Iterator[RealWindow]:
        last = busy_s
        for span, later in chain([(span, 0.0) for span in pc.spans], beyond(pc.spans, pc.period_s)):
            opens, closes = max(last, span.opens + later), span.closes + later
            if opens < closes:
                yield RealWindow(opens, closes, closes)
                last = closes

    return spans


def _rest(picture: Picture, running: PictureTask, chance: Random, slots: int = 1, speed: float = 1.0) -> float:
    """What a task that runs still needs, in seconds at speed 1. One that has outlived all that is known ends soon."""
    waiting = next(each for each in picture.bags if each.number == running.bag)
    need, points = waiting.need, waiting.groups[running.group].durations.points
    left = [need.seconds(point, slots // need.slots) - running.elapsed * speed for point in points]
    return chance.choice([seconds for seconds in left if seconds > 0.0] or [0.0])


def _arrival(waiting: PictureBag, chance: Random) -> Arrival:
    """The waiting tasks of a bag, as the simulator takes them: what is predicted is the middle of what is known."""
    predicted, actual = list[float](), list[float]()
    for group in waiting.groups:
        predicted += [median(group.durations.points)] * group.count
        actual += _draws(group.durations, group.count, chance)
    return Arrival(predicted, actual, at=waiting.begins, owner=waiting.share, need=waiting.need)


def _draws(durations: Durations, count: int, chance: Random) -> Sequence[float]:
    return chance.choices(durations.points, k=count)
