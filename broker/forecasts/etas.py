"""When bags will be done, as far as the broker knows: one forecast for all bags, made for whoever asks. Pure.

Rule 1: a forecast is made only if somebody asks, or when a bag that lasts has come to its next stage; then it teaches
how good forecasts are. It takes at most `PART` of the time, and whoever asks sooner gets the last one.
Rule 2: what was told is journaled, so that it can be judged later (``deskgrid sleepbench replay``).
Rule 3: nothing that goes wrong here harms the grid: the answer is "unknown", and says why.
"""

import math
from collections.abc import Callable, Generator
from typing import NamedTuple

from deskgrid.broker.model.bags import OpenBag, ToldEstimate
from deskgrid.broker.model.forecaster import LATE, Ends, Forecaster, Json, Ticket
from deskgrid.broker.model.need_notes import WAIT
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.store.rows import ToldEtaRow
from deskgrid.broker.work.operations import PARKED, Operation, Operations, Slices
from deskgrid.durations import precise
from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.forecast.ahead import RUNS
from deskgrid.scheduler.forecast.correction import CONFIDENCE, Estimate, estimate, score, stage_of
from deskgrid.scheduler.forecast.look import Look, Prepares
from deskgrid.scheduler.forecast.picture import NOT_TOGETHER, Durations, Picture, longest_window, too_little
from deskgrid.scheduler.need import SINGLE
from deskgrid.scheduler.policies.base import least_required
from deskgrid.scheduler.queues.categories import Licences
from deskgrid.scheduler.state.bags import ScheduledBag
from deskgrid.wire import TaskOptions

# A forecast serves for so long, in seconds; and then as long as forecasts would take more than this part of the time.
KEEP_S = 3.0
PART = 0.05
# An older forecast is not shown any more. Seconds.
OLD_S = 60.0
# How long a question waits for a forecast; and how long a view of the grid does, which can do without. Seconds.
WAIT_S = 15.0
GLANCE_S = 0.5
# The units of a row that is looked at (`deskgrid.broker.work.operations`).
ROW_UNITS = 4
# The units of a bag whose estimate is read from a forecast.
READ_UNITS = 50
# Bags with fewer tasks teach nothing, nor do those that have lasted less long.
LEAST = 20
LASTS_S = 10.0
# The next estimate of a bag is journaled when the bag comes to another stage, or after this part of its age, but not
# sooner and not later than after so many seconds.
JOURNAL_PART, JOURNAL_S, JOURNAL_MOST_S = 0.05, 60.0, 3_600.0
# All runs are made for so many slots times bags; for more there are fewer runs, but at least so many.
FULL, RUNS_LEAST = 500, 30
# A run takes up to so many times as long if tasks are parallel, or need memory or labels.
TOGETHER = 16

# What has not ended takes at least so long, however late it is: 0 means that it has ended. Seconds.
SOON_S = 0.1

NO_PC = "no PC is up or announced"
NO_ENVIRONMENT = "no PC that is known can prepare its environment in a window; deskgrid explain says more"
NOTHING_KNOWN = "nothing is known yet about how long its tasks take"


class _Asked(NamedTuple):
    """A forecast that is being made from a picture taken at ``made``.

    ``rows``: by bag, the bag of the picture that stands for it. ``guessed``: those of whose tasks nothing was known.
    """

    ticket: Ticket
    made: float
    picture: Picture
    rows: dict[int, int]
    guessed: set[int]


class Etas:
    """The latest forecast. ``now`` is the broker's clock."""

    def __init__(self, state: BrokerState, operations: Operations, forecaster: Forecaster) -> None:
        self._state = state
        self._operations = operations
        self._forecaster = forecaster
        self._wanted = self._looks = False
        self._asked: _Asked | None = None
        self._count = 0
        self._next_at = -math.inf
        # The latest forecast: when its picture was taken, and by bag the estimate, or why there is none.
        self._made = -math.inf
        self._found: dict[int, Estimate | str] = {}
        self._unwritten: list[ToldEtaRow] = []
        # Why no worker can run tasks with these options.
        self.lacking: Callable[[TaskOptions], str] = lambda options: ""
        # How long a worker takes to prepare the environments of bags.
        self.prepares: Prepares = lambda name: ()

    # --- questions ---------------------------------------------------------------------------------------------------

    def eta(self, bag: OpenBag) -> Slices:
        """When a bag will be done: seconds from now, or why that is unknown."""
        begun = self._state.now
        while not bag.complete and not self._serves(bag, begun) and self._state.now < begun + WAIT_S:
            self._wanted = True
            yield PARKED
        found = self.known(bag, KEEP_S + WAIT_S)
        if isinstance(found, str):
            return answered(None, None, None, found)
        return answered(found.median, found.low, found.high, "")

    def glance(self) -> Generator[int, None, None]:
        """Wait for a forecast, but not long, if there is none of late and some bag is under way."""
        begun = self._state.now
        self._wanted = True
        while self._state.now >= self._made + OLD_S and self._state.now < begun + GLANCE_S:
            if not any(not bag.complete for bag in self._state.book.by_number.values()):
                return
            yield PARKED

    def known(self, bag: OpenBag, old_s: float = OLD_S) -> Estimate | str:
        """The estimate of a bag as of now, or why there is none."""
        now = self._state.now
        if bag.complete:
            return Estimate(0.0, 0.0, 0.0)
        if why := self._barred(bag):
            return why
        found = self._found.get(bag.row.number, "there is no estimate yet")
        if isinstance(found, str):
            return found
        age = now - self._made
        if age > max(old_s, self._next_at - self._made):
            return "there is no estimate yet"
        return Estimate(*(max(SOON_S, seconds - age) for seconds in found))

    def _serves(self, bag: OpenBag, asked: float) -> bool:
        """Whether the latest forecast is good enough for whoever asked then."""
        if self._barred(bag):
            return True
        fresh = self._made >= asked - KEEP_S or self._state.now < self._next_at
        return bag.row.number in self._found and fresh

    def _barred(self, bag: OpenBag) -> str:
        if bag.note.endswith(WAIT) and (why := self.lacking(bag.row.options)):
            return why
        if bag.paused:
            return "it is paused"
        if bag.waits_for:
            return f"it waits for {len(bag.waits_for)} other {'bag' if len(bag.waits_for) == 1 else 'bags'}"
        return ""

    # --- forecasts ---------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Follow the bags with news, take a forecast that is done, and begin one that is wanted and due."""
        for number in self._state.fresh:
            self._follow(self._state.book.by_number[number], now)
        if self._asked is not None and self._asked.ticket.done:
            asked, self._asked = self._asked, None
            self._looks = True
            self._operations.add(Operation("", self._take(asked), order=True))
        if self._wanted and self._asked is None and not self._looks and now >= self._next_at:
            self._wanted, self._looks = False, True
            self._operations.add(Operation("", self._make(now), order=True))

    def _follow(self, bag: OpenBag, now: float) -> None:
        if bag.complete:
            self._judge(bag, now)
        elif bag.total >= LEAST and stage_of(bag.settled / bag.total) not in bag.told:
            lasts = self._state.wall.posix(now) - bag.row.created >= LASTS_S
            self._wanted = self._wanted or lasts

    def _judge(self, bag: OpenBag, now: float) -> None:
        """A bag is complete: learn from what was told of it, if it ran as it was then."""
        told, bag.told = bag.told, {}
        if self._state.scheduler.grid.tasks.bags[bag.row.number].cancelled:
            return
        scores = [score(stage, each.raw, now - each.made) for stage, each in told.items() if each.total == bag.total]
        if bag.total >= LEAST and scores:
            self._state.learning.judge(bag.row.owner, scores)

    def _make(self, now: float) -> Slices:
        """Take a picture of the grid, and have the forecast made."""
        guessed: set[int] = set()

        def learned(bag: ScheduledBag, running: list[float]) -> Durations | None:
            known = self._state.book.by_number.get(bag.number)
            if known is not None and is_unknown(known):
                guessed.add(bag.number)
            return self.learned(bag, running)

        try:
            look = Look(self._state.scheduler.grid, now, learned, prepares=self.prepares)
            for rows in look.pieces():
                yield ROW_UNITS * rows
            picture = look.picture
            if picture.bags:
                self._count += 1
                ticket = self._forecaster.submit(picture, self._count, runs_for(picture))
                self._asked = _Asked(ticket, now, picture, look.rows, guessed)
            else:
                self._made, self._found = now, {}
        except Exception as error:
            self._fail(now, f"the estimate failed: {error!r}")
        self._looks = False
        return {}

    def learned(self, bag: ScheduledBag, running: list[float]) -> Durations | None:
        """How long the tasks of a bag take, unless its submitter said that, or its checkpoints tell it."""
        known = self._state.book.by_number.get(bag.number)
        if known is None:
            return None  # while the picture was taken, it has ended, and somebody has forgotten it
        if known.row.options.checkpoint or (known.row.predicted and not (bag.bounded and known.runs.count)):
            return None
        found = self._state.learning.spread(known, running)
        if found is None or not known.transfer_s:
            return found
        # What was learned is without the files of a task, and what the scheduler has is with them.
        return found.each(lambda seconds: seconds + known.transfer_s)

    def _fail(self, made: float, why: str, cost_s: float = 0.0) -> None:
        if why == LATE:
            said = "the grid and its bags are too large for an estimate"
        else:
            self._state.note("forecast-failed", why=why)
            said = "the estimate failed; the broker's log says why"
        self._made, self._next_at = made, made + max(KEEP_S, cost_s / PART)
        self._found = dict.fromkeys(self._state.book.by_number, said)

    def _take(self, asked: _Asked) -> Slices:
        """Take a forecast."""
        try:
            if asked.ticket.ends is None:
                # What a process took that was killed, nobody knows.
                cost_s = asked.ticket.cost_s or self._state.now - asked.made
                self._fail(asked.made, asked.ticket.failure, cost_s)
            else:
                yield from self._read(asked, asked.ticket.ends)
        except Exception as error:
            self._fail(asked.made, f"{error!r}")
        self._looks = False
        return {}

    def _read(self, asked: _Asked, ends: Ends) -> Generator[int, None, None]:
        raws = {row: estimate(its) for row, its in ends.items()}
        longest = longest_window(asked.picture.pcs)
        little = {its.number: too_little(its, longest) for its in asked.picture.bags}
        unknown = NOTHING_KNOWN if longest[0] else NO_PC
        yield READ_UNITS * len(raws) + sum([len(pc.spans) for pc in asked.picture.pcs])
        found = dict[int, Estimate | str]()
        for number, row in asked.rows.items():
            bag = self._state.book.by_number.get(number)
            if bag is not None and not bag.complete:
                key, pcs = bag.environment_key, asked.picture.pcs
                ready = (
                    not key
                    or raws[row].median < math.inf
                    or any(pc.room_at(pc.prepares_s(key)) < math.inf for pc in pcs)
                )
                why = unknown if number in asked.guessed else self._endless(bag, raws[row], longest, little[row], ready)
                found[number] = why or self._estimate(bag, raws[row], asked.made)
                yield READ_UNITS
        self._found = found
        self._made, self._next_at = asked.made, asked.made + max(KEEP_S, asked.ticket.cost_s / PART)

    def _estimate(self, bag: OpenBag, raw: Estimate, made: float) -> Estimate:
        stage = stage_of(bag.settled / max(1, bag.total))
        told = self._state.learning.correction.corrected(bag.row.owner, stage, raw)
        if not bag.barred:
            self._journal(bag, told, made, first=stage not in bag.told)
            bag.told.setdefault(stage, ToldEstimate(made, raw, bag.total))
        return told

    def _endless(self, bag: OpenBag, raw: Estimate, longest: tuple[float, float], little: str, ready: bool) -> str:
        """Why a bag will not end as things are; empty if it will.

        ``longest``: the longest window known, and its speed. ``little``: the reason if its tasks fit there as
        predicted. ``ready``: whether its environment will ever be ready somewhere.
        """
        if raw.median < math.inf:
            return ""
        longest_s, speed = longest
        if not longest_s:
            return NO_PC
        grid, policy = self._state.scheduler.grid, self._state.scheduler.policy
        its = grid.tasks.bags[bag.row.number]
        if lacks := NO_ENVIRONMENT if bag.environment_key and not ready else _few(its, grid.categories.licences):
            return lacks
        needs = least_required(policy).needs(its.needs_s(its.need.seconds(its.longest, its.need.most))) / speed
        if policy.timed and not fits(needs, longest_s):
            return f"one of its tasks needs {precise(needs)}, and the longest known window has {precise(longest_s)}"
        if its.need.parallel:
            return NOT_TOGETHER
        return little

    # --- the journal -------------------------------------------------------------------------------------------------

    def _journal(self, bag: OpenBag, told: Estimate, made: float, *, first: bool) -> None:
        """``first``: of a stage of the bag."""
        if first or made >= bag.journal_eta_at:
            wall = self._state.wall.posix(made)
            age = JOURNAL_PART * (wall - bag.row.created)
            bag.journal_eta_at = made + min(max(JOURNAL_S, age), JOURNAL_MOST_S)
            ended = bag.settled / max(1, bag.total)
            self._unwritten.append(ToldEtaRow(bag.row.number, wall, ended, *(wall + seconds for seconds in told)))

    def write_down(self) -> None:
        """Write the estimates that are new into the journal."""
        if self._unwritten:
            self._state.journal.etas.add(self._unwritten)
            self._unwritten = []


def _few(bag: ScheduledBag, licences: Licences) -> str:
    """Which licence a task of a bag needs more of than there are; empty: none."""
    for name, many in bag.category.key.licences:
        if many > (total := licences.total.get(name, 0)):
            return f"each task needs {many} of licence {name}, and this grid has {total}"
    return ""


def is_unknown(bag: OpenBag) -> bool:
    """Whether nothing is known of how long its tasks take."""
    return not (bag.row.predicted or bag.runs.count or bag.prediction is not None)


def runs_for(picture: Picture) -> int:
    """How many runs a forecast is made of."""
    rows = sum([pc.slots for pc in picture.pcs]) * len(picture.bags)
    rows *= TOGETHER if any(bag.need != SINGLE for bag in picture.bags) else 1
    return max(RUNS_LEAST, min(RUNS, RUNS * FULL // max(1, rows)))


def answered(median: float | None, low: float | None, high: float | None, why: str) -> Json:
    """An estimate as an answer; ``why``: why there is none."""
    if high == math.inf:
        high = None
    return {"median_s": median, "low_s": low, "high_s": high, "confidence": CONFIDENCE, "why": why}
