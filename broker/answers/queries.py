"""Answers to questions and orders, in JSON: a table of small functions.

`deskgrid.wire.questions` defines their arguments, and `operations` decides in which turns they are answered. The status
document has the shape of `deskgrid.wire.status`; every other answer is a few named values.
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from copy import deepcopy
from dataclasses import asdict

from deskgrid import wire
from deskgrid.broker.answers.admission import Admission
from deskgrid.broker.answers.environment_list import EnvironmentList
from deskgrid.broker.answers.explaining import Explaining
from deskgrid.broker.answers.overview import Overview
from deskgrid.broker.answers.task_logs import bag_output, printed_now, task_log, task_rows
from deskgrid.broker.auth.roles import Credential, admin_refusal, owner_refusal
from deskgrid.broker.forecasts.etas import Etas
from deskgrid.broker.forecasts.whatif import WhatIf
from deskgrid.broker.model.bags import OpenBag
from deskgrid.broker.model.clocks import SlidingCount
from deskgrid.broker.model.forecaster import Json
from deskgrid.broker.model.need_notes import lacks_text, which_pcs
from deskgrid.broker.model.state import BrokerState
from deskgrid.broker.work.absences import Absences
from deskgrid.broker.work.draining import Draining
from deskgrid.broker.work.environments import EnvironmentTable
from deskgrid.broker.work.operations import CHARACTERS_A_UNIT, AskError, Operation, Operations, Slices
from deskgrid.broker.work.orders import Orders
from deskgrid.broker.work.usage import Usage
from deskgrid.broker.work.worker_health import in_quarantine, kept_from, kinds_of, reason, rests
from deskgrid.broker.work.workers import WorkerSessions
from deskgrid.durations import precise
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.fitting import fits
from deskgrid.scheduler.model import State
from deskgrid.scheduler.policies import make_policy, policy_options
from deskgrid.scheduler.views.explain import (
    ComingWindow,
    Explanation,
    Restraint,
    SlotReason,
    WaitingCounts,
    explain,
    restraint,
    waiting_of,
)
from deskgrid.wire.questions import QUESTIONS, arguments

# Answers questions, by their names: from the arguments, and who asks.
Table = dict[str, Callable[[Json, Credential], Json | Slices]]
# Reading arguments of this size costs nothing beside the rest. Bytes.
SHORT = 4 * 2**10

# Explanations of tasks that do not wait.
_STATE_TEXT = {
    State.PAUSED: "pauses, and is tried again in {again}",
    State.QUEUED: "is queued on {on} and starts when that slot is free",
    State.SENT: "runs on {on}, or is next there",
    State.HELD: "was running when the broker stopped, and waits for its worker to come back",
    State.DONE: "is done",
    State.FAILED: "failed",
    State.CANCELLED: "was cancelled",
}


class Queries:
    """Answers for every question of `deskgrid.wire.questions`, in slices."""

    def __init__(
        self,
        state: BrokerState,
        workers: WorkerSessions,
        throughput: SlidingCount,
        usage: Usage,
        clients: Callable[[], list[str]],
    ) -> None:
        """``clients``: the names of the clients' credentials, one for each connection."""
        self._state = state
        self._workers = workers
        self._clients = clients
        self.operations = Operations(state)
        self.orders = Orders(state, self.operations)
        self.environments = EnvironmentTable(state, workers.by_name, workers.by_peer)
        self.orders.gates.resumed = self.environments.forgive
        self.etas = Etas(state, self.operations, state.forecaster)
        self.etas.lacking = workers.need_note
        gangs = workers.attempts.gangs
        self.explaining = Explaining(gangs.table, gangs.starts)
        self.etas.prepares = self.environments.prepares
        self.absences = Absences(state, workers)
        self._overview = Overview(
            state, workers, throughput, clients, self.etas, environments=self.environments, absences=self.absences
        )
        self.environment_list = EnvironmentList(state, workers)
        self.draining = Draining(state, workers)
        self._whatif = WhatIf(state, workers, self.etas)
        self._table = {**self._of_the_grid(usage), **self._of_bags(), **self._of_keys()}

    def _of_the_grid(self, usage: Usage) -> Table:
        overview = self._overview
        return {
            "ping": lambda args, who: {},
            "status": lambda args, who: overview.grid() if args["rows"] is False else overview.status(),
            "worker": lambda args, who: overview.worker(args["name"]),
            "plan": lambda args, who: overview.plan(),
            "events": lambda args, who: self._state.events.page(args["after"] or 0, self._state.now, everything=False),
            "events all": lambda args, who: self._state.events.page(
                args["after"] or 0, self._state.now, everything=True
            ),
            "bags": lambda args, who: overview.page(args["after"] or 0, who.name if args["mine"] else None),
            "shares": lambda args, who: usage.shares(),
            "systems": lambda args, who: self.environment_list.systems(),
            "environments": lambda args, who: self.environment_list.rows(who),
            "whatif new": self._whatif.compare_new,
            "forget learned": self._forget_learned,
            "policy": self._policy,
            "pc checks": lambda args, who: self._workers.checks.page(args["after"] or "", self._state.now),
            "drains": lambda args, who: self.draining.rows(),
            "drain": self.draining.drain,
            "drain undo": self.draining.undo,
        }

    def _of_bags(self) -> Table:
        state, orders = self._state, self.orders
        return {
            "progress": lambda args, who: self._overview.row(self._bag(args), bool(args["eta"])),
            "eta": lambda args, who: self.etas.eta(self._bag(args)),
            "cancel": self._cancel,
            "pause": lambda args, who: orders.gates.pause(self._bag(args)),
            "resume": lambda args, who: orders.gates.resume(self._bag(args)),
            "release": lambda args, who: self.environment_list.release(self._bag(args), args["parts"]),
            "explain": self._explain,
            "logs": self._logs,
            "output": lambda args, who: bag_output(state, self._bag(args), args["after"] or 0),
            "printed": self._printed,
            "tasks": lambda args, who: task_rows(state, self._bag(args), args["state"], args["after"]),
            "whatif": lambda args, who: self._whatif.compare(who, self._bag(args), args["changes"]),
            "advise": lambda args, who: self._whatif.advise(who, self._bag(args)),
            "forget": self._forget,
            "runtimes": lambda args, who: orders.predict(self._bag(args), args["items"], args["runtimes"]),
        }

    def _of_keys(self) -> Table:
        admission = Admission(self._state, self._connected)
        return {
            "keys": admission.rows,
            "keys add": admission.add,
            "keys revoke": admission.revoke,
            "keys forget": admission.forget,
            "keys enrol": admission.enrol,
        }

    @property
    def names(self) -> set[str]:
        """Everything that can be asked."""
        return {*self._table}

    def ask(self, peer: bytes, who: Credential, ask: wire.Ask) -> None:
        """Queue a question of ``who`` until its turn; a ping is answered at once."""
        question = QUESTIONS.get(ask.what)
        if ask.what == "ping" and ask == wire.Ask(ask.request, "ping"):
            self._state.send(peer, wire.Answer(ask.request, "{}"))
        elif self.operations.knows(peer, ask.request):
            return  # the client repeated it, because the answer takes a while
        elif refusal := self.operations.refusal(who.name, len(ask.args)):
            self._state.send(peer, wire.Failed(ask.request, refusal))
        else:
            slices, order = self._answer(who, ask), question is not None and question.order
            self.operations.add(Operation(who.name, slices, order, peer, ask.request, len(ask.args)))

    def _answer(self, who: Credential, ask: wire.Ask) -> Slices:
        """Answer one question. Raises `AskError`."""
        what = ask.what
        try:
            args = arguments(ask)
        except ValueError as error:
            raise AskError(str(error)) from error
        if ask.again and what == "forget" and args["bag"] not in self._state.book.by_id:
            return {}
        if len(ask.args) > SHORT:
            yield len(ask.args) // CHARACTERS_A_UNIT
        if refusal := self._refusal(who, what, args):
            raise AskError(refusal)
        if ask.again and self._is_so(what, args):
            return {"connected": 0, "line_in": ""} if what.startswith("keys") else {}
        found = self._table[what](args, who)
        if isinstance(found, dict):
            return found
        return (yield from found)

    def _is_so(self, what: str, args: Json) -> bool:
        """Whether an order that may have been carried out before the broker ended would fail now for that reason."""
        if what in ("pause", "resume"):
            return self._bag(args).complete
        if what not in ("keys forget", "keys revoke") or self._state.credentials is None:
            return False
        known = [row for row in self._state.credentials.rows() if row.credential.name == args["name"]]
        return not known or (what == "keys revoke" and known[0].revoked)

    def _refusal(self, who: Credential, what: str, args: Json) -> str:
        """Why ``who`` may not ask this; empty when they may."""
        access = QUESTIONS[what].access
        if access == "owner":
            bag = self._bag(args)
            return owner_refusal(who, bag.row.id, bag.row.owner)
        return "" if access == "everyone" else admin_refusal(who, f"{what!r}")

    def _connected(self) -> Counter[str]:
        return Counter([*self._clients(), *(worker.who.name for worker in self._workers.by_peer.values())])

    def _policy(self, args: Json, who: Credential) -> Json:
        name, options = args["name"], args["options"] or {}
        try:
            policy = make_policy(name, **options)
        except TypeError as error:
            raise AskError(f"policy {name!r} does not take these options: {error}") from error
        self._state.unused_policy = deepcopy(policy)
        self._state.pending += self._state.scheduler.handle(ev.PolicyChanged(policy), self._state.now)
        return {"policy": policy.name, "options": policy_options(policy)}

    # --- bags --------------------------------------------------------------------------------------------------------

    def _bag(self, args: Json) -> OpenBag:
        bag = self._state.book.by_id.get(args["bag"])
        if bag is None:
            raise AskError(f"no bag {args['bag']}: see deskgrid bags")
        return bag

    @staticmethod
    def _task(bag: OpenBag, item: int) -> int:
        task = bag.task(item)
        if task is None:
            raise AskError(f"bag {bag.row.id} has no item {item}: items are numbered from 0, and it has {bag.total:,}")
        return task

    def _cancel(self, args: Json, who: Credential) -> Slices:
        bag, items = self._bag(args), args["items"]
        if items is None and not bag.complete:
            self._state.note("bag-cancelled", **self.orders.gates.facts(bag))
        return self.orders.cancel(bag, items, spare=args["running"] is False)

    def _forget(self, args: Json, who: Credential) -> Slices:
        bag = self._bag(args)
        if not bag.complete:
            raise AskError(f"bag {bag.row.id} has not ended; cancel it first")
        while self.orders.gates.has_followers(bag):
            yield from self.orders.gates.deciding(bag)
        if self._bag(args) is not bag or not bag.complete:
            raise AskError(f"bag {bag.row.id} has changed meanwhile")
        self._state.note("bag-forgotten", **self.orders.gates.facts(bag))
        self.orders.forget(bag, f"bag {bag.row.id} was forgotten")
        return {}

    def _forget_learned(self, args: Json, who: Credential) -> Json:
        self._state.learning.forget()
        return {}

    # --- what tasks print --------------------------------------------------------------------------------------------

    def _logs(self, args: Json, who: Credential) -> Slices:
        live = self._workers.live
        yield from live.wait(self._task(self._bag(args), args["item"]), who.name)
        return (yield from task_log(self._state, live, self._task(self._bag(args), args["item"])))

    def _printed(self, args: Json, who: Credential) -> Slices:
        bag, item = self._bag(args), args["item"]
        items = None if item is None else [item]
        if item is not None:
            self._task(bag, item)
        after = args["after"] or 0
        return (yield from printed_now(self._state, self._workers.live, bag, items, who=who.name, after=after))

    # --- one task ----------------------------------------------------------------------------------------------------

    def _explain(self, args: Json, who: Credential) -> Slices:
        bag, scheduler, now = self._bag(args), self._state.scheduler, self._state.now
        if args["item"] is None:
            found = yield from waiting_of(scheduler.grid, bag.row.number)
            if found.longest is None:
                return (yield from self._nothing_waits(bag, found))
            task, waiting = found.longest, found.waiting
        else:
            task = self._task(bag, args["item"])
            waiting = int(scheduler.state(task) == State.WAITING)
        why = yield from explain(scheduler.grid, task, now)
        gang = self.explaining.text(task, why.state, now) if bag.need.parallel else None
        rows = [] if bag.need.parallel else why.slots
        kept_back = _kept_back(restraint(scheduler.grid, task, now)) if why.state == State.WAITING else []
        missing = self._workers.need_note(bag.row.options) if why.state == State.WAITING else ""
        place, mixed = self._state.book.item(task)[1], not scheduler.grid.slots.all_have(bag.need.labels)
        pcs = which_pcs(bag.row.options, mixed=mixed)
        barred = [f"task {args['item']} waits: {self._barred(bag)}"] if why.state == State.BARRED else []
        return {
            "text": barred
            or [
                *([missing] if missing else []),
                *kept_back,
                *self._drained(why, now),
                *(self.environments.explain(bag, why.needs_s, now) if why.state == State.WAITING else ()),
                *(gang or _explanation(why, place, self._said_of(bag), now, kept_back=bool(kept_back), which=pcs)),
                *self._failures(bag, task, why),
            ],
            "waiting": waiting,
            "longest_s": why.runtime_s,
            "slots": [
                {
                    "worker": slot.worker,
                    "slot": slot.slot,
                    "left_s": None if math.isinf(slot.left_s) else max(0.0, slot.left_s),
                    "short_s": slot.short_s,
                    "reason": reason(slot),
                }
                for slot in rows
            ],
            "coming": [asdict(window) for window in ([] if bag.need.parallel else why.coming)],
        }

    def _drained(self, why: Explanation, now: float) -> list[str]:
        """Which PCs are drained while a task waits."""
        line = self._state.drains.line(self._state.wall.posix(now)) if why.state == State.WAITING else ""
        return [f"PCs that get nothing new: {line}"] if line else []

    def _said_of(self, bag: OpenBag) -> dict[str, str]:
        """What each worker said last of tasks like those of a bag that did not work out there; or nothing."""
        kinds = kinds_of(self._state.scheduler.grid.tasks.bags[bag.row.number])
        return {
            name: next((worker.why_rests[kind] for kind in kinds if kind in worker.why_rests), "")
            for name, worker in self._workers.by_name.items()
        }

    def _failures(self, bag: OpenBag, task: int, why: Explanation) -> list[str]:
        """Describe how a task failed before it was tried again, or where to read why it failed in the end."""
        if why.state == State.FAILED:
            return [f"see deskgrid logs {bag.row.id} {self._state.book.item(task)[1]}"]
        last, times = self._state.failed_attempts.last(task), "once" if why.errors == 1 else f"{why.errors} times"
        failed = [f"it has failed {times}"] if why.errors else []
        if last is None:
            return failed
        failure = wire.read_failure(last.payload)
        if last.outcome in (wire.Outcome.NO_ROOM, wire.Outcome.NO_START):
            what = "had no room" if last.outcome == wire.Outcome.NO_ROOM else "could start no process"
            said = f"{last.worker} {what} for it: {failure.brief}"
            return [*failed, said] if why.state == State.WAITING else failed
        return [f"{told}, the last time on {last.worker}: {failure.kind}: {failure.brief}" for told in failed]

    def _barred(self, bag: OpenBag) -> str:
        """Why the tasks of a bag may not be placed."""
        if bag.paused:
            return f"its bag is held: {bag.held}" if bag.held else "its bag is paused"
        return f"its bag comes after {', '.join(self.orders.gates.waits_for(bag)) or 'another one'}"

    def _nothing_waits(self, bag: OpenBag, tasks: WaitingCounts) -> Generator[int, None, Json]:
        row = yield from self._overview.row(bag)
        assert isinstance(row, dict)
        cancelled = f", {row['cancelled']} cancelled" if row["cancelled"] else ""
        counts = f"{row['done']} done, {row['failed']} failed{cancelled}, {row['running']} running"
        text = [f"no task of this bag waits: {counts}"]
        if bag.cannot_run:
            text.append(f"it cannot run: {bag.cannot_run}")
        if tasks.barred:
            wait = "1 task waits" if tasks.barred == 1 else f"{tasks.barred:,} tasks wait"
            text[0] = f"{wait}: {self._barred(bag)}"
        if row["copies"]:
            text[0] += f" ({row['copies']} with a copy)"
        if tasks.paused:
            text[0] += f", {tasks.paused} paused after several failures (name one to see why)"
        if kept_away := kept_from(self._state, self._workers.by_name, bag, self._state.now):
            text.append(f"it is {kept_away}")
        if ahead := row["waiting"] - tasks.paused - tasks.barred:
            text[0] += f", {ahead} next on their PCs"
        return {"text": text, "waiting": tasks.barred, "longest_s": 0.0, "slots": [], "coming": []}


def _kept_back(why: Restraint) -> list[str]:
    """Explain in sentences why a task is not placed although it may fit."""
    lines = []
    if why.limit:
        lines.append(f"its bag has reached its limit of tasks on PCs: {why.out:,} of {why.limit:,}")
    for name, needs, free, total in why.lacking:
        there = f"{free} of {total} are free" if needs <= total else f"this grid has {total}"
        lines.append(f"it needs {needs} of licence {name}, and {there}")
    if why.beside:
        lines.append("others come first: they have nothing on a PC")
    elif why.lead_s:
        lines.append(f"others come first: you have used {precise(why.lead_s)} more slot time than they have")
    return lines


def _needs(why: Explanation) -> str:
    """Say how much time a waiting task needs, and what for."""
    needs = precise(why.needs_s) + (f" on a PC of speed 1{_there(why)}" if why.uneven else "")
    if not why.checkpointable:
        return f"it needs {needs}, which includes a safety margin of {precise(why.margin_s)}"
    idle = f"; its last pieces without progress: {why.idle_pieces}" if why.idle_pieces else ""
    return f"a piece of it needs {needs}, with the time to begin it and to save its end{_done(why)}{idle}"


def _there(why: Explanation) -> str:
    """Say what a task needs on the PC that comes first: nobody may have one of speed 1."""
    shown: list[SlotReason | ComingWindow] = [*why.slots, *why.coming]
    first = shown[0] if shown else None
    if first is None or first.speed == 1.0:
        return ""
    return f" ({precise(why.needs_s / first.speed)} on {first.worker}, whose speed is {first.speed:.2g})"


def _done(why: Explanation) -> str:
    """Say what the newest checkpoint of a task has of it."""
    if why.left_s is None:
        return ""
    if why.fraction is None:
        return f"; by its newest checkpoint, about {precise(why.left_s)} of it is left"
    return f"; {why.fraction:.0%} of it is done by its newest checkpoint"


def _explanation(
    why: Explanation, item: int, said: Mapping[str, str], now: float, *, kept_back: bool, which: str
) -> list[str]:
    """Explain in sentences why a task is in its present state. ``kept_back``: not only because of PCs. ``said``: what
    each worker has said of tasks like it. ``which``: which PCs have what it needs.
    """
    start = f"task {item} (predicted {precise(why.runtime_s)})"
    if why.elsewhere:
        where = ", ".join(why.elsewhere)
        return [f"{start} waits for another PC than {where}, where it failed; if there is none, for any"]
    if why.state != State.WAITING:
        copy = f"; a copy runs on {why.copy_on}" if why.copy_on else ""
        return [f"{start} {_STATE_TEXT[why.state].format(on=why.on, again=precise(why.again_s))}{_done(why)}{copy}"]
    if not said:
        return [f"{start} waits: no worker is connected"]
    lines = [f"{start} waits: {_needs(why)}"]
    if not fits(why.needs_s, why.longest_window_s):
        longest = precise(why.longest_window_s)
        of = " for a PC of speed 1" if why.uneven else ""
        pcs = f" of PCs{which}" if which else ""
        if why.longest_window_s or not which:
            lines.append(f"no window{pcs} that is open or announced is that long: the longest is {longest}{of}")
        else:
            lines.append(f"no window{pcs} is open or announced")
    for slot in why.slots:
        of_slot = _of_slot(slot, said.get(slot.worker, ""), now, kept_back)
        lines.append(f"{slot.worker} slot {slot.slot}: {of_slot}")
    for window in why.coming:
        fit = "fits" if window.fits else "too short"
        if window.lacks or window.short:
            fit = lacks_text(window.lacks, window.short)
        at = "" if window.speed == 1.0 else f" at speed {window.speed:.2g}"
        lasts = precise(window.lasts_s)
        lines.append(f"{window.worker}: window in {precise(window.starts_in_s)} for {lasts}: {fit}{at}")
    return lines


def _of_slot(slot: SlotReason, said: str, now: float, kept_back: bool) -> str:
    """Why a slot does not take a waiting task. ``said``: what its worker has said of such tasks."""
    if slot.shut == "drained":
        return "drained: it ends what it runs, and gets nothing new"
    if slot.shut == "paused":
        return "is paused: the owner of the PC comes first"
    if slot.quarantined is not None:
        return in_quarantine(slot.quarantined, now)
    if slot.rest is not None:
        return rests(slot.rest, said, now)
    return _of_a_good_one(slot, kept_back)


def _of_a_good_one(slot: SlotReason, kept_back: bool) -> str:
    """Why a slot of a PC on which nothing is known to fail does not take a waiting task."""
    if slot.silent_s is not None:
        return f"has not answered for {precise(slot.silent_s)}, and gets no work until it does"
    if slot.lacks or slot.short:
        return lacks_text(slot.lacks, slot.short)
    if not slot.ready:
        return "its environment is not ready there"
    if slot.short_s and not slot.gang:
        left = f"{precise(slot.left_s)} left" if slot.left_s > 0.0 else "nothing left"
        return f"{left}, {precise(slot.short_s)} short{_early(slot)}"
    if slot.gang:
        return "runs a gang, or is reserved for one"
    return "fits" if kept_back else "fits, but is busy with other work"


def _early(slot: SlotReason) -> str:
    """By how much a PC leaves before it said, or after."""
    if slot.early_s is None:
        return ""
    return f"; it leaves on average {precise(abs(slot.early_s))} {'early' if slot.early_s > 0.0 else 'late'}"
