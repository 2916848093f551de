"""The PCs of a simulated run while it goes on: their slots, what works on them, and how fast it advances.

Rule: something that works on several PCs advances as fast as on the slowest of them. On a PC it advances by speed x
(1 - load) x min(1, processors / slots at work): its processors are what others leave of them, shared evenly.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Protocol

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.need import Amounts
from deskgrid.scheduler.simulation.runs import Conditions, SimulatedPC
from deskgrid.scheduler.simulation.timetable import SpanCalendar


class Order(IntEnum):
    """The order of things that happen at one instant."""

    ENDS = 0
    CLOSES = 1
    ARRIVES = 2
    OPENS = 3


ENDS = Order.ENDS  # looked up once: enum members are slow to look up in Python 3.11


class Driver(Protocol):
    """What the parts of a simulator need of it."""

    now: float

    def at(self, time: float, order: Order, happens: Callable[[], None]) -> None:
        """Have something happen at ``time``."""

    def feed(self, event: ev.Event) -> None:
        """Pass ``event`` to the scheduler, and carry out its commands."""


@dataclass(slots=True)
class PCSlot:
    """The work of one slot, the first of it since ``started``; ``generation`` makes the ends of killed work stale.

    ``shares``: its first work, if its PC's processors are shared.
    """

    number: int
    work: deque[cmd.Assignment] = field(default_factory=deque)
    started: float = 0.0
    generation: int = 0
    shares: "SimulatedWork | None" = None


@dataclass(slots=True, eq=False)
class PC:
    """A PC in a run. ``opened``: when its window opened; ``announced``: when it is to close, as the PC says.

    ``told_speed``: the speed that the scheduler is told. ``load``: how much of its processors others use now, 0 to 1.
    ``shared``: whether work on it may become slower than its speed says. ``works``: what was put there and has not
    ended; ``busy``: how many slots advance.
    """

    name: str
    calendar: SpanCalendar
    slots: list[PCSlot]
    silent: bool
    speed: float
    told_speed: float
    site: str
    processors: int
    load: float
    shared: bool
    amounts: Amounts
    labels: frozenset[str]
    opened: float = 0.0
    announced: float = math.inf
    up: bool = False
    busy: int = 0
    works: dict["SimulatedWork", None] = field(default_factory=dict)

    def rate(self) -> float:
        """How much work one slot does in a second now."""
        usual = self.speed * (1.0 - self.load)
        return usual if self.busy <= self.processors else usual * self.processors / self.busy


def new_pc(pc: SimulatedPC, conditions: Conditions, *, told: bool) -> PC:
    """``pc`` as it is before a run. ``told``: whether the scheduler is told its speed."""
    processors = pc.processors or pc.slots
    shared = processors < pc.slots or pc.load > 0.0 or conditions.loads is not None or conditions.redrawn is not None
    return PC(
        name=pc.name,
        calendar=SpanCalendar(pc.timetable),
        slots=[*map(PCSlot, range(pc.slots))],
        silent=pc.silent,
        speed=pc.speed,
        told_speed=pc.speed if told else 1.0,
        site=pc.site,
        processors=processors,
        load=pc.load,
        shared=shared,
        amounts=pc.amounts,
        labels=pc.labels,
    )


@dataclass(slots=True, eq=False)
class SimulatedWork:
    """A gang, or a single task on a PC whose processors are shared, as a gang of one rank.

    ``ranks``: how many run on each PC, and ``slots``: how many slots each occupies. ``left``: what it still had to do
    at ``since``, in seconds at rate 1; ``rate``: since then. ``started``: when it began, overhead included.
    """

    task: int
    ranks: tuple[tuple[PC, int], ...]
    slots: int
    left: float
    ends: Callable[[], None]
    gang: bool = True
    started: float = math.inf
    since: float = 0.0
    rate: float = 0.0
    advances: bool = False
    generation: int = 0


Pace = Callable[[Sequence[SimulatedWork], float], Sequence[float]]


class Rates:
    """How fast each work advances. ``due``: something has changed, and `settle` has to be called before time goes on.

    ``pace``: gives the rates of all gangs, instead of the rule of this module.
    """

    def __init__(self, driver: Driver, pace: Pace | None) -> None:
        self.due = False
        self._driver = driver
        self._pace = pace
        # What advances, in the order in which it began; and what may have another rate from now on.
        self.advancing: dict[SimulatedWork, None] = {}
        self._stale: dict[SimulatedWork, None] = {}

    def put(self, work: SimulatedWork) -> None:
        """``work`` is on its PCs, and does not advance yet."""
        for pc, _ in work.ranks:
            pc.works[work] = None

    def begin(self, work: SimulatedWork) -> None:
        """``work`` advances from now on."""
        work.advances, work.since, self.due = True, self._driver.now, True
        self.advancing[work] = self._stale[work] = None
        for pc, ranks in work.ranks:
            pc.busy += ranks * work.slots
            if pc.busy > pc.processors:
                self._stale.update(pc.works)

    def take_off(self, work: SimulatedWork) -> None:
        """``work`` is no longer on its PCs: it has ended, or was stopped."""
        for pc, ranks in work.ranks:
            del pc.works[work]
            if work.advances:
                if pc.busy > pc.processors:
                    self._stale.update(pc.works)
                pc.busy -= ranks * work.slots
        if work.advances:
            work.advances, self.due = False, True
            work.generation += 1
            del self.advancing[work]

    def share(self, pc: PC, slot: PCSlot, generation: int, seconds: float, ends: Callable[[], None]) -> None:
        """The first attempt of a slot of a PC that is `shared` begins, unless it was stopped before."""
        if slot.generation == generation:
            slot.shares = SimulatedWork(slot.work[0].attempt.task, ((pc, 1),), 1, seconds, ends, gang=False)
            self.put(slot.shares)
            self.begin(slot.shares)

    def halt(self, slot: PCSlot) -> None:
        """What a slot does first, if anything, does not go on."""
        slot.generation += 1
        if slot.shares is not None:
            self.take_off(slot.shares)
            slot.shares = None

    def load(self, pc: PC, load: float) -> None:
        """Others use so much of a PC from now on."""
        pc.load, self.due = load, True
        self._stale.update(pc.works)

    def settle(self) -> None:
        """Give everything whose rate may have changed its new rate, and a new end."""
        stale, self._stale, self.due = self._stale, {}, False
        if self._pace is not None:
            gangs = [work for work in self.advancing if work.gang]
            for work, rate in zip(gangs, self._pace(gangs, self._driver.now), strict=True):
                self._advance(work, rate)
            stale = {work: None for work in stale if not work.gang}
        for work in stale:
            if work.advances:
                self._advance(work, min([pc.rate() for pc, _ in work.ranks]))

    def _advance(self, work: SimulatedWork, rate: float) -> None:
        now = self._driver.now
        if rate == work.rate:
            return
        work.left = max(0.0, work.left - (now - work.since) * work.rate)
        work.since, work.rate = now, rate
        work.generation += 1
        if rate > 0.0:
            self._driver.at(now + work.left / rate, ENDS, partial(self._ends, work, work.generation))

    def _ends(self, work: SimulatedWork, generation: int) -> None:
        if work.generation == generation:
            self.take_off(work)
            work.ends()
