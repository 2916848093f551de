"""All events that can happen to a grid, in any order, under every policy, compared with a model of what must hold.

A task is done if and only if an attempt of it that counts was reported as done: its newest one, or one of two. In the
end, every task that was not cancelled has ended.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import CRASH_LIMIT
from deskgrid.scheduler.handlers.trust import FIRST_SLOTS, WIDER_S
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.placing.copying import SLOTS_A_COPY
from deskgrid.scheduler.policies import Policy, make_policy, policy_names
from deskgrid.scheduler.prediction.prediction_error import ENOUGH
from deskgrid.scheduler.queues.categories import ORDERS, CategoryKey, rounded_piece
from deskgrid.scheduler.queues.task_ranges import spans_of
from deskgrid.scheduler.state.failures import BAG_WORKERS
from deskgrid.scheduler.state.progress import IDLE_LIMIT
from deskgrid.scheduler.state.slots import UNSENT
from deskgrid.scheduler.state.timers import Timer
from tests.scheduler.health import Health
from tests.scheduler.watched import Watched

# Around the bounds of what is sent ahead (0.5 s), of what fits (the same values are uptimes), and equal to each other.
SECONDS = [0.1, 0.3, 0.5, 1.0, 2.5, 5.0, 20.0, 100.0, 1000.0]
RUNTIMES = st.sampled_from([0.0, *SECONDS])
UPTIMES = st.sampled_from([*SECONDS, OPEN_ENDED])
NAMES = st.sampled_from(["a", "b", "c", "d"])
FIRST_ATTEMPT = 1000
# Of the bags, by their numbers.
TIMEOUTS = (None, 1.0, 20.0, None)
COPIES = (True, False, True, False)
# Of the bags: the shortest pieces of their tasks, if these are checkpointable.
PIECES = (None, None, None, 1.0)
BAGS = st.integers(0, 3)
LIMIT = 2
FAILED = (AttemptOutcome.ERROR, AttemptOutcome.TIMEOUT, AttemptOutcome.CRASH)
KEYS = (
    CategoryKey("ann"),
    CategoryKey("bob", 1, (), LIMIT, 1),
    CategoryKey("cid", -1, (("lic", 1),)),
    CategoryKey("ann"),
)
LICENCES = 2

QUEUES: dict[str, st.SearchStrategy[Any]] = {
    "queue_length": st.sampled_from([0, 1, 2, 10]),
    "queue_s": st.sampled_from([0.0, 1.0, 6.0]),
}
MARGINS = st.sampled_from([0.0, 1.0])
OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "packing": {"queue_s": QUEUES["queue_s"], "margin": MARGINS, "confidence": st.sampled_from([0.0, 0.9])},
    "pgs": QUEUES | {"order": st.sampled_from(sorted(ORDERS)), "margin": MARGINS},
    "longest": {"margin": MARGINS},
    "fcfs": QUEUES | {"seed": st.integers(0, 3)},
}


def policies() -> st.SearchStrategy[Policy]:
    """Every policy that has a name, with options where some are known here."""
    return st.sampled_from(policy_names()).flatmap(
        lambda name: st.fixed_dictionaries(OPTIONS.get(name, {})).map(lambda options: make_policy(name, **options))
    )


@dataclass(slots=True)
class Known:
    """What the model knows of one task. ``newest``: the attempt that counts; ``at``: the worker it is with, if any.

    ``other``: a second attempt that counts, if there is one; ``other_at``: the worker it is with, if any.
    """

    bag: int
    retries: int
    newest: int | None = None
    at: str | None = None
    other: int | None = None
    other_at: str | None = None
    errors: int = 0
    crashes: list[str] = field(default_factory=list)
    ended: State | None = None
    # What is done of a checkpointable task: at its newest checkpoint, and when its piece began; whether the piece has
    # brought anything, and how many before it have not.
    fraction: float | None = None
    begun_at: float | None = None
    saved: bool = False
    idle: int = 0

    def rest(self, *, counts: bool = False) -> None:
        """Its piece is over. ``counts``: it had its time."""
        self.idle = 0 if self.saved else self.idle + counts
        self.begun_at, self.saved = self.fraction, False

    def save(self, fraction: float | None) -> None:
        """A checkpoint is kept."""
        if fraction is None or fraction > (self.begun_at or 0.0):
            self.fraction, self.saved = fraction, True

    def counts(self, number: int) -> bool:
        return self.ended is None and number in (self.newest, self.other)

    def swap(self) -> None:
        self.newest, self.at, self.other, self.other_at = self.other, self.other_at, self.newest, self.at

    def lose(self) -> None:
        """The worker of the newest is gone, or silent."""
        self.rest()
        self.at = None
        if self.other_at is not None:
            self.swap()

    def fail(self, *, counts: bool = False) -> bool:
        """The newest has failed; whether the other goes on. ``counts``: see `rest`."""
        self.rest(counts=counts)
        goes_on = self.other_at is not None
        if goes_on:
            self.swap()
        else:
            self.newest = self.at = None
        self.other = self.other_at = None
        return goes_on


class GridMachine(RuleBasedStateMachine):
    """The rules are what can happen. ``eager``: a pass follows every event; otherwise passes come now and then."""

    @initialize(
        policy=policies(),
        eager=st.booleans(),
        runtimes=st.lists(RUNTIMES, min_size=4, max_size=12),
        ratio=st.sampled_from([1.0, 3.0]),
    )
    def start(self, policy: Policy, eager: bool, runtimes: list[float], ratio: float) -> None:
        self.watched = Watched(policy, FIRST_ATTEMPT)
        for _ in range(ENOUGH):
            self.watched.scheduler.grid.prediction_error.add([ratio])
        self.now = 0.0
        self.eager = eager
        self.known: dict[int, Known] = {}
        self.barred: set[int] = set()
        self.watched.handle(ev.LicencesCounted({"lic": LICENCES}), self.now)
        self.next_task = 0
        self.next_held = 1
        self.up: dict[str, int] = {}
        self.joined_at: dict[str, float] = {}
        self.health = Health()
        # Every attempt that was ever handed out: to whom, on which slot.
        self.sent: dict[Attempt, tuple[str, int]] = {}
        # What was taken back from whom and is not answered; and who has ever answered.
        self.owed: dict[tuple[str, Attempt], None] = {}
        # What has to be stopped because of the answers that are being told.
        self.stopped: set[tuple[str, Attempt]] = set()
        self.heard: set[str] = set()
        # Something to do, and somewhere to do it, so that things get complicated sooner.
        self._submit(0, len(runtimes), runtimes, 1)
        for name, uptime in (("a", OPEN_ENDED), ("b", 100.0)):
            self.up[name] = 1
            self.joined_at[name] = self.now
            self.watched.handle(ev.WorkerJoined(name, 1, uptime), self.now)
        self.pass_due()

    # --- carrying on ------------------------------------------------------------------------------------------------

    def tell(self, event: ev.Event) -> list[cmd.Command]:
        """An event and, in an eager grid, a pass. The commands of the event."""
        commands = self.watched.handle(event, self.now)
        self.compare()
        if self.eager:
            self.pass_due()
        return commands

    def compare(self) -> None:
        """A task has ended in the scheduler just as it has in the model."""
        ended = {State.DONE, State.FAILED, State.CANCELLED}
        states = dict(self.watched.scheduler.grid.tasks.each())
        assert {task: state for task, state in states.items() if state in ended} == {
            task: known.ended for task, known in self.known.items() if known.ended is not None
        }
        bound = self.watched.scheduler.grid.bound.items()
        sent = {task: live.slot.worker.name for task, live in bound if live.number != UNSENT}
        for task, known in self.known.items():
            assert (states[task] == State.SENT) == (known.at is not None), f"task {task}: {known}"
            assert known.at is None or sent[task] == known.at
        copies = self.watched.scheduler.grid.copies.items()
        assert {(task, copy.number, copy.slot.worker.name or None) for task, copy in copies} == {
            (task, known.other, known.other_at)
            for task, known in self.known.items()
            if known.other is not None and known.ended is None
        }

    @rule(most=st.sampled_from([1, 3, math.inf]))
    def pass_due(self, most: float = math.inf) -> None:
        before = sum(known.other_at is not None for known in self.known.values() if known.ended is None)
        out, inside = self._out(), self.watched.scheduler.grid
        elsewhere = {
            task: inside.tasks.failed_on(task)
            for category in inside.categories.by_key.values()
            for task in category.elsewhere
            if inside.timers.at[Timer.PAUSE].get(task, 0.0) > self.now
        }
        commands = self.watched.handle(ev.PassDue(most), self.now)
        for name, most_out in (("limit", LIMIT), ("licences", LICENCES)):
            assert self._out()[name] <= max(most_out, out[name]), name
        begun = {work.attempt.task for c in commands if isinstance(c, cmd.Assign) for work in c.work}
        assert not [task for task in begun if self.known[task].bag in self.barred]
        self._believed_again()
        for command in commands:
            if isinstance(command, cmd.GiveUp):
                self._given_up(command)
        self.health.look(set(self.up), self.now)
        stops = [(c.worker, attempt) for c in commands if isinstance(c, cmd.Stop) for attempt in c.attempts]
        assert set(stops) == self._replaced(commands), "the wrong ones are to stop"
        for command in commands:
            if not isinstance(command, cmd.Assign):
                continue
            assert command.worker not in self.health.drained, "work for one that is drained"
            stay = self.health.quarantined.get(command.worker)
            assert stay is None or (stay.tried and len(command.work) == 1), "work for one in quarantine"
            for work in command.work:
                known = self.known[work.attempt.task]
                assert known.ended is None
                assert command.worker not in elsewhere.get(work.attempt.task, ()), "tried where it has failed"
                assert work.attempt not in self.sent, "a number was given twice"
                assert known.newest is None or work.attempt.number > known.newest
                assert work.slot < self.up[command.worker]
                key = self.watched.scheduler.grid.tasks.known(work.attempt.task).bag.category.key
                assert self.watched.scheduler.grid.avoided.until(key, command.worker) is None, "work without room"
                assert (command.worker, work.slot) not in self._shut(), "work for a slot that owes an answer"
                if known.at is None:
                    known.newest, known.at, known.other = work.attempt.number, command.worker, None
                else:
                    assert COPIES[known.bag], "handed out while another has it"
                    assert known.other_at is None, "a third attempt"
                    assert known.at != command.worker, "a copy beside its original"
                    known.other, known.other_at = work.attempt.number, command.worker
                self.sent[work.attempt] = (command.worker, work.slot)
                if command.worker not in self.heard:
                    wide = FIRST_SLOTS * 2 ** min(60.0, (self.now - self.joined_at[command.worker] + 1e-6) // WIDER_S)
                    assert work.slot < wide, "a new one gets too many tasks"
                    ahead = self._at(command.worker, work.slot) - (known.at == command.worker)
                    assert not ahead, "a new one gets work ahead"
        copies = sum(known.other_at is not None for known in self.known.values() if known.ended is None)
        assert copies <= max(1, sum(self.up.values()) // SLOTS_A_COPY) or copies <= before, "too many copies"
        self.compare()

    def _replaced(self, commands: list[cmd.Command]) -> set[tuple[str, Attempt]]:
        """What no longer counts because of what is handed out, and has to be stopped."""
        stopped = set[tuple[str, Attempt]]()
        work = [(c.worker, each) for c in commands if isinstance(c, cmd.Assign) for each in c.work]
        for _, each in work:
            known = self.known[each.attempt.task]
            if known.at is None:
                stopped |= self._owing(each.attempt.task, known.newest, known.other)
            else:
                stopped |= self._owing(each.attempt.task, known.other)
        taken = {(name, each.slot) for name, each in work if self.known[each.attempt.task].at is None}
        for task, known in self.known.items():
            if known.ended is None and known.other is not None and known.other_at is not None:
                copy = Attempt(task, known.other)
                if (known.other_at, self.sent[copy][1]) in taken:
                    stopped.add((known.other_at, copy))
                    known.other = known.other_at = None
        return stopped

    def _owing(self, task: int, *numbers: int | None) -> set[tuple[str, Attempt]]:
        """Those that owe an answer for one of these attempts, and may go on with it until they are stopped."""
        if TIMEOUTS[self.known[task].bag] is not None:
            return set()
        return {(name, at) for name, at in self.owed if at.task == task and at.number in numbers}

    def _at(self, name: str, slot: int) -> int:
        """How many attempts a slot has."""
        places = [self.sent[Attempt(t, k.newest)] for t, k in self.known.items() if k.at == name and k.newest]
        return sum(1 for _, its in places if its == slot)

    def _shut(self) -> set[tuple[str, int]]:
        """The slots that owe an answer."""
        return {(name, self.sent[attempt][1]) for name, attempt in self.owed}

    def _goes_on(self, attempt: Attempt) -> bool:
        """Whether what was taken back was not stopped, and still may count."""
        known = self.known.get(attempt.task)
        return known is not None and known.counts(attempt.number) and TIMEOUTS[known.bag] is None

    def _given_up(self, command: cmd.GiveUp) -> None:
        """What is overdue waits again; the first of each slot is still to be answered."""
        slots: set[int] = set()
        for attempt in command.attempts:
            known, slot = self.known[attempt.task], self.sent[attempt][1]
            assert (known.at, known.newest) == (command.worker, attempt.number)
            known.lose()
            if slot in slots:
                continue
            slots.add(slot)
            assert command.stop == (TIMEOUTS[known.bag] is not None)
            self.owed[command.worker, attempt] = None
            self.health.fails(command.worker, KEYS[known.bag].owner, set(self.up), self.now)

    def _believed_again(self) -> None:
        """What turned out not to be late is where it was."""
        for name, attempt in sorted(self.owed):
            if self._goes_on(attempt) and self.watched.scheduler.grid.tasks.state(attempt.task) == State.SENT:
                live = self.watched.scheduler.grid.bound[attempt.task]
                if live.slot.worker.name == name and live.attempt == attempt:
                    self._believe(name, attempt)

    def _believe(self, name: str, attempt: Attempt) -> None:
        known = self.known[attempt.task]
        assert TIMEOUTS[known.bag] is None
        if attempt.number == known.other:
            known.swap()
        known.at = name
        del self.owed[name, attempt]

    def _answers(self, name: str, *, well: bool = True) -> None:
        """A worker has answered: it is believed."""
        if well:
            self.health.works(name)
        self._answers_only(name)

    def _answers_only(self, name: str) -> None:
        """A worker has said something of its work, which does not end its quarantine."""
        if name in self.up:
            self.heard.add(name)
            for owed in [owed for owed in self.owed if owed[0] == name and self._goes_on(owed[1])]:
                if self.known[owed[1].task].at is None:
                    self._believe(*owed)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 4.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # --- tasks ------------------------------------------------------------------------------------------------------

    @rule(runtimes=st.lists(RUNTIMES, min_size=1, max_size=8), bag=BAGS, retries=st.integers(0, 2))
    def submit(self, runtimes: list[float], bag: int, retries: int) -> None:
        self._submit(bag, len(runtimes), runtimes, retries)

    @rule(runtime=RUNTIMES, count=st.integers(2, 12), bag=BAGS)
    def submit_uniform(self, runtime: float, count: int, bag: int) -> None:
        self._submit(bag, count, [runtime], 1)

    @rule(bag=BAGS, name=NAMES, runtime=RUNTIMES)
    def restore(self, bag: int, name: str, runtime: float) -> None:
        """A batch of one task in each state, the last two held by a worker that is not back yet."""
        first = self.next_task
        held = [Attempt(first + 4, self.next_held), Attempt(first + 5, self.next_held + 1)]
        copies = [Attempt(first + 5, self.next_held + 2)] if COPIES[bag] else []
        self.next_held += 3
        ended = {"done": [first], "failed": [first + 1], "cancelled": [first + 2]}
        self._submit(bag, 6, [runtime], 1, **ended, held=held, held_copies=copies)
        for task, state in zip(range(first, first + 3), (State.DONE, State.FAILED, State.CANCELLED), strict=True):
            self.known[task].ended = state
        for attempt in held:
            self.known[attempt.task].newest = attempt.number
            self.sent[attempt] = (name, 0)
        for attempt in copies:
            self.known[attempt.task].other = attempt.number
            self.sent[attempt] = (name, 1)

    def _submit(self, bag: int, count: int, runtimes: list[float], retries: int, **restored: Any) -> None:
        first, self.next_task = self.next_task, self.next_task + count
        restored |= {"key": KEYS[bag], "barred": bag in self.barred, "min_piece": PIECES[bag]}
        if bag % 2 == 0:
            restored["probes"] = range(first + count - 1, first - 1, -2)
        event = ev.TasksSubmitted(bag, first, count, runtimes, retries, TIMEOUTS[bag], COPIES[bag], **restored)
        for known in self.known.values():
            if known.bag == bag:
                known.retries = retries
        for task in range(first, first + count):
            self.known[task] = Known(bag, retries)
        assert self.watched.handle(event, self.now) == []

    def _out(self) -> dict[str, int]:
        """How many tasks of the bag with a limit are out, and how many licences are in use."""
        categories = self.watched.scheduler.grid.categories
        limited = categories.by_key.get(KEYS[1])
        return {"limit": 0 if limited is None else limited.out, "licences": categories.licences.used["lic"]}

    @rule(bag=st.integers(0, 2), barred=st.booleans())
    def gate(self, bag: int, barred: bool) -> None:
        """A bag is paused, or goes on, and all its tasks move."""
        if bag not in self.watched.scheduler.grid.tasks.bags:
            return
        (self.barred.add if barred else self.barred.discard)(bag)
        assert self.watched.handle(ev.BagGated(bag, barred), self.now) == []
        spans = spans_of(sorted(task for task, known in self.known.items() if known.bag == bag))
        assert self.tell(ev.TasksRouted(spans)) == []

    @rule(shares=st.sampled_from([{}, {"ann": ("both", 2.0), "bob": ("both", 2.0)}, {"cid": ("cid", 0.5)}]))
    def arrange_shares(self, shares: dict[str, tuple[str, float]]) -> None:
        assert self.tell(ev.SharesArranged(shares)) == []

    def some_tasks(self, data: st.DataObject) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.known)), min_size=1, max_size=6))

    def some_attempt(self, data: st.DataObject) -> Attempt:
        """Any ever made; or, more likely than by chance, one that counts."""
        counts = [
            Attempt(task, number)
            for task, known in self.known.items()
            for number in (known.newest, known.other)
            if number and not known.ended
        ]
        return data.draw(st.sampled_from(list(self.sent)) | st.sampled_from(counts or list(self.sent)))

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self._cancel(self.some_tasks(data))

    def _cancel(self, tasks: list[int]) -> None:
        stopped = set()
        for task in tasks:
            known = self.known[task]
            if known.ended is None:
                if known.at is not None:
                    stopped.add((known.at, known.newest))
                if known.other_at is not None:
                    stopped.add((known.other_at, known.other))
                stopped |= {(name, at.number) for name, at in self.owed if at.task == task and self._goes_on(at)}
                known.ended, known.at, known.other_at = State.CANCELLED, None, None
        commands = self.tell(ev.TasksCancelled(spans_of(sorted(set(tasks)))))
        assert {(c.worker, a.number) for c in commands if isinstance(c, cmd.Stop) for a in c.attempts} == stopped

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def update_runtimes(self, data: st.DataObject) -> None:
        tasks = self.some_tasks(data)
        self._recalls(self.tell(ev.RuntimesUpdated(tasks, [data.draw(RUNTIMES) for _ in tasks])))

    @rule(bag=BAGS, runtime=RUNTIMES)
    def predict_bag(self, bag: int, runtime: float) -> None:
        if bag in self.watched.scheduler.grid.tasks.bags:
            self._recalls(self.tell(ev.BagPredicted(bag, runtime)))

    @rule(bag=BAGS, cancel_it=st.booleans())
    def forget_bag(self, bag: int, cancel_it: bool) -> None:
        if cancel_it:
            self._cancel([task for task, known in self.known.items() if known.bag == bag])
        left = [known for known in self.known.values() if known.bag == bag]
        if not left or any(known.ended is None for known in left):
            with pytest.raises(IllegalEvent):
                self.watched.handle(ev.BagForgotten(bag), self.now)
            return
        self.known = {task: known for task, known in self.known.items() if known.bag != bag}
        self.barred.discard(bag)
        self.health.forget_bag(bag)
        assert self.tell(ev.BagForgotten(bag)) == []

    @rule(policy=policies())
    def switch_policy(self, policy: Policy) -> None:
        assert self.tell(ev.PolicyChanged(policy)) == []

    # --- workers ----------------------------------------------------------------------------------------------------

    @rule(name=NAMES, slots=st.sampled_from([1, 2, 3, 9]), uptime=UPTIMES, data=st.data())
    def join(self, name: str, slots: int, uptime: float, data: st.DataObject) -> None:
        """A window opens, or a worker is back over a new connection; it may hold anything that it was ever given."""
        given_before = [attempt for attempt, (worker, _) in self.sent.items() if worker == name]
        attempts = data.draw(st.lists(st.sampled_from(given_before), unique=True, max_size=5)) if given_before else []
        elapsed = st.none() | st.sampled_from(SECONDS)
        holds = [ev.HeldAttempt(attempt, self.sent[attempt][1], data.draw(elapsed)) for attempt in attempts]
        self._take_away(name)
        stopped = set()
        others, busy = list[ev.HeldAttempt](), set[int]()
        for hold in sorted(holds, key=lambda hold: hold.elapsed is None):
            known = self.known.get(hold.attempt.task)
            if known is None or not known.counts(hold.attempt.number) or known.at or hold.slot >= slots:
                others.append(hold)
                continue
            if known.other == hold.attempt.number:
                known.swap()
            known.at = name
            busy.add(hold.slot)
        for hold in others:
            known = self.known.get(hold.attempt.task)
            idle = hold.slot < slots and hold.slot not in busy
            is_lost = known is not None and not known.ended and known.other == hold.attempt.number
            if known is not None and idle and is_lost and known.at and not known.other_at:
                known.other_at = name
                busy.add(hold.slot)
            else:
                stopped.add(hold.attempt)
        self.up[name] = slots
        self.joined_at[name] = self.now
        commands = self.tell(ev.WorkerJoined(name, slots, uptime, [(uptime + 10, 50.0)], "", holds))
        assert {a for c in commands if isinstance(c, cmd.Stop) for a in c.attempts} == stopped

    def _take_away(self, name: str) -> None:
        self.up.pop(name, None)
        self.health.drained.discard(name)
        self.owed = {owed: None for owed in self.owed if owed[0] != name}
        for known in self.known.values():
            if known.other_at == name:
                known.other_at = None
            if known.at == name:
                known.lose()

    @rule(name=NAMES, planned=st.booleans(), data=st.data())
    def leave(self, name: str, planned: bool, data: st.DataObject) -> None:
        """A departure or a loss, also of a worker that is not there. It may hand back what it was ever given."""
        given = [attempt for attempt, (worker, _) in self.sent.items() if worker == name]
        unstarted = data.draw(st.lists(st.sampled_from(given), max_size=3)) if given and planned else []
        stuck = self._pieces_over(name, planned, unstarted)
        self._take_away(name)
        commands = self.tell(ev.WorkerLeft(name, planned, False, unstarted, [(5.0, 50.0)]))
        assert commands == ([cmd.Stuck(stuck)] if stuck else [])

    def _pieces_over(self, name: str, planned: bool, unstarted: list[Attempt]) -> list[Attempt]:
        """A window closes over pieces of checkpointable tasks. Returns those that were the last of too many in vain."""
        worker, stuck = self.watched.scheduler.grid.slots.workers.get(name), []
        for slot in worker.slots if worker is not None else ():
            if slot.sent and (attempt := slot.sent[0].attempt) not in unstarted:
                known = self.known[attempt.task]
                piece = PIECES[known.bag]
                if piece is not None:
                    known.rest(counts=planned and self.now - slot.started >= rounded_piece(piece))
                    if known.idle >= IDLE_LIMIT:
                        known.ended = State.FAILED
                        stuck.append(attempt)
        return stuck

    @rule(name=NAMES, drained=st.booleans())
    def drain(self, name: str, drained: bool) -> None:
        """Somebody drains a PC, or no more; also one that is not there, or twice."""
        if name in self.up:
            (self.health.drained.add if drained else self.health.drained.discard)(name)
        self._recalls(self.tell(ev.WorkerDrained(name, drained)))

    @rule(
        name=NAMES,
        uptime=UPTIMES | st.just(0.0),
        shift=st.none() | st.sampled_from([-3.0, -0.2, 0.2, 0.7]),
        announces=st.booleans(),
    )
    def refresh_uptime(self, name: str, uptime: float, shift: float | None, announces: bool) -> None:
        """A worker announces another end of its window, or one that differs little; or it is away."""
        if name in self.up and shift is not None:
            uptime = max(0.0, self.watched.scheduler.grid.slots.workers[name].ends_at - self.now + shift)
        windows = [(uptime + 10, 50.0)] if announces else None
        self._recalls(self.tell(ev.UptimeRefreshed(name, uptime, windows)))

    @rule(name=NAMES)
    def forget_worker(self, name: str) -> None:
        self.health.works(name)
        if name not in self.up:
            self.heard.discard(name)
        assert self.tell(ev.WorkerForgotten(name)) == []

    def _recalls(self, commands: list[cmd.Command]) -> None:
        """Only what is at a worker is called back from it. Some of it comes back."""
        for command in commands:
            assert isinstance(command, cmd.Recall)
            for attempt in command.attempts:
                assert self.sent[attempt][0] == command.worker
        back = [a for c in commands if isinstance(c, cmd.Recall) for place, a in enumerate(c.attempts) if place % 2]
        self._return(back)

    # --- attempts ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), outcomes=st.lists(st.sampled_from(AttemptOutcome), min_size=1, max_size=3), name=NAMES)
    def answer(self, data: st.DataObject, outcomes: list[AttemptOutcome], name: str) -> None:
        """Any attempts ever made, the same twice perhaps, end in any way; whoever says so."""
        attempts = [self.some_attempt(data) for _ in outcomes]
        answers = list(zip(attempts, outcomes, strict=True))
        if any(attempt == owed for attempt in attempts for _, owed in self.owed):
            # What one of them says may change what another means: one after the other.
            for one in answers:
                self._end([one], name)
        else:
            self._end(answers, name)

    @precondition(lambda self: self.owed)
    @rule(data=st.data(), outcome=st.sampled_from(AttemptOutcome), stopped=st.booleans())
    def answer_at_last(self, data: st.DataObject, outcome: AttemptOutcome, stopped: bool) -> None:
        """A silent worker answers for what was taken back from it, or says that it has stopped."""
        name, attempt = data.draw(st.sampled_from(sorted(self.owed)))
        if stopped:
            self._return([attempt], name)
        else:
            self._end([(attempt, outcome)], name)

    @precondition(lambda self: any(known.at for known in self.known.values()))
    @rule(data=st.data(), outcome=st.sampled_from(AttemptOutcome), late=st.sampled_from([0.0, 0.0, 3.0, 60.0]))
    def end_running(self, data: st.DataObject, outcome: AttemptOutcome, late: float) -> None:
        """What a worker has ends, at its time or late."""
        slots = [slot for slot in self.watched.scheduler.grid.slots.slots.values() if slot.sent or slot.copy]
        slot = data.draw(st.sampled_from(slots))
        self.now = max(self.now, slot.due + late)
        self._end([((slot.copy or slot.sent[0]).attempt, outcome)], slot.worker.name)

    def _end(self, answers: list[tuple[Attempt, AttemptOutcome]], name: str) -> None:
        self.stopped = set()
        self.open: set[Attempt] = set()
        settled = [attempt for attempt, outcome in answers if self._counts(attempt, outcome, name)]
        event = ev.AttemptsEnded(name, [ev.EndedAttempt(attempt, outcome, 1.0) for attempt, outcome in answers])
        commands = self.watched.handle(event, self.now)
        for attempt in self.open:
            if self.watched.scheduler.grid.tasks.state(attempt.task) == State.FAILED:
                self.known[attempt.task].ended = State.FAILED
                settled.append(attempt)
        settled.sort()
        self.compare()
        if self.eager:
            self.pass_due()
        recalls = [command for command in commands if isinstance(command, cmd.Recall)]
        stops = [command for command in commands if isinstance(command, cmd.Stop)]
        assert {(stop.worker, attempt) for stop in stops for attempt in stop.attempts} == self.stopped
        others = [command for command in commands if not isinstance(command, cmd.Recall | cmd.Stop | cmd.Stuck)]
        assert [sorted(command.attempts) for command in others if isinstance(command, cmd.Settle)] == [settled][
            : len(others)
        ]
        assert len(others) == bool(settled)
        self._recalls(list(recalls))

    def _counts(self, attempt: Attempt, outcome: AttemptOutcome, reporter: str) -> bool:
        """Whether the model's task ends by this answer."""
        known, owes = self.known.get(attempt.task), (reporter, attempt) in self.owed
        self.owed.pop((reporter, attempt), None)
        if known is None or not known.counts(attempt.number):
            if owes and outcome != AttemptOutcome.CRASH:
                self._answers(reporter)
            return False
        if known.other == attempt.number:
            known.swap()
        worker = known.at or reporter
        numbers = (known.newest, known.other)
        if outcome == AttemptOutcome.DONE and known.other_at is not None and known.other is not None:
            self.stopped.add((known.other_at, Attempt(attempt.task, known.other)))
            known.other_at = None
        goes_on = known.fail(counts=outcome == AttemptOutcome.PIECE)
        self._answers(
            worker, well=outcome not in (AttemptOutcome.CRASH, AttemptOutcome.NO_ROOM, AttemptOutcome.NO_START)
        )
        owner, up = KEYS[known.bag].owner, set(self.up)
        broken = outcome in FAILED and self.health.failed(worker, known.bag, self._done_of(known.bag), up)
        if outcome == AttemptOutcome.NO_START or (outcome == AttemptOutcome.CRASH and not broken):
            self.health.fails(worker, owner, up, self.now)
        if goes_on:
            return False
        self.stopped |= self._owing(attempt.task, *numbers)
        if outcome == AttemptOutcome.DONE:
            known.ended = State.DONE
        elif outcome in FAILED:
            self._fails(known, attempt, outcome, worker)
        elif known.idle >= IDLE_LIMIT:
            known.ended = State.FAILED
            return False  # nobody answered that
        return known.ended is not None

    def _fails(self, known: Known, attempt: Attempt, outcome: AttemptOutcome, worker: str) -> None:
        """An attempt failed: its task ends by that, or goes on, or either, as others of its bag do."""
        if outcome == AttemptOutcome.CRASH:
            known.crashes.append(worker)
            failed, excused = len(known.crashes) >= CRASH_LIMIT, set(known.crashes) == {worker}
        else:
            known.errors += 1
            failed, excused = known.errors > known.retries, known.errors < known.retries + BAG_WORKERS
        if failed and excused:
            self.open.add(attempt)
        elif failed:
            known.ended = State.FAILED

    def _done_of(self, bag: int) -> int:
        return sum(known.bag == bag and known.ended == State.DONE for known in self.known.values())

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), fraction=st.sampled_from([None, 0.3, 0.6, 0.9]), elapsed=st.sampled_from(SECONDS))
    def save(self, data: st.DataObject, fraction: float | None, elapsed: float) -> None:
        """A checkpoint of any attempt comes. It counts if the attempt is the newest of a checkpointable task."""
        attempt = self.some_attempt(data)
        known = self.known.get(attempt.task)
        if known is None:
            return
        if known.ended is None and known.newest == attempt.number and PIECES[known.bag] is not None:
            known.save(fraction)
            if known.at is not None:
                self._answers_only(known.at)
        assert self.tell(ev.CheckpointKept(attempt, fraction, elapsed, 0.5)) == []

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self._return([self.some_attempt(data), self.some_attempt(data)])

    def _return(self, attempts: list[Attempt], name: str = "a") -> None:
        stopped = set[tuple[str, Attempt]]()
        for attempt in attempts:
            known = self.known.get(attempt.task)
            self.owed.pop((name, attempt), None)
            if known is None or known.ended is not None:
                continue
            if known.other == attempt.number:
                known.other = known.other_at = None
            elif known.at is not None and known.newest == attempt.number:
                lost = known.other
                if not known.fail():
                    stopped |= self._owing(attempt.task, lost)
        commands = self.tell(ev.AttemptsReturned(name, attempts))
        assert {(c.worker, a) for c in commands if isinstance(c, cmd.Stop) for a in c.attempts} == stopped
        assert all(isinstance(command, cmd.Stop) for command in commands)

    @rule()
    def hold_expires(self) -> None:
        assert self.tell(ev.HoldExpired()) == []
        states = dict(self.watched.scheduler.grid.tasks.each())
        assert State.HELD not in states.values()

    # --- the end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """A perfect worker comes, and everything that nobody cancelled ends."""
        if not hasattr(self, "watched"):
            return
        self.eager = True
        for number in list(self.barred):
            self.gate(number, False)
        self.up["perfect"] = 2
        self.joined_at["perfect"] = self.now
        self.watched.handle(ev.WorkerJoined("perfect", 2, OPEN_ENDED), self.now)
        self.hold_expires()
        for _ in range(len(self.known) + 1):
            at_workers = [
                Attempt(task, known.newest) for task, known in self.known.items() if known.at and known.newest
            ]
            if at_workers:
                self.now += 1.0
                self._end([(attempt, AttemptOutcome.DONE) for attempt in at_workers], "perfect")
        assert all(known.ended is not None for known in self.known.values())
        for bag in self.watched.scheduler.grid.tasks.bags.values():
            assert (bag.settled, bag.left_s) == (bag.total, 0.0)
        assert not len(self.watched.scheduler.grid.categories)
        assert not self.watched.scheduler.grid.lost
        assert not self.watched.scheduler.grid.copies


# Ten seconds, and several times that where coverage is measured on a busy machine.
TestGrid = pytest.mark.timeout(300)(GridMachine.TestCase)
TestGrid.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
