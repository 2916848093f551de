"""Views of the whole grid: the status document, and rows of bags. Their size is bounded, however large the grid is.

Everything here is made in slices. Costly views are made once for all who ask within one heartbeat interval.
"""

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from itertools import islice

from deskgrid import wire
from deskgrid.broker.forecasts.etas import Etas
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.clocks import SlidingCount
from deskgrid.broker.model.forecaster import Json
from deskgrid.broker.model.need_notes import NO_WORKER, WAIT, time_note
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.model.worker_session import WorkerSession
from deskgrid.broker.work.absences import Absences
from deskgrid.broker.work.environments import EnvironmentTable
from deskgrid.broker.work.operations import AskError, SharedResult, Slices
from deskgrid.broker.work.worker_health import kept_from, trouble
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.scheduler.metrics import Counters
from deskgrid.scheduler.policies import policy_options
from deskgrid.scheduler.policies.base import ReportsPlan
from deskgrid.scheduler.views.snapshot import HoursView, Occupancy, SlotView, queues_view, worker_view
from deskgrid.wire.details import PlannedRow
from deskgrid.wire.status import (
    BAG_ROWS,
    SCHEMA,
    SLOT_ROWS,
    WINDOW_ROWS,
    WORKER_ROWS,
    BagState,
    CounterValues,
    GridState,
    LearnedHours,
    Presence,
    Queues,
    RunningTask,
    SlotState,
    Totals,
    WorkerState,
)

# Rows of bags in one answer.
PAGE = 500
# The cost of a row in units (`deskgrid.broker.work.operations`), and rows in one slice.
ROW_UNITS = 60
SLICE_ROWS = 50
# Rows of what is planned in one answer.
PLANNED_ROWS = 2_000
# Bags sorted in one slice.
LOOKED_AT = 10_000

# The order in which workers are shown.
_STATES: tuple[Presence, ...] = ("up", "lost", "away")


class Overview:
    """``clients``: the names of the clients' credentials, one for each connection."""

    def __init__(
        self,
        state: BrokerState,
        workers: WorkerSessions,
        throughput: SlidingCount,
        clients: Callable[[], list[str]],
        etas: Etas,
        *,
        environments: EnvironmentTable,
        absences: Absences,
    ) -> None:
        self._state = state
        self._absences = absences
        self._workers = workers
        self._throughput = throughput
        self._clients = clients
        self._etas = etas
        self._environments = environments
        self._occupancy = SharedResult(self._make_occupancy, state.facts.heartbeat_s)
        self._document = SharedResult(self._make_document, state.facts.heartbeat_s)

    def _make_occupancy(self, now: float) -> Generator[int, None, Occupancy]:
        occupancy = Occupancy(self._state.scheduler.grid)
        yield from occupancy.pieces()
        return occupancy

    # --- bags --------------------------------------------------------------------------------------------------------

    def row(self, bag: OpenBag, eta: bool = False) -> Slices:
        """The row of one bag. ``eta``: wait a moment for an estimate of when it will be done."""
        if eta:
            yield from self._etas.glance()
        occupancy = yield from self._occupancy.get(self._state.now)
        return self._row(bag, occupancy)

    def page(self, after: int, owner: str | None = None) -> Slices:
        """A page of bags in the order of their submission, all or only those of an owner.

        ``after``: the number that came with the previous page.
        """
        yield from self._etas.glance()
        occupancy = yield from self._occupancy.get(self._state.now)
        bags = self._state.book.by_number
        numbers = list(bags)
        start = bisect_right(numbers, after)
        some = [bags[number] for number in numbers[start : start + PAGE]]
        rows = [self._row(bag, occupancy) for bag in some if owner in (None, bag.row.owner)]
        yield ROW_UNITS * len(rows)
        return {"bags": rows, "after": numbers[start + PAGE - 1] if start + PAGE < len(numbers) else None}

    def _row(self, bag: OpenBag, occupancy: Occupancy) -> BagState:
        now = self._state.now
        view, eta = occupancy.view(bag.row.number), self._etas.known(bag)
        median, low, high = (None, None, None) if isinstance(eta, str) else eta
        settled = view.done + view.failed + view.cancelled
        return {
            "bag": bag.row.id,
            "name": bag.row.name,
            "owner": bag.row.owner,
            "kind": bag.row.kind,
            "gang": bag.row.options.gang,
            "ranks": list(bag.row.options.ranks),
            "slots": bag.row.options.slots,
            "total": view.total,
            "done": view.done,
            "failed": view.failed,
            "cancelled": view.cancelled,
            "running": view.running,
            "copies": view.copies,
            "waiting": view.total - settled - view.running,
            "closed": bag.closed,
            "paused": bag.paused and not bag.complete,
            "age_s": max(0.0, self._state.wall.posix(now) - bag.row.created),
            "left_s": view.left_s,
            "eta_s": median,
            "eta_low_s": low,
            "eta_high_s": None if high == math.inf else high,
            "longest_s": view.longest_s,
            "note": bag.under_way or bag.remark(self._note(bag, view.at_once_s)),
        }

    def _note(self, bag: OpenBag, at_once_s: float) -> str:
        """The note of a bag as of now: workers may have come since it was submitted."""
        if bag.waits_for and not bag.complete:
            return f"it waits for {len(bag.waits_for)} other {'bag' if len(bag.waits_for) == 1 else 'bags'}"
        if bag.note.startswith(NO_WORKER) or bag.note.endswith(WAIT):
            return self._workers.need_note(bag.row.options) or self._time_note(bag, at_once_s)
        kept_away = "" if bag.complete else kept_from(self._state, self._workers.by_name, bag, self._state.now)
        return kept_away or bag.note or self._drained_note(bag)

    def _drained_note(self, bag: OpenBag) -> str:
        """The note of a bag under way while PCs are drained."""
        of, sessions = self._state.drains.of, self._workers.by_name.values()
        drained = 0 if bag.complete or not of else sum([session.join.name in of for session in sessions])
        return f"{drained} of {len(sessions)} workers are drained, and get nothing new" if drained else ""

    def _time_note(self, bag: OpenBag, at_once_s: float) -> str:
        return time_note(self._state, bag, at_once_s, lambda window_s: "some", self._environments.without(bag))

    # --- the grid ----------------------------------------------------------------------------------------------------

    def status(self) -> Slices:
        """The status document, as JSON."""
        text: str = yield from self._document.get(self._state.now)
        return text

    def grid(self) -> Slices:
        """The status document without its rows, for whoever asks often: it costs little, however large the grid is."""
        states = Counter([session.state for session in self._workers.by_name.values()])
        slots = [slot for worker in self._state.scheduler.grid.slots.workers.values() for slot in worker.slots]
        busy = sum([bool(slot.sent) for slot in slots])
        yield (states.total() + len(slots)) // 10
        under_way, ended = yield from self._sorted_bags()
        totals = _totals(states, (len(under_way), len(ended)), len(slots), busy, self._absences.count)
        return {**self._grid(totals, self._state.now)}

    def worker(self, name: str) -> Slices:
        """The row of one worker, with all its slots."""
        session = self._workers.by_name.get(name)
        if session is None:
            raise AskError(f"no worker {name}")
        yield ROW_UNITS + ROW_UNITS * session.join.slots // 4
        if self._workers.by_name.get(name) is not session:
            raise AskError(f"no worker {name}")
        return {**self._worker_row(session, self._state.now, session.join.slots)}

    def plan(self) -> Json:
        """What the policy intends for windows, open or to come; nothing while no task waits."""
        now, scheduler = self._state.now, self._state.scheduler
        waits, policy = len(scheduler.grid.categories), scheduler.policy
        planned = policy.planned() if waits and isinstance(policy, ReportsPlan) else iter(())
        rows: list[PlannedRow] = [
            {"worker": each.worker, "starts_in": max(0.0, each.start - now), "lasts": each.seconds}
            for each in islice(planned, PLANNED_ROWS)
        ]
        return {"planned": rows}

    def _make_document(self, now: float) -> Generator[int, None, str]:
        yield from self._etas.glance()
        occupancy = yield from self._occupancy.get(now)
        sessions = list(self._workers.by_name.values())
        states = {state: [session for session in sessions if session.state == state] for state in _STATES}
        yield len(sessions)
        shown = [session for state in _STATES for session in states[state]][:WORKER_ROWS]
        most_slots = max(1, SLOT_ROWS // max(1, len(shown)))
        workers: list[str] = []
        for start in range(0, len(shown), SLICE_ROWS):
            some = shown[start : start + SLICE_ROWS]
            workers += [json.dumps(self._worker_row(session, now, most_slots)) for session in some]
            yield ROW_UNITS * (len(some) + sum([min(most_slots, s.join.slots) for s in some]) // 4)
        under_way, ended = yield from self._sorted_bags()
        chosen = (under_way + ended)[:BAG_ROWS]
        known = self._state.book.by_number
        bags = [json.dumps(self._row(bag, occupancy)) for bag in chosen if known.get(bag.row.number) is bag]
        yield ROW_UNITS * len(bags)
        counts = {state: len(some) for state, some in states.items()}
        totals = _totals(counts, (len(under_way), len(ended)), occupancy.slots, occupancy.busy, self._absences.count)
        grid = json.dumps(self._grid(totals, now))
        return f'{grid[:-1]}, "workers": [{", ".join(workers)}], "bags": [{", ".join(bags)}]}}'

    def _sorted_bags(self) -> Generator[int, None, tuple[list[OpenBag], list[OpenBag]]]:
        """The bags under way, the oldest first, and the bags that have ended, the newest first."""
        bags = list(self._state.book.by_number.values())
        under_way, ended = list[OpenBag](), list[OpenBag]()
        for start in range(0, len(bags), LOOKED_AT):
            for bag in bags[start : start + LOOKED_AT]:
                (ended if bag.complete else under_way).append(bag)
            yield len(bags) // 4
        return under_way, ended[::-1]

    def _grid(self, totals: Totals, now: float) -> GridState:
        facts, scheduler = self._state.facts, self._state.scheduler
        return {
            "schema": SCHEMA,
            "broker": {
                "id": facts.id,
                "version": wire.VERSION,
                "python": facts.python,
                "address": facts.address,
                "policy": scheduler.policy.name,
                "options": policy_options(scheduler.policy),
                "age_s": now,
                "encrypted": facts.encrypted,
                "clients": len(self._clients()),
                "disk": self._state.disk.state,
                "disk_note": self._state.disk.refusal,
                "problems": list(self._state.problems),
            },
            "totals": totals,
            "queues": self._queues(),
            "counters": _values_of(scheduler.counters),
            "throughput": {"per_s": self._throughput.per_second(now)},
            "absent": self._absences.rows(),
        }

    def _worker_row(self, session: WorkerSession, now: float, most_slots: int) -> WorkerState:
        join, scheduler = session.join, self._state.scheduler
        stay, posix = scheduler.quarantined(session.name), self._state.wall.posix(now)
        drain = self._state.drains.of.get(join.name)
        view = worker_view(scheduler.grid, session.name, now, most_slots, WINDOW_ROWS)
        return {
            "name": session.name,
            "pc": join.name,
            "version": join.version,
            "host": join.host,
            "site": join.site,
            "labels": sorted(join.labels),
            "pythons": list(join.pythons),
            "processors": join.processors or join.slots,
            "memory": join.memory or None,
            "resources": list(join.resources),
            "speed": session.speed if join.given else scheduler.grid.speeds.corrected(session.name, session.speed),
            "stated_speed": session.speed,
            "load": session.load,
            "reachable": join.address is not None,
            "state": session.state,
            "kind": join.kind,
            "plan": join.plan,
            "uptime_s": view.uptime_s,
            "opened_s": max(0.0, now - session.opened) if session.state == "up" else 0.0,
            "windows": list(view.windows),
            "hours": _hours_row(view.hours),
            "silent_s": max(0.0, now - session.heard),
            "ended": session.ended,
            "quarantine_s": None if stay is None else max(0.0, stay.until - now),
            "drained_by": None if drain is None else drain.by,
            "drained_s": None if drain is None or drain.until is None else max(0.0, drain.until - posix),
            "paused": session.paused if session.state == "up" else "",
            "note": trouble(self._state, session, now),
            "slot_count": view.slot_count,
            "busy": view.busy,
            "slots": [self._slot_row(session.name, slot) for slot in view.slots],
        }

    def _queues(self) -> Queues:
        queues = queues_view(self._state.scheduler.grid)
        return {"regular": queues.regular, "priority": queues.priority, "longest_s": queues.longest_s}

    def _slot_row(self, worker: str, slot: SlotView) -> SlotState:
        return {
            "slot": slot.slot,
            "running": None if slot.running is None else self._task_row(worker, slot.slot, *slot.running),
            "copy": slot.copy,
            "ahead": slot.ahead,
            "ahead_s": slot.ahead_s,
            "queued": slot.queued,
            "queued_s": slot.queued_s,
            "left_s": slot.left_s,
        }

    def _task_row(self, worker: str, slot: int, task: int, runtime: float, elapsed: float) -> RunningTask:
        bag, item = self._state.book.item(task)
        gang = self._workers.attempts.gangs.table.find(task)
        ranks = gang.ranks if gang is not None and bag.row.options.gang else []
        mine = (rank for rank, at in enumerate(ranks) if at.worker == worker and slot in at.slots)
        return {
            "bag": bag.row.id,
            "item": item,
            "runtime_s": runtime,
            "elapsed_s": max(0.0, elapsed),
            "rank": next(mine, None),
            "ranks": max(1, len(ranks)),
            "saves": bag.row.options.checkpoint,
        }


def _totals(workers: Mapping[Presence, int], bags: tuple[int, int], slots: int, busy: int, absent: int) -> Totals:
    """``workers``: how many are in each state; ``bags``: how many are under way, and have ended."""
    return {
        "bags_under_way": bags[0],
        "bags_ended": bags[1],
        "workers_up": workers["up"],
        "workers_lost": workers["lost"],
        "workers_away": workers["away"],
        "pcs_absent": absent,
        "slots": slots,
        "busy": busy,
    }


def _hours_row(hours: HoursView) -> LearnedHours | None:
    habit, closes = hours
    if not habit.seen and closes is None:
        return None
    return {
        "seen": habit.seen,
        "lasts_s": None if habit.lasts is None else list(habit.lasts),
        "early_s": habit.early_s,
        "goes_s": None if closes is None else list(closes),
    }


def _values_of(counters: Counters) -> CounterValues:
    return {
        "submitted": counters.submitted,
        "attempts": counters.attempts,
        "done": counters.done,
        "errors": counters.errors,
        "timeouts": counters.timeouts,
        "crashes": counters.crashes,
        "cancelled": counters.cancelled,
        "departures": counters.departures,
        "losses": counters.losses,
        "kills": counters.kills,
        "planned_kills": counters.planned_kills,
        "stale": counters.stale,
        "unfit": counters.unfit,
        "adopted": counters.adopted,
        "pieces": counters.pieces,
        "no_room": counters.no_room,
        "no_start": counters.no_start,
        "overdue": counters.overdue,
        "copies": counters.copies,
        "wasted_s": counters.wasted_s,
        "window_s": counters.window_s,
        "busy_s": counters.busy_s,
    }
