"""Questions and orders that are JSON both ways: a table of small functions over the desk.

The status document's shape is given in the README; every other answer is a few named values.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from broker import protocol as wire
from broker.admission import Admission
from broker.attempts import WorkerSession
from broker.bags import OpenBag
from broker.desk import Desk
from broker.roles import ACCESS, Credential, CredentialError, admin_refusal, owner_refusal
from broker.rows import ResultRow
from broker.snapshot import SCHEMA
from broker.throughput import Throughput
from broker.trouble import at_rest, reason, trouble
from broker.workers import Workers
from scheduler import events as ev
from scheduler.explain import Explanation, explain
from scheduler.model import ENDED, SchedulerError, State
from scheduler.policies import make_policy, policy_options
from scheduler.resting import Rest
from scheduler.snapshot import BagView, SlotView, bag_views, take

# States a task can be explained in besides waiting.
_STATE_TEXT = {
    State.QUEUED: "is queued on {on} and starts when that slot is free",
    State.SENT: "runs on {on}, or is next there",
    State.HELD: "was running when the broker stopped; its worker is waited for",
    State.DONE: "is done",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
}

Json = dict[str, Any]


class AskError(Exception):
    """The question cannot be answered, or the order not carried out; one line."""


class Asking:
    """``answer(what, args, now)`` for every ``what`` in the table."""

    def __init__(self, desk: Desk, workers: Workers, throughput: Throughput, clients: Callable[[], list[str]]) -> None:
        """``clients``: the credentials of the client connections, by name."""
        self._desk = desk
        self._workers = workers
        self._throughput = throughput
        self._clients = clients
        admission = Admission(desk, self._connected)
        self._table: dict[str, Callable[[Json, float], Json]] = {
            "ping": lambda args, now: {},
            "status": self._status,
            "bags": lambda args, now: {"bags": self._bag_rows(now)},
            "progress": lambda args, now: self._bag_row(self._bag(args), now),
            "cancel": self._cancel,
            "explain": self._explain,
            "logs": self._logs,
            "forget": self._forget,
            "policy": self._policy,
            "runtimes": self._runtimes,
            "keys": admission.rows,
            "keys add": admission.add,
            "keys revoke": admission.revoke,
        }

    @property
    def operations(self) -> set[str]:
        """Everything that can be asked."""
        return set(self._table)

    def answer(self, who: Credential, what: str, args: str, now: float) -> Json:
        """The answer to one question of ``who``; raises `AskError`."""
        try:
            values = json.loads(args)
        except (ValueError, RecursionError) as error:
            raise AskError(f"arguments of {what!r} are not JSON") from error
        if what not in self._table or not isinstance(values, dict):
            raise AskError(f"{what!r} is not something this broker can be asked")
        if refusal := self._refusal(who, what, values):
            raise AskError(refusal)
        try:
            return self._table[what](values, now)
        except (SchedulerError, CredentialError) as error:
            raise AskError(str(error)) from error

    def _refusal(self, who: Credential, what: str, args: Json) -> str:
        """Why ``who`` is not answered; empty when they are."""
        access = ACCESS[what]
        if access == "owner":
            bag = self._bag(args)
            return owner_refusal(who, bag.row.id, bag.row.owner)
        return "" if access == "everyone" else admin_refusal(who, f"{what!r}")

    def _connected(self) -> Counter[str]:
        return Counter([*self._clients(), *(worker.who.name for worker in self._workers.by_peer.values())])

    # --- the grid ----------------------------------------------------------------------------------------------------

    def _status(self, args: Json, now: float) -> Json:
        facts, snapshot = self._desk.facts, take(self._desk.scheduler, now)
        policy = self._desk.scheduler.policy
        up = {worker.name: worker for worker in snapshot.workers}
        workers = []
        for session in self._workers.by_name.values():
            view = up.get(session.name)
            row = self._worker_row(session, now)
            if view is not None:
                row |= {
                    "uptime_s": view.uptime_s,
                    "windows": view.windows,
                    "slots": [self._slot_row(slot) for slot in view.slots],
                }
            else:
                row |= {"uptime_s": 0.0, "windows": snapshot.away.get(session.name, ()), "slots": []}
            workers.append(row)
        return {
            "schema": SCHEMA,
            "broker": {
                "id": facts.id,
                "version": wire.VERSION,
                "python": facts.python,
                "address": facts.address,
                "policy": snapshot.policy,
                "options": policy_options(policy),
                "age_s": now,
                "encrypted": facts.encrypted,
                "clients": len(self._clients()),
                "disk": self._desk.disk.state,
                "disk_note": self._desk.disk.refusal,
            },
            "workers": workers,
            "bags": self._bag_rows(now),
            "queues": {
                "regular": snapshot.regular,
                "priority": snapshot.priority,
                "longest_s": snapshot.longest_s,
            },
            "counters": snapshot.counters,
            "throughput": {"per_s": self._throughput.per_second(now)},
        }

    def _worker_row(self, session: WorkerSession, now: float) -> Json:
        join, rest = session.join, self._desk.scheduler.resting.rests.get(session.name)
        return {
            "name": session.name,
            "host": join.host,
            "site": join.site,
            "state": session.state,
            "kind": join.kind,
            "plan": join.plan,
            "opened_s": now - session.opened if session.state == "up" else 0.0,
            "silent_s": now - session.heard,
            "done": session.done,
            "rests_s": None if rest is None else max(0.0, rest.until - now),
            "note": trouble(self._desk.scheduler, session.name),
        }

    def _slot_row(self, slot: SlotView) -> Json:
        row = asdict(slot)
        if slot.running is not None:
            task, runtime, elapsed = slot.running
            bag, item = self._desk.book.item(task)
            row["running"] = {"bag": bag.row.id, "item": item, "runtime_s": runtime, "elapsed_s": elapsed}
        return row

    def _policy(self, args: Json, now: float) -> Json:
        name, options = _text(args, "name"), args.get("options", {})
        try:
            policy = make_policy(name, **options)
        except TypeError as error:
            raise AskError(f"policy {name!r} does not take these options: {error}") from error
        self._desk.unused_policy = deepcopy(policy)
        self._desk.pending += self._desk.handle(ev.PolicyChanged(policy), now)
        return {"policy": policy.name, "options": policy_options(policy)}

    # --- bags --------------------------------------------------------------------------------------------------------

    def _bag(self, args: Json) -> OpenBag:
        wanted = _text(args, "bag")
        bag = self._desk.book.by_id.get(wanted)
        if bag is None:
            raise AskError(f"no bag {wanted}")
        return bag

    def _bag_rows(self, now: float) -> list[Json]:
        views = {view.number: view for view in bag_views(self._desk.scheduler, now)}
        return [self._row(bag, views[bag.row.number], now) for bag in self._desk.book.by_number.values()]

    def _bag_row(self, bag: OpenBag, now: float) -> Json:
        view = next(view for view in bag_views(self._desk.scheduler, now) if view.number == bag.row.number)
        return self._row(bag, view, now)

    def _row(self, bag: OpenBag, view: BagView, now: float) -> Json:
        settled = view.done + view.failed + view.cancelled
        return {
            "bag": bag.row.id,
            "name": bag.row.name,
            "owner": bag.row.owner,
            "kind": bag.row.kind,
            "total": view.total,
            "done": view.done,
            "failed": view.failed,
            "cancelled": view.cancelled,
            "running": view.running,
            "waiting": view.total - settled - view.running,
            "closed": bag.closed,
            "age_s": max(0.0, self._desk.posix(now) - bag.row.created),
            "left_s": view.left_s,
            "eta_s": view.eta_s,
            "longest_s": view.longest_s,
            "note": bag.remark,
        }

    def _cancel(self, args: Json, now: float) -> Json:
        bag, items = self._bag(args), args.get("items")
        # "running": false lets what is at a worker end there.
        spared = ENDED | ({State.SENT, State.HELD} if args.get("running") is False else set())
        wanted = dict.fromkeys(self._tasks(bag, range(bag.total) if items is None else items))
        tasks = [task for task in wanted if self._desk.scheduler.tasks.state(task) not in spared]
        self._desk.pending += self._desk.handle(ev.TasksCancelled(tasks), now)
        rows, ended = [], self._desk.posix(now)
        for task in tasks:
            _, item = self._desk.book.item(task)
            rows.append(ResultRow(task, bag.row.number, item, wire.Outcome.CANCELLED, 0.0, "", 0, b"", b"", b"", ended))
        self._desk.journal.add_results(rows)
        bag.settled += len(rows)
        bag.remembered.difference_update(tasks)
        if items is None and not bag.closed:
            bag.closed = True
            self._desk.journal.close_bag(bag.row.number)
        self._desk.fresh.add(bag.row.number)
        return {"cancelled": len(rows)}

    def _tasks(self, bag: OpenBag, items: object) -> list[int]:
        return [self._task(bag, item) for item in (items if isinstance(items, (list, range)) else [items])]

    @staticmethod
    def _task(bag: OpenBag, item: object) -> int:
        task = bag.task(item) if type(item) is int else None
        if task is None:
            raise AskError(f"bag {bag.row.id} has no item {item!r:.40}; it has {bag.total}, counted from 0")
        return task

    def _forget(self, args: Json, now: float) -> Json:
        bag = self._bag(args)
        if not bag.complete:
            raise AskError(f"bag {bag.row.id} is not finished; cancel it first")
        self._desk.forget(bag, f"bag {bag.row.id} was forgotten", now)
        return {}

    def _runtimes(self, args: Json, now: float) -> Json:
        bag, runtimes = self._bag(args), args.get("runtimes")
        tasks = self._tasks(bag, args.get("items"))
        if not isinstance(runtimes, list) or not all(map(_is_seconds, runtimes)):
            raise AskError(f"runtimes is a list of seconds, each from 0 to {wire.SECONDS_LIMIT:g}")
        event = ev.RuntimesUpdated(tasks, [float(seconds) for seconds in runtimes])
        self._desk.pending += self._desk.handle(event, now)
        for first in {self._desk.book.find(task)[1].first for task in tasks}:
            self._desk.journal.predict(first, self._desk.scheduler.tasks.known(first).runtimes)
        return {}

    # --- one task ----------------------------------------------------------------------------------------------------

    def _logs(self, args: Json, now: float) -> Json:
        bag = self._bag(args)
        task = self._task(bag, args.get("item"))
        state = self._desk.scheduler.tasks.state(task)
        row = self._desk.journal.result(task) if state in ENDED else None
        if row is None:
            nothing = {"worker": None, "elapsed_s": 0.0, "stdout": "", "stderr": "", "error": None}
            return {"state": state.name.lower(), **nothing}
        return {
            "state": wire.Outcome(row.outcome).name.lower(),
            "worker": row.worker,
            "elapsed_s": row.elapsed,
            # A journal may be older than the limit.
            "stdout": row.stdout[: wire.PRINTED_BYTES].decode(errors="replace"),
            "stderr": row.stderr[: wire.PRINTED_BYTES].decode(errors="replace"),
            "error": _error_text(row),
        }

    def _explain(self, args: Json, now: float) -> Json:
        bag, scheduler = self._bag(args), self._desk.scheduler
        if args.get("item") is None:
            waiting, longest = scheduler.tasks.waiting(bag.row.number)
            if longest is None:
                return self._nothing_waits(bag, now)
            task = longest
        else:
            task = self._task(bag, args["item"])
            waiting = int(scheduler.tasks.state(task) == State.WAITING)
        why, rests = explain(scheduler, task, now), scheduler.resting.rests
        return {
            "text": _explanation(why, self._desk.book.item(task)[1], len(self._workers.by_name), rests, now),
            "waiting": waiting,
            "longest_s": why.runtime_s,
            "slots": [
                {
                    "worker": slot.worker,
                    "lane": slot.lane,
                    "left_s": None if math.isinf(slot.left_s) else slot.left_s,
                    "short_s": slot.short_s,
                    "reason": reason(slot, rests),
                }
                for slot in why.slots
            ],
            "coming": [asdict(window) for window in why.coming],
        }

    def _nothing_waits(self, bag: OpenBag, now: float) -> Json:
        row = self._bag_row(bag, now)
        text = [f"no task of this bag waits: {row['done']} done, {row['failed']} failed, {row['running']} running"]
        if row["waiting"]:
            text[0] += f", {row['waiting']} next on their PCs"
        return {"text": text, "waiting": 0, "longest_s": 0.0, "slots": [], "coming": []}


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= wire.SECONDS_LIMIT


def _text(args: Json, name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str):
        raise AskError(f"{name} is missing")
    return value


def _error_text(row: ResultRow) -> str | None:
    if row.outcome in (wire.Outcome.DONE, wire.Outcome.CANCELLED):
        return None
    failure = wire.read_failure(row.payload)
    kind, message, trace = failure.kind, failure.message, failure.trace
    # A Python traceback ends with what was raised; what a command wrote to stderr does not say how it ended.
    reason = f"{kind}: {message}"
    return trace if trace.rstrip().endswith(message or kind) else "\n".join(filter(None, [trace.rstrip(), reason]))


def _explanation(why: Explanation, item: int, workers: int, rests: Mapping[str, Rest], now: float) -> list[str]:
    """Why a task is where it is, in sentences. ``rests``: workers that get nothing for a while."""
    start = f"task {item} (predicted {why.runtime_s:g} s)"
    if why.state != State.WAITING:
        return [f"{start} {_STATE_TEXT[why.state].format(on=why.on)}"]
    if not workers:
        return [f"{start} waits: no worker has joined"]
    lines = [f"{start} waits: it needs {why.runtime_s + why.margin_s:g} s, {why.margin_s:g} s of them to be safe"]
    if why.runtime_s + why.margin_s >= why.longest_window_s:
        lines.append(f"no window open or announced is that long: the longest is {why.longest_window_s:.0f} s")
    for slot in why.slots:
        where = f"{slot.worker} slot {slot.lane}"
        if slot.worker in rests:
            lines.append(f"{where}: {at_rest(rests[slot.worker], now)}")
        elif slot.silent_s is not None:
            lines.append(f"{where}: has not answered for {slot.silent_s:.0f} s, and gets no work until it does")
        elif slot.short_s:
            lines.append(f"{where}: {slot.left_s:.1f} s left, {slot.short_s:.1f} s short")
        else:
            lines.append(f"{where}: fits, but is busy with other work")
    for window in why.coming:
        fit = "fits" if window.fits else "too short"
        lines.append(f"{window.worker}: in {window.starts_in_s:.0f} s for {window.lasts_s:.0f} s: {fit}")
    return lines
