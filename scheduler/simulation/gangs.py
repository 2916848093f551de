"""The gangs of a simulated run: they begin on all their ranks at once, and end as one.

Rule: a gang is whole or not there. When the window of one of its PCs closes, all of it is lost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.model import Attempt, AttemptOutcome, SchedulerError
from deskgrid.scheduler.simulation.pcs import PC, Driver, Order, Rates, SimulatedWork
from deskgrid.scheduler.simulation.runs import Arrival, Conditions, Execution, GangExecution


@dataclass(slots=True, eq=False)
class _SimulatedGang:
    """An attempt of a gang, from when it is prepared. ``places``: the slots of each rank; ``by_pc``: of all on a PC."""

    attempt: Attempt
    places: Sequence[cmd.RankPlace]
    by_pc: Mapping[str, Sequence[int]]
    work: SimulatedWork
    considered: Mapping[str, float] | None = None

    @property
    def slots(self) -> int:
        """How many slots it occupies."""
        return len(self.places) * self.work.slots


class SimulatedGangs:
    """Carries out what the scheduler says of gangs, and tells it what becomes of them.

    ``takes``: how long the next attempt of a task takes that usually takes so long. ``traced``: takes each `Execution`;
    None if nobody asks for them.
    """

    def __init__(
        self,
        driver: Driver,
        pcs: Mapping[str, PC],
        rates: Rates,
        conditions: Conditions,
        *,
        takes: Callable[[int, float], float],
        traced: Callable[[Execution], None] | None,
    ) -> None:
        self.executions: list[GangExecution] = []
        self.ran_s = 0.0  # of attempts that ended or were stopped, for each slot
        self._driver = driver
        self._pcs = pcs
        self._conditions = conditions
        self._rates = rates
        self._takes = takes
        self._traced = traced
        self._arrivals: dict[int, tuple[Arrival, float]] = {}  # by task, with how long it really takes
        self._gangs: dict[int, _SimulatedGang] = {}  # by task: those that are prepared, and those that run
        # Those that run already, and which of their PCs have not opened their windows.
        self._unfound: dict[_SimulatedGang, set[str]] = {}
        self._random = Random(f"loads {conditions.seed}")
        if conditions.loads is not None:
            self._changes = conditions.loads()
            self._next_load()

    def __bool__(self) -> bool:
        """Whether a gang is being prepared, or runs."""
        return bool(self._gangs)

    # --- they arrive -------------------------------------------------------------------------------------------------

    def arrive(self, first: int, arrival: Arrival) -> Sequence[Attempt]:
        """Note the gangs of an arrival, tasks from ``first`` on. Returns the attempts that will be found running."""
        self._arrivals.update({task: (arrival, seconds) for task, seconds in enumerate(arrival.really(), first)})
        self._redraw()
        if not arrival.running:
            return ()
        places: list[cmd.RankPlace] = []
        slots = arrival.need.slots
        for name, ranks in arrival.running:
            pc = self._pcs[name]
            taken = sum([running * work.slots for work in pc.works for other, running in work.ranks if other is pc])
            if taken + ranks * slots > len(pc.slots):
                raise SchedulerError(f"more runs on {name} than it has slots")
            firsts = range(taken, taken + ranks * slots, slots)
            places += [cmd.RankPlace(name, tuple(range(number, number + slots))) for number in firsts]
        # At most one attempt of each task is older than the run, so it can have the number of its task, from 1 on.
        gang = self._put(Attempt(first, first + 1), places)
        self._unfound[gang] = {name for name, _ in arrival.running}
        return (gang.attempt,)

    def holds(self, pc: PC) -> Sequence[ev.HeldAttempt]:
        """What is found running on ``pc``, whose window opens: a row for each slot."""
        found: list[ev.HeldAttempt] = []
        for gang, names in self._unfound.items():
            names.discard(pc.name)
            for rank, place in enumerate(gang.places):
                if place.worker == pc.name:
                    found += [ev.HeldAttempt(gang.attempt, slot, 0.0, rank) for slot in place.slots]
        return found

    def found(self) -> None:
        """Gangs whose ranks have all been found begin."""
        for gang in [gang for gang, names in self._unfound.items() if not names]:
            del self._unfound[gang]
            self._begins(gang)

    # --- they start --------------------------------------------------------------------------------------------------

    def start(self, command: cmd.StartGang) -> None:
        """Prepare all ranks. They begin when that has taken its time, and all their PCs are ready."""
        gang = self._put(command.attempt, command.ranks)
        gang.considered = command.considered
        driver, conditions = self._driver, self._conditions
        ready = max([pc.opened for pc, _ in gang.work.ranks]) + conditions.opening_s
        takes = conditions.gang_start_s + conditions.rank_start_s * len(gang.places)
        begins = max(driver.now + takes, ready if conditions.opening_s else 0.0)
        if begins > driver.now:
            driver.at(begins, Order.ARRIVES, partial(self._begins, gang))
        else:
            self._begins(gang)

    def _put(self, attempt: Attempt, places: Sequence[cmd.RankPlace]) -> _SimulatedGang:
        task = attempt.task
        arrival, seconds = self._arrivals[task]
        width, before = len(places[0].slots), ""
        by_pc: dict[str, list[int]] = {}
        taken: list[int] = []
        for worker, slots in places:
            if worker != before:
                taken, before = by_pc.setdefault(worker, []), worker
            taken += slots
        ranks = tuple([(self._pcs[name], len(taken) // width) for name, taken in by_pc.items()])
        left = self._takes(task, arrival.need.seconds(seconds, len(places)))
        work = SimulatedWork(task, ranks, width, left, partial(self._ends, task))
        self._gangs[task] = gang = _SimulatedGang(attempt, places, by_pc, work)
        self._rates.put(work)
        return gang

    def _begins(self, gang: _SimulatedGang) -> None:
        if self._gangs.get(gang.attempt.task) is not gang:
            return  # it was lost or stopped before
        driver, overhead_s = self._driver, self._conditions.overhead_s
        gang.work.started = driver.now
        driver.feed(ev.GangBegan(gang.attempt))
        if overhead_s:
            driver.at(driver.now + overhead_s, Order.ENDS, partial(self._works, gang))
        else:
            self._rates.begin(gang.work)

    def _works(self, gang: _SimulatedGang) -> None:
        """Its overhead is over."""
        if self._gangs.get(gang.attempt.task) is gang:
            self._rates.begin(gang.work)

    # --- they end ----------------------------------------------------------------------------------------------------

    def _ends(self, task: int) -> None:
        """All ranks have done their work."""
        gang = self._gangs.pop(task)
        elapsed = self._record(gang, done=True)
        self.ran_s += (elapsed - self._conditions.overhead_s) * gang.slots
        self._driver.feed(
            ev.AttemptsEnded(gang.places[0].worker, [ev.EndedAttempt(gang.attempt, AttemptOutcome.DONE, elapsed)])
        )
        self._redraw()

    def stop(self, attempts: Iterable[Attempt]) -> None:
        """End those of these attempts that are gangs, all ranks at once, without a result."""
        for attempt in attempts:
            gang = self._gangs.get(attempt.task)
            if gang is not None and gang.attempt == attempt:
                self.ran_s += self._lose(gang) * gang.slots

    def close(self, pc: PC) -> tuple[list[Attempt], dict[int, float]]:
        """The window of ``pc`` closes: its gangs are lost. Returns those that had not begun; how long others ran."""
        unstarted: list[Attempt] = []
        ran: dict[int, float] = {}
        for work in [work for work in pc.works if work.gang]:
            gang = self._gangs[work.task]
            elapsed = self._lose(gang)
            if work.started > self._driver.now:
                unstarted.append(gang.attempt)
            else:
                ran[work.task] = elapsed
        return unstarted, ran

    def _lose(self, gang: _SimulatedGang) -> float:
        """Take a gang off its PCs. Returns for how many seconds it had run."""
        del self._gangs[gang.attempt.task]
        self._rates.take_off(gang.work)
        return self._record(gang, done=False) if gang.work.started <= self._driver.now else 0.0

    def _record(self, gang: _SimulatedGang, done: bool) -> float:
        work, now = gang.work, self._driver.now
        slots = tuple([(name, tuple(numbers)) for name, numbers in gang.by_pc.items()])
        ranks = tuple([(pc.name, count) for pc, count in work.ranks])
        site, submitted = work.ranks[0][0].site, self._arrivals[work.task][0].at
        self.executions.append(
            GangExecution(work.task, site, ranks, slots, submitted, work.started, now, done, gang.considered)
        )
        if self._traced is not None:
            for worker, numbers in slots:
                for number in numbers:
                    self._traced(Execution(worker, number, work.task, work.started, now, done))
        return now - work.started

    # --- what others use ---------------------------------------------------------------------------------------------

    def _redraw(self) -> None:
        """A gang has arrived or ended: what others use of the PCs is another amount from now on, if it is drawn."""
        if (draw := self._conditions.redrawn) is not None:
            for pc in self._pcs.values():
                self._load(pc, draw(self._random))

    def _next_load(self) -> None:
        """Wait for the next change of a load."""
        if (change := next(self._changes, None)) is not None:
            when, name, load = change
            self._driver.at(when, Order.ARRIVES, partial(self._changes_load, self._pcs[name], load))

    def _changes_load(self, pc: PC, load: float) -> None:
        self._load(pc, load)
        self._next_load()

    def _load(self, pc: PC, load: float) -> None:
        if not 0.0 <= load <= 1.0:
            raise SchedulerError(f"a load of {load} on {pc.name}")
        if load != pc.load:
            self._rates.load(pc, load)
            if pc.up:
                self._driver.feed(ev.WorkerMeasured(pc.name, pc.told_speed, load))
