"""Snapshots as a broker would send them, built from what a test is about."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from deskgrid.errors import RequestFailed
from deskgrid.screen.view import BrokerAnswer, Happened, ScreenData, ScreenQuestion
from deskgrid.wire.status import (
    AbsentPC,
    BagState,
    CounterValues,
    LearnedHours,
    RunningTask,
    SlotState,
    StatusDocument,
    Totals,
    WorkerState,
)

BAG = "a1b2c3d4e5f6"

NO_COUNTS = CounterValues(
    submitted=0,
    attempts=0,
    done=0,
    errors=0,
    timeouts=0,
    crashes=0,
    cancelled=0,
    departures=0,
    losses=0,
    kills=0,
    planned_kills=0,
    stale=0,
    unfit=0,
    adopted=0,
    overdue=0,
    pieces=0,
    no_room=0,
    no_start=0,
    copies=0,
    wasted_s=0.0,
    window_s=0.0,
    busy_s=0.0,
)


def slot(
    elapsed_s: float | None = None,
    runtime_s: float = 45.0,
    *,
    slot: int = 0,
    item: int = 17,
    queued: int = 0,
    queued_s: float = 0.0,
    left_s: float | None = 3600.0,
    copy: bool = False,
    rank: int | None = None,
    saves: bool = False,
) -> SlotState:
    """A slot, idle unless ``elapsed_s`` is given."""
    running = None
    if elapsed_s is not None:
        running = RunningTask(
            bag=BAG,
            item=item,
            runtime_s=runtime_s,
            elapsed_s=elapsed_s,
            rank=rank,
            ranks=1 if rank is None else 4,
            saves=saves,
        )
    return SlotState(
        slot=slot,
        running=running,
        copy=copy,
        ahead=0,
        ahead_s=0.0,
        queued=queued,
        queued_s=queued_s,
        left_s=left_s,
    )


def worker(
    name: str = "lab3-01",
    *slots: SlotState,
    state: Literal["up", "away", "lost"] = "up",
    uptime_s: float | None = 7200.0,
    opened_s: float = 3600.0,
    windows: list[tuple[float, float]] | None = None,
    silent_s: float = 0.5,
    ended: int = 41,
    site: str = "lab3",
    plan: str = "mon-fri 18:00-08:00 (Europe/Brussels)",
    note: str = "",
    paused: str = "",
    labels: list[str] | None = None,
    speed: float = 1.0,
    load: float = 0.0,
    reachable: bool = True,
    hours: LearnedHours | None = None,
) -> WorkerState:
    """A worker that is up, with one idle slot unless slots are given."""
    return WorkerState(
        name=name,
        pc=name,
        version="0.1.0",
        host=f"{name}.example",
        site=site,
        labels=labels or [],
        pythons=["3.11"],
        processors=len(slots) or 1,
        memory=8 * 2**30,
        resources=[],
        speed=speed,
        stated_speed=speed,
        load=load,
        reachable=reachable,
        state=state,
        kind="open-ended" if uptime_s is None else "windows",
        plan="open-ended" if uptime_s is None else plan,
        uptime_s=uptime_s if state == "up" else 0.0,
        opened_s=opened_s,
        windows=windows or [],
        hours=hours,
        silent_s=silent_s,
        ended=ended,
        quarantine_s=30.0 if note else None,
        drained_by=None,
        drained_s=None,
        note=note,
        paused=paused,
        slot_count=len(slots) or 1,
        busy=sum(each["running"] is not None for each in slots),
        slots=list(slots) or [slot()],
    )


def bag(
    name: str = "sweep",
    *,
    id: str = BAG,
    done: int = 40,
    failed: int = 0,
    cancelled: int = 0,
    running: int = 4,
    waiting: int = 56,
    closed: bool = True,
    paused: bool = False,
    age_s: float = 300.0,
    eta_s: float | None = 900.0,
    note: str = "",
    owner: str = "client",
    ranks: list[int] | None = None,
    slots: int = 1,
) -> BagState:
    """A bag that is under way."""
    return BagState(
        bag=id,
        name=name,
        owner=owner,
        kind="python",
        gang=ranks is not None,
        ranks=ranks or [1, 1],
        slots=slots,
        total=done + failed + cancelled + running + waiting,
        done=done,
        failed=failed,
        cancelled=cancelled,
        running=running,
        copies=0,
        waiting=waiting,
        closed=closed,
        paused=paused,
        age_s=age_s,
        left_s=45.0 * (running + waiting),
        eta_s=eta_s,
        eta_low_s=None if eta_s is None else 0.8 * eta_s,
        eta_high_s=None if eta_s is None else 1.5 * eta_s,
        longest_s=45.0,
        note=note,
    )


def totals_of(workers: list[WorkerState], bags: list[BagState]) -> Totals:
    """All of them have a row."""
    states = [worker["state"] for worker in workers]
    ended = sum(bag["closed"] and not bag["running"] + bag["waiting"] for bag in bags)
    up = [worker for worker in workers if worker["state"] == "up"]
    return Totals(
        bags_under_way=len(bags) - ended,
        bags_ended=ended,
        workers_up=states.count("up"),
        workers_lost=states.count("lost"),
        workers_away=states.count("away"),
        slots=sum(worker["slot_count"] for worker in up),
        busy=sum(worker["busy"] for worker in up),
        pcs_absent=0,
    )


def snapshot(
    workers: list[WorkerState] | None = None,
    bags: list[BagState] | None = None,
    *,
    counters: CounterValues = NO_COUNTS,
    priority: int = 0,
    encrypted: bool = True,
    address: str = "lab-server.example:7077",
    problems: Sequence[str] = (),
    absent: Sequence[AbsentPC] = (),
) -> StatusDocument:
    """A grid; without workers and bags unless they are given."""
    return StatusDocument(
        schema=2,
        broker={
            "id": "0badcafe",
            "version": "0.1.0",
            "python": "3.11",
            "address": address,
            "policy": "pgs",
            "options": {"order": "longest-first", "margin": 1.0},
            "age_s": 8040.0,
            "encrypted": encrypted,
            "clients": 3,
            "disk": "ok",
            "disk_note": "",
            "problems": list(problems),
        },
        totals=totals_of(workers or [], bags or []) | {"pcs_absent": len(absent)},
        absent=list(absent),
        workers=workers or [],
        bags=bags or [],
        queues={"regular": 56, "priority": priority, "longest_s": 45.0},
        counters=counters,
        throughput={"per_s": 12.4},
    )


def lab(count: int) -> StatusDocument:
    """A lab of ``count`` PCs of every sort: busy, idle, late, open-ended, away, lost; with two bags under way."""
    kinds = (
        lambda n: worker(f"lab3-{n}", slot(10.0 + n % 30, queued=1, queued_s=600.0), slot(3.0, slot=1)),
        lambda n: worker(f"lab3-{n}", slot(), uptime_s=120.0 * n + 60.0),
        lambda n: worker(f"lab4-{n}", slot(50.0), slot(20.0, 86_400.0, slot=1), uptime_s=5400.0),
        lambda n: worker(f"lab4-{n}", slot(5.0, 600.0, left_s=None), uptime_s=None),
        lambda n: worker(f"lab5-{n}", state="away", windows=[(18_000.0, 50_400.0)]),
        lambda n: worker(f"lab5-{n}", state="lost", silent_s=190.0),
        lambda n: worker(
            f"big-{n}", *(slot(2.0 * number if number % 3 else None, slot=number) for number in range(16))
        ),
    )
    counters = NO_COUNTS | CounterValues(**{**NO_COUNTS, "departures": 12, "losses": 1, "errors": 3, "done": 1204})
    bags = [
        bag(done=1204, failed=3, waiting=8789, note="3 tasks are longer than any window seen so far"),
        bag("compress the whole archive", id="0123456789ab", age_s=20.0, eta_s=None, closed=False),
        bag("", id="ffffffffffff", done=10, running=0, waiting=0, age_s=4000.0),
    ]
    return snapshot([kinds[n % len(kinds)](n) for n in range(count)], bags, counters=counters, priority=12)


NOW = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)


def seen(
    document: StatusDocument,
    told: dict[ScreenQuestion, BrokerAnswer] | None = None,
    *events: Happened,
    age_s: float = 0.0,
) -> ScreenData:
    """What the broker has told: a snapshot, and perhaps more."""
    return ScreenData(document, document["bags"], NOW, events, told or {}, age_s)


def happened(what: str, number: int = 1, **facts: str) -> Happened:
    """An event of just now."""
    return Happened(NOW, {"number": number, "age_s": 0.0, "event": what, "facts": facts})


def asked(document: StatusDocument, **answers: dict[str, Any] | str) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """A broker with this status, and these answers by question; a text is a refusal."""

    def ask(what: str, args: dict[str, Any]) -> dict[str, Any]:
        found = dict(document) if what == "status" else answers.get(what.replace(" ", "_"), f"no answer to {what}")
        if isinstance(found, str):
            raise RequestFailed(found)
        return found

    return ask
