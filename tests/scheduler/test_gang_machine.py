"""All events that can happen to parallel tasks, in any order, beside single tasks that need memory and labels.

`Watched` looks at all invariants after each event. The model beside it: a gang has all its ranks or none; whenever one
is lost, all its workers that are still there are told to stop; and a task is done if and only if its attempt was.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from deskgrid.scheduler import commands as cmd
from deskgrid.scheduler import events as ev
from deskgrid.scheduler.core import CRASH_LIMIT
from deskgrid.scheduler.model import OPEN_ENDED, Attempt, AttemptOutcome, IllegalEvent, State
from deskgrid.scheduler.need import Need, of_memory
from deskgrid.scheduler.parallel.speedup import Amdahl
from deskgrid.scheduler.policies import make_policy
from deskgrid.scheduler.queues.categories import CategoryKey
from deskgrid.scheduler.queues.task_ranges import spans_of
from tests.scheduler.watched import Watched

POLICIES = ("packing", "pgs", "fcfs", "easy", "ff", "tla")
SECONDS = st.sampled_from([0.0, 0.3, 1.0, 5.0, 20.0, 100.0])
UPTIMES = st.sampled_from([3.0, 30.0, 300.0, OPEN_ENDED])
NAMES = st.sampled_from(["a", "b", "c", "d"])
SITES = {"a": "lab", "b": "lab", "c": "lab", "d": "hall", "p": "perfect", "q": "perfect"}
# Enough for what any worker may have since before a restart.
MEMORY = {"a": 4, "b": 7, "c": 4, "d": 5}
LICENCES = 1
# By bag: what its tasks need, and its category.
NEEDS = (
    Need(2, 2),
    Need(1, 3, speedup=Amdahl(0.1)),
    Need(1, 1, slots=2, amounts=of_memory(3)),
    Need(gang=True, labels=frozenset({"gpu"})),
    Need(amounts=of_memory(2)),
    Need(labels=frozenset({"gpu"})),
    Need(),
)
KEYS = (
    CategoryKey("ann", licences=(("lic", 1),)),
    CategoryKey("ann"),
    CategoryKey("bob", 1),
    CategoryKey("bob", 0, (), 1, 3),
    CategoryKey("ann"),
    CategoryKey("bob"),
    CategoryKey("ann"),
)
TIMEOUTS = (None, None, 2.0, None, None, None, None)
BAGS = st.integers(0, len(NEEDS) - 1)
PERFECT = frozenset({"gpu"})


class GangMachine(RuleBasedStateMachine):
    """The rules are what can happen."""

    @initialize(policy=st.sampled_from(POLICIES), data=st.data())
    def start(self, policy: str, data: st.DataObject) -> None:
        self.watched = Watched(make_policy(policy), 1000)
        self.now = 0.0
        self.bags: dict[int, int] = {}  # by task
        self.ended: set[int] = set()
        self.barred: set[int] = set()
        # Gangs that should have slots, by task: their attempts, and their workers with the slots of each rank.
        self.live: dict[int, tuple[Attempt, list[tuple[str, tuple[int, ...]]]]] = {}
        # The ranks of these that have ended, and whose workers are needed no more.
        self.over: dict[Attempt, set[int]] = {}
        self.singles: dict[int, tuple[Attempt, str]] = {}
        self.sent: list[Attempt] = []
        self.held: dict[int, tuple[Attempt, list[tuple[str, tuple[int, ...]]]]] = {}
        self.up: dict[str, int] = {}
        self.crashed: int | None = None
        self.crashes: dict[int, int] = {}
        self.next_task, self.next_held = 0, 1
        self.tell(ev.LicencesCounted({"lic": LICENCES}))
        for name in ("a", "b"):
            self.join(name, 2, OPEN_ENDED, kept=[])
        self.submit(0, [1.0, 5.0])
        self.pass_due()

    @property
    def grid(self) -> Any:
        return self.watched.scheduler.grid

    def tell(self, event: ev.Event, *, gone: str = "", lost: tuple[int, ...] = ()) -> list[cmd.Command]:
        """An event. The workers of the gangs in ``lost`` that are still there, all but ``gone``, are told to stop."""
        expected = set()
        for task in lost:
            attempt, ranks = self.live.pop(task)
            expected |= {(name, attempt) for name, _ in ranks if name != gone and name in self.up}
        commands = self.watched.handle(event, self.now)
        gangs = {attempt for attempt in self.sent if NEEDS[self.bags[attempt.task]].parallel}
        stops = {(c.worker, a) for c in commands if isinstance(c, cmd.Stop) for a in c.attempts if a in gangs}
        assert stops == expected
        if self.crashed is not None and self.grid.tasks.state(self.crashed) == State.FAILED:
            assert self.crashes[self.crashed] >= CRASH_LIMIT
            self.ended.add(self.crashed)
        self.crashed = None
        self.compare()
        return commands

    def compare(self) -> None:
        running = self.grid.gangs.running
        whole = {task: gang.attempt for task, gang in running.items() if gang.running is not None}
        assert whole == {task: attempt for task, (attempt, _) in self.live.items()}
        ended = {State.DONE, State.FAILED, State.CANCELLED}
        assert {task for task, state in self.grid.tasks.each() if state in ended} == self.ended
        for task, (_, ranks) in self.live.items():
            assert [(place.worker, tuple(place.slots)) for place in running[task].ranks] == ranks

    # --- passes and time ---------------------------------------------------------------------------------------------

    @rule(most=st.sampled_from([1, 1000]))
    def pass_due(self, most: int = 1000) -> None:
        before = self.grid.categories.licences.used["lic"]
        commands = self.watched.handle(ev.PassDue(most), self.now)
        for command in commands:
            if isinstance(command, cmd.GiveUp):
                for attempt in command.attempts:
                    del self.singles[attempt.task]
            if isinstance(command, cmd.Stop):  # the gang of a silent worker
                for attempt in command.attempts:
                    if self.live.get(attempt.task, (None,))[0] == attempt:
                        del self.live[attempt.task]
        for command in commands:
            if isinstance(command, cmd.Assign):
                for work in command.work:
                    assert not NEEDS[self.bags[work.attempt.task]].parallel
                    self.singles[work.attempt.task] = work.attempt, command.worker
                    self.sent.append(work.attempt)
                    self._suits(work.attempt.task, command.worker)
            elif isinstance(command, cmd.StartGang):
                self._starts(command)
        assert self.grid.categories.licences.used["lic"] <= max(before, LICENCES)
        self.compare()

    def _suits(self, task: int, name: str) -> None:
        assert NEEDS[self.bags[task]].labels <= self.grid.slots.workers[name].traits.labels

    def _starts(self, command: cmd.StartGang) -> None:
        attempt, task = command.attempt, command.attempt.task
        need = NEEDS[self.bags[task]]
        assert need.parallel
        assert self.bags[task] not in self.barred
        assert task not in self.live
        assert need.least <= len(command.ranks) <= need.most
        names = [place.worker for place in command.ranks]
        assert len({SITES.get(name, name) for name in names}) == 1
        reachable = [self.grid.slots.workers[name].traits.reachable for name in names]
        assert len(set(names)) == 1 or all(reachable)
        places = [(place.worker, slot) for place in command.ranks for slot in place.slots]
        assert len(set(places)) == len(places) == len(command.ranks) * need.slots
        for name in names:
            self._suits(task, name)
        self.live[task] = attempt, [(place.worker, tuple(place.slots)) for place in command.ranks]
        self.sent.append(attempt)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # --- tasks -------------------------------------------------------------------------------------------------------

    @rule(bag=BAGS, runtimes=st.lists(SECONDS, min_size=1, max_size=4))
    def submit(self, bag: int, runtimes: list[float], **restored: Any) -> None:
        first, self.next_task = self.next_task, self.next_task + len(runtimes)
        self.bags.update(dict.fromkeys(range(first, self.next_task), bag))
        more: dict[str, Any] = {"key": KEYS[bag], "need": NEEDS[bag], "barred": bag in self.barred} | restored
        self.tell(ev.TasksSubmitted(bag, first, len(runtimes), runtimes, 1, TIMEOUTS[bag], **more))

    @rule(bag=st.sampled_from([0, 1, 2]), names=st.lists(NAMES, min_size=2, max_size=2))
    def restore(self, bag: int, names: list[str]) -> None:
        """A gang runs since before a restart, on workers that are not back yet."""
        names = ["a", "b"] if SITES[names[0]] != SITES[names[1]] else names
        attempt = Attempt(self.next_task, self.next_held)
        self.next_held += 1
        need = NEEDS[bag]
        slots = [(0, 1)[: need.slots], (1, 0)[: need.slots]]
        ranks = [(name, slots[place] if names[0] == names[1] else slots[0]) for place, name in enumerate(names)]
        self.held[attempt.task] = attempt, ranks[: need.most]
        self.sent.append(attempt)
        self.submit(bag, [5.0], held=[attempt])

    @precondition(lambda self: self.bags)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        tasks = set(data.draw(st.lists(st.sampled_from(sorted(self.bags)), min_size=1, max_size=4)))
        self._awaited_lost(tasks)
        self.ended |= tasks
        for task in tasks:
            self.singles.pop(task, None)
            self.held.pop(task, None)
        self.tell(ev.TasksCancelled(spans_of(sorted(tasks))), lost=tuple(tasks & self.live.keys()))

    def _awaited_lost(self, tasks: set[int]) -> None:
        """Of gangs that are awaited, the ranks that are back are stopped: treat them as live, for `tell`."""
        for task in tasks:
            gang = self.grid.gangs.running.get(task)
            if gang is not None and gang.running is None:
                self.live[task] = gang.attempt, [(slot.worker.name, ()) for slot in gang.slots]

    @rule(bag=BAGS, barred=st.booleans())
    def gate(self, bag: int, barred: bool) -> None:
        if bag not in self.grid.tasks.bags:
            return
        (self.barred.add if barred else self.barred.discard)(bag)
        self.tell(ev.BagGated(bag, barred))
        if self.now % 2 < 1.0:  # a pass may come between these two
            self.pass_due()
        self.tell(ev.TasksRouted(spans_of(sorted(task for task, its in self.bags.items() if its == bag))))

    @precondition(lambda self: self.bags)
    @rule(data=st.data(), seconds=SECONDS)
    def predict(self, data: st.DataObject, seconds: float) -> None:
        tasks = data.draw(st.lists(st.sampled_from(sorted(self.bags)), min_size=1, max_size=3))
        self.tell(ev.RuntimesUpdated(tasks, [seconds] * len(tasks)))

    @rule(bag=BAGS, seconds=SECONDS)
    def predict_bag(self, bag: int, seconds: float) -> None:
        if bag in self.grid.tasks.bags:
            self.tell(ev.BagPredicted(bag, seconds))

    @rule(bag=BAGS)
    def forget(self, bag: int) -> None:
        tasks = {task for task, its in self.bags.items() if its == bag}
        if tasks and tasks <= self.ended:
            self.ended -= tasks
            self.tell(ev.BagForgotten(bag))
            self.sent = [attempt for attempt in self.sent if attempt.task not in tasks]
            self.barred.discard(bag)
            for task in tasks:
                del self.bags[task]

    @rule(policy=st.sampled_from(POLICIES))
    def switch_policy(self, policy: str) -> None:
        self.tell(ev.PolicyChanged(make_policy(policy)))

    # --- workers -----------------------------------------------------------------------------------------------------

    @rule(
        name=NAMES,
        slots=st.integers(1, 3),
        uptime=UPTIMES,
        speed=st.sampled_from([1.0, 0.5, 0.333, 2.0]),
        labelled=st.booleans(),
        reachable=st.booleans(),
        kept=st.lists(st.integers(0, 5), max_size=6),
    )
    def join(
        self,
        name: str,
        slots: int,
        uptime: float,
        *,
        speed: float = 1.0,
        labelled: bool = True,
        reachable: bool = True,
        kept: list[int],
    ) -> None:
        """A window opens, or a worker is back over a new connection. It still has some of what it had."""
        holds = [
            ev.HeldAttempt(attempt, slot, 1.0, rank)
            for attempt, ranks in [*self.live.values(), *self.held.values()]
            for rank, (worker, its) in self.numbered(attempt, ranks)
            if worker == name and rank not in kept
            for slot in its
        ]
        before = {task: has for task, has in self.live.items() if any(worker == name for worker, _ in has[1])}
        self.up[name] = slots
        self.singles = {task: has for task, has in self.singles.items() if has[1] != name}
        fits = {hold for hold in holds if hold.slot < slots}
        same_site = {task: self._same_site(has[1], name, reachable) for task, has in before.items()}
        lost = tuple(
            task
            for task, (attempt, ranks) in before.items()
            if not same_site[task]
            or any(
                ev.HeldAttempt(attempt, slot, 1.0, rank) not in fits
                for rank, (worker, its) in self.numbered(attempt, ranks)
                if worker == name
                for slot in its
            )
        )
        labels = PERFECT if labelled else frozenset[str]()
        event = ev.WorkerJoined(
            name,
            slots,
            uptime,
            [(uptime + 10, 50.0)],
            SITES[name],
            holds,
            speed,
            0,
            of_memory(MEMORY[name]),
            labels,
            reachable,
        )
        commands = self._join(event, lost)
        assert all(isinstance(command, cmd.Stop) for command in commands)

    def _same_site(self, ranks: list[tuple[str, tuple[int, ...]]], name: str, reachable: bool) -> bool:
        """Whether all its PCs can still reach each other when ``name`` is back."""
        others = {worker for worker, _ in ranks} - {name}
        return not others or reachable

    def _join(self, event: ev.WorkerJoined, lost: tuple[int, ...]) -> list[cmd.Command]:
        stops = {
            (worker, self.live[task][0]) for task in lost for worker, _ in self.live[task][1] if worker != event.worker
        }
        for task in lost:
            del self.live[task]
        commands = self.watched.handle(event, self.now)
        told = {(c.worker, a) for c in commands if isinstance(c, cmd.Stop) for a in c.attempts}
        assert stops <= told
        assert all(worker == event.worker for worker, _ in told - stops)
        self.compare()
        return commands

    @rule(name=NAMES, planned=st.booleans())
    def leave(self, name: str, planned: bool) -> None:
        self._awaited_lost({task for task in self.grid.gangs.running if task in self.held})
        lost = tuple(task for task, (_, ranks) in self.live.items() if any(worker == name for worker, _ in ranks))
        for task in [task for task in self.held if task in self.live and task not in lost]:
            del self.live[task]
        for task in lost:
            self.held.pop(task, None)
        self.up.pop(name, None)
        self.singles = {task: has for task, has in self.singles.items() if has[1] != name}
        self.tell(ev.WorkerLeft(name, planned, windows=[(5.0, 50.0)]), gone=name, lost=lost)

    @rule(name=NAMES, uptime=UPTIMES)
    def refresh(self, name: str, uptime: float) -> None:
        self.tell(ev.UptimeRefreshed(name, uptime, None))

    @rule(name=NAMES, speed=st.sampled_from([1.0, 0.25, 0.777]), load=st.sampled_from([0.0, 0.01, 0.5]))
    def measure(self, name: str, speed: float, load: float) -> None:
        self.tell(ev.WorkerMeasured(name, speed, load))

    # --- attempts ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.tell(ev.GangBegan(self.live[data.draw(st.sampled_from(sorted(self.live)))][0]))

    def numbered(
        self, attempt: Attempt, ranks: list[tuple[str, tuple[int, ...]]]
    ) -> list[tuple[int, tuple[str, tuple[int, ...]]]]:
        """The ranks that have not ended, by number."""
        over = self.over.get(attempt, set())
        numbers = [number for number in range(len(ranks) + len(over)) if number not in over]
        return list(zip(numbers, ranks, strict=True))

    @precondition(lambda self: self.live or self.held)
    @rule(data=st.data())
    def some_end(self, data: st.DataObject) -> None:
        """All ranks of one worker have ended, and others go on."""
        of = self.live if self.live else self.held
        attempt, ranks = of[data.draw(st.sampled_from(sorted(of)))]
        name = data.draw(st.sampled_from([worker for worker, _ in ranks]))
        rows = self.numbered(attempt, ranks)
        mine = [number for number, (worker, _) in rows if worker == name]
        if len(mine) == len(rows):
            if attempt.task in self.live:
                with pytest.raises(IllegalEvent):
                    self.watched.handle(ev.RanksEnded(attempt, mine), self.now)
            return
        self.over.setdefault(attempt, set()).update(mine)
        of[attempt.task] = attempt, [row for number, row in rows if number not in mine]
        for _ in range(2):
            self.tell(ev.RanksEnded(attempt, mine))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def gathered(self, data: st.DataObject) -> None:
        """All ranks of a gang should have come back since the restart."""
        task = data.draw(st.sampled_from(sorted(self.held)))
        attempt, _ = self.held[task]
        gang = self.grid.gangs.running.get(task)
        if gang is None:
            self.tell(ev.GangBegan(attempt))
            return
        rows = [gang.back[rank] for rank in sorted(gang.back)]
        back = sorted(gang.back.keys() | self.over.get(attempt, set()))
        need = NEEDS[self.bags[task]]
        whole = back == list(range(len(back))) and need.least <= len(back) <= need.most
        whole = whole and all(len(row) == need.slots for row in rows)
        if not whole or len({SITES[slot.worker.name] for slot in gang.slots}) != 1:
            with pytest.raises(IllegalEvent):
                self.watched.handle(ev.GangBegan(attempt), self.now)
            return
        places = [(row[0].worker.name, tuple(slot.position for slot in row)) for row in rows]
        workers = {slot.worker for slot in gang.slots}
        if len(workers) > 1 and not all(worker.traits.reachable for worker in workers):
            with pytest.raises(IllegalEvent):
                self.watched.handle(ev.GangBegan(attempt), self.now)
            return
        del self.held[task]
        self.live[task] = attempt, places
        self.tell(ev.GangBegan(attempt))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), pause=st.sampled_from([0.0, 5.0]))
    def refuse(self, data: st.DataObject, pause: float) -> None:
        task = data.draw(st.sampled_from(sorted(self.live)))
        self.tell(ev.GangRefused(self.live[task][0], pause), lost=(task,))

    @precondition(lambda self: self.live)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(
            [AttemptOutcome.DONE, AttemptOutcome.ERROR, AttemptOutcome.CRASH, AttemptOutcome.TIMEOUT]
        ),
    )
    def end(self, data: st.DataObject, outcome: AttemptOutcome) -> None:
        task = data.draw(st.sampled_from(sorted(self.live)))
        attempt, ranks = self.live[task]
        reporter = data.draw(st.sampled_from([worker for worker, _ in ranks]))
        event = ev.AttemptsEnded(reporter, [ev.EndedAttempt(attempt, outcome, 1.0)])
        lost = () if outcome == AttemptOutcome.DONE else (task,)
        if outcome == AttemptOutcome.DONE:
            del self.live[task]
        self._ends(task, outcome)
        commands = self.tell(event, gone=reporter, lost=lost)
        settled = [a for c in commands if isinstance(c, cmd.Settle) for a in c.attempts]
        assert settled == ([attempt] if task in self.ended else [])

    def _ends(self, task: int, outcome: AttemptOutcome) -> None:
        table = self.grid.tasks
        if outcome == AttemptOutcome.DONE:
            self.ended.add(task)
        elif outcome == AttemptOutcome.CRASH:
            self.crashed = task
            self.crashes[task] = self.crashes.get(task, 0) + 1
        elif table.errors(task) + 1 > 1:
            self.ended.add(task)

    @precondition(lambda self: self.singles)
    @rule(data=st.data())
    def end_single(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.singles)))
        attempt, worker = self.singles.pop(task)
        self.ended.add(task)
        self.tell(ev.AttemptsEnded(worker, [ev.EndedAttempt(attempt, AttemptOutcome.DONE, 1.0)]))

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.live)))
        attempt, ranks = self.live[task]
        name = ranks[0][0]
        self.tell(ev.AttemptsReturned(name, [attempt]), gone=name, lost=(task,))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), name=NAMES)
    def stopped(self, data: st.DataObject, name: str) -> None:
        """A worker says that it has stopped something that no longer counts."""
        attempt = data.draw(st.sampled_from(self.sent))
        counts = [has[0] for has in [*self.live.values(), *self.singles.values(), *self.held.values()]]
        if attempt not in counts:
            self.tell(ev.AttemptsReturned(name, [attempt]))
            self.tell(ev.GangBegan(attempt))
            self.tell(ev.GangRefused(attempt, 1.0))

    @rule()
    def hold_expires(self) -> None:
        self._awaited_lost(set(self.held))
        lost = tuple(task for task in self.held if task in self.live)
        self.held = {}
        self.tell(ev.HoldExpired(), lost=lost)

    # --- the end -----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Perfect workers come, and everything ends."""
        if not hasattr(self, "watched"):
            return
        for bag in list(self.barred):
            self.gate(bag, False)
        self.hold_expires()
        for name in "abcd":  # what they were told to stop is stopped now
            self.leave(name, True)
        for name in ("p", "q"):
            self.up[name] = 4
            self.watched.handle(
                ev.WorkerJoined(name, 4, OPEN_ENDED, site="perfect", amounts=of_memory(100), labels=PERFECT), self.now
            )
        for _ in range(4 * len(self.bags) + 8):
            self.now += 40.0
            self.pass_due()
            for task, (attempt, _) in [*self.live.items(), *self.singles.items()]:
                self.live.pop(task, None)
                self.singles.pop(task, None)
                self.ended.add(task)
                self.watched.handle(
                    ev.AttemptsEnded("p", [ev.EndedAttempt(attempt, AttemptOutcome.DONE, 1.0)]), self.now
                )
        assert self.ended == set(self.bags)
        assert not self.grid.gangs.running
        for site in self.grid.gangs.sites:
            assert not site.running


TestGangs = pytest.mark.timeout(300)(GangMachine.TestCase)
TestGangs.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
