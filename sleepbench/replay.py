"""A broker's own past under other policies: replay the tasks and windows of its journal in virtual time.

Rule 1: every policy gets the same input: the tasks with their arrivals, predictions and elapsed times, and the windows
as they were announced and as they really were. Further assumptions are listed (`Replay.assumed`).
Rule 2: the real outcome is shown beside the simulated ones. It comes from the record, not from a simulation.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count

from deskgrid.scheduler.model import OPEN_ENDED
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.simulation.simulator import Arrival, RealWindow, Run, SimulatedPC, Simulator, Stalled
from deskgrid.sleepbench.history import History, HistoryError, PastBatch, PastWindow, whole
from deskgrid.sleepbench.scenarios import Figures, Row, new_row
from deskgrid.sleepbench.simulated import figures_of
from deskgrid.sleepbench.workloads.combine import soonest_s

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
# The real outcome appears under this name among the policies.
RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Again:
    """The spans of one PC, repeated with this ``period``."""

    spans: tuple[RealWindow, ...]
    period: float

    def __call__(self) -> Iterator[RealWindow]:
        """The spans from the beginning. They never end, unless one of them lasts for ever."""
        last = 0.0
        for number in count():
            for span in self.spans:
                opens = max(span.opens + number * self.period, last)
                closes = span.closes + number * self.period
                if closes > opens:  # otherwise it lies within a span that is still open
                    announced = span.announced + number * self.period
                    yield RealWindow(opens, closes, announced if announced > opens else closes)
                    last = closes
                if last == OPEN_ENDED:
                    return


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome under one policy. ``turnarounds_s``: by bag. ``stalled``: why there is no outcome, or empty."""

    policy: str
    row: Row | None
    turnarounds_s: dict[int, float]
    stalled: str = ""


class Replay:
    """A journal prepared for replay: arrivals, PCs, and the real outcome. Seconds from the first submission."""

    def __init__(self, history: History, bags: Collection[str] = (), since: float = -math.inf) -> None:
        """Take the whole journal, or only these bags, or only submissions ``since`` then; raises `HistoryError`."""
        if unknown := [bag for bag in bags if bag not in {known.id for known in history.bags}]:
            raise HistoryError(f"no bag {unknown[0]} in this journal: it was forgotten, or belongs to another")
        self._chosen = bool(bags)
        self.batches = [
            batch for batch in history.batches if (not bags or batch.bag.id in bags) and batch.arrived >= since
        ]
        if not self.batches:
            raise HistoryError("no task of this ended with a known runtime: there is nothing to replay")
        self._moldable = sum(len(batch.tasks) for batch in self.batches if _is_moldable(batch))
        self.batches = [batch for batch in self.batches if not _is_moldable(batch)]
        if not self.batches:
            raise HistoryError("all of these tasks are moldable: how many slots they had is not recorded")
        self.start = self.batches[0].arrived
        self.bags = {batch.bag.number: batch.bag for batch in self.batches}
        self.tasks = sum(len(batch.tasks) for batch in self.batches)
        self.work_s = math.fsum(batch.bag.need.width * task.elapsed for batch in self.batches for task in batch.tasks)
        self.period = _period(history.until - self.start)
        idle_from = max(task.ended or self.start for batch in self.batches for task in batch.tasks)
        self._windows = whole(history.windows, history.until, idle_from)
        self._recorded = [window for window in history.windows if window.closed >= self.start]
        self.pcs = [*self._pcs()]
        if not self.pcs:
            raise HistoryError("no worker's window is recorded from the first of these submissions on")
        self._longest: dict[int, float] = {}
        for batch in self.batches:
            longest = max(task.elapsed for task in batch.tasks)
            self._longest[batch.bag.number] = max(longest, self._longest.get(batch.bag.number, 0.0))
        self.arrivals = [self._arrival(batch) for batch in self.batches]
        self.lower_bound_s = soonest_s(self.arrivals, self.pcs)

    def _pcs(self) -> Iterator[SimulatedPC]:
        """A PC for each worker, each number of slots that it has had, and each site where it was."""
        for worker, windows in self._windows.items():
            for slots, site in sorted({(window.slots, window.site) for window in windows}):
                its = [window for window in windows if (window.slots, window.site) == (slots, site)]
                if spans := tuple([span for window in its for span in self._spans(window)]):
                    name = f"{worker}/{slots}" + (f"/{site}" if site else "")
                    yield SimulatedPC(name, Again(spans, self.period), slots, site=site)

    def _spans(self, window: PastWindow) -> Iterator[RealWindow]:
        opens, closes = max(0.0, window.opened - self.start), window.closed - self.start
        announced = OPEN_ENDED if window.planned is None else window.planned - self.start
        if closes > opens:
            # A window that stayed open after its announced closing must have been announced again.
            yield RealWindow(opens, closes, announced if announced > opens else closes)

    def _arrival(self, batch: PastBatch) -> Arrival:
        actual = [task.elapsed for task in batch.tasks]
        predicted = [task.predicted for task in batch.tasks]
        if not batch.bag.predicted:
            predicted = [self._longest[batch.bag.number]] * len(actual)
        return Arrival(predicted, actual, batch.arrived - self.start, need=batch.bag.need)

    # --- the real outcome, and the simulated ones -------------------------------------------------------------------

    def recorded(self) -> Played:
        """The real outcome, as far as the journal has it."""
        ends = [task.ended for batch in self.batches for task in batch.tasks]
        known = [ended for ended in ends if ended is not None]
        if len(known) < len(ends):
            return Played(RECORDED, None, {}, "times are not known: an earlier deskgrid did not write them down")
        kills = sum(window.kills for window in self._recorded)
        planned = sum(window.kills for window in self._recorded if window.how == "departure")
        wasted_s = math.fsum(window.wasted_s for window in self._recorded)
        makespan_s = max(known) - self.start
        open_s = sum(self._open_s(window, makespan_s) for windows in self._windows.values() for window in windows)
        figures = Figures(makespan_s, kills, planned, wasted_s, max(0.0, open_s - self.work_s - wasted_s))
        return Played(
            RECORDED,
            self._row(RECORDED, figures),
            self._turnarounds(zip(self._bag_of_task(), known, strict=True), self.start),
        )

    def _open_s(self, window: PastWindow, makespan_s: float) -> float:
        opens, closes = max(window.opened, self.start), min(window.closed, self.start + makespan_s)
        return window.slots * max(0.0, closes - opens)

    def play(self, policy: str) -> Played:
        """The outcome under ``policy``, with the options a broker would give it: a real grid needs its margins."""
        try:
            run = Simulator(make_policy(policy), self.pcs, self.arrivals, trace=True).run()
        except Stalled as error:
            return Played(policy, None, {}, f"never ends: {error}")
        return Played(policy, self._row(policy, figures_of(run)), self._turnarounds(self._ends(run), 0.0))

    def _ends(self, run: Run) -> Iterator[tuple[int, float]]:
        bags = self._bag_of_task()  # a killed attempt ended before the successful one, so the later end counts
        return ((bags[execution.task], execution.end) for execution in run.executions)

    def _bag_of_task(self) -> list[int]:
        """The bag of each task, in order of arrival, because the simulator numbers tasks in that order."""
        return [batch.bag.number for batch in self.batches for _ in batch.tasks]

    def _turnarounds(self, ends: Iterator[tuple[int, float]], start: float) -> dict[int, float]:
        """From the first submission of each bag to the end of its last task; ``start``: the zero of ``ends``."""
        last: dict[int, float] = {}
        for bag, end in ends:
            last[bag] = max(last.get(bag, 0.0), end - start)
        first: dict[int, float] = {}
        for batch in self.batches:
            first.setdefault(batch.bag.number, batch.arrived - self.start)
        return {bag: last[bag] - first[bag] for bag in first}

    def _row(self, policy: str, figures: Figures) -> Row:
        return new_row("replay", policy, figures, self.tasks, self.lower_bound_s)

    # --- assumptions ------------------------------------------------------------------------------------------------

    def assumed(self) -> Iterator[str]:
        """The assumptions of the replay, a sentence each."""
        bags = self.bags.values()
        yield f"beyond the record's end, the windows of each PC come again every {_lasting(self.period)}"
        yield "PCs that were there when the broker stopped, or were stopped when all was done, stay on as planned"
        yield "a task takes what it took, on whatever PC; starting one takes nothing; windows to come are announced"
        if some := sum(not bag.predicted for bag in bags):
            yield f"{_bags(some)} without predictions: predicted as the broker does in the end, by the longest run"
        failed = sum(task.failed for batch in self.batches for task in batch.tasks)
        if failed:
            yield f"{_tasks(failed)} failed: played as one attempt each, of the seconds the last took"
        if self._moldable:
            yield f"{_tasks(self._moldable)} moldable: not played, because the journal does not say on how many slots"
        if any(batch.bag.need.parallel for batch in self.batches):
            yield "parallel tasks need no labels and no memory, and reach all PCs of a site"
        left = Counter(cancelled=sum(bag.cancelled for bag in bags), open=sum(bag.open for bag in bags))
        if left["cancelled"]:
            yield f"{_tasks(left['cancelled'])} cancelled: not played, whatever they had used"
        if left["open"]:
            yield f"{_tasks(left['open'])} not ended yet: not played"
        if self._chosen:
            yield "only the bags asked for are played, as if the grid had been theirs; kills recorded are of all bags"
        yield "bags that were forgotten are not in the journal any more"


def _is_moldable(batch: PastBatch) -> bool:
    return batch.bag.need.least != batch.bag.need.most


def _period(recorded_s: float) -> float:
    """The period of the windows: the record's length, rounded up to whole weeks or days if it is that long."""
    for unit in (WEEK_S, DAY_S):
        if recorded_s >= unit:
            return math.ceil(recorded_s / unit) * unit
    return max(recorded_s, 1.0)


def _lasting(period: float) -> str:
    for unit, name in ((WEEK_S, "weeks"), (DAY_S, "days")):
        if period % unit == 0.0:
            return f"{period / unit:.0f} {name}" if period > unit else name[:-1]
    return f"{period:.1f} s, the record's length"


def _bags(number: int) -> str:
    return f"{number:,} bag{'' if number == 1 else 's'}"


def _tasks(number: int) -> str:
    return f"{number:,} task{'' if number == 1 else 's'}"
