"""A large lab on the virtual network: PCs with planned windows that come, go and are sometimes lost, and their clients.

Workers, clients and the network between them are those of `tests.grid`; the broker is beside (`tests.soak.broker`).
"""

import json
from collections import Counter, deque
from collections.abc import Callable

import msgpack

from deskgrid import wire
from deskgrid.client.template import command_template
from deskgrid.worker.windows.uptime import UptimePlan, weekly_from_json
from tests.grid.clients import BagPlan, ClientNode
from tests.grid.grid import bag_of, for_seconds
from tests.grid.network import PEER_PATIENCE_S, Port, Wakeup, World
from tests.grid.witness import Witness, expect
from tests.grid.worker_node import WorkerNode
from tests.soak.broker import BrokerBeside

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
# What arrives within so long is handled together, and a quiet broker has a turn after this: longer than in life, for a
# day has 86,400 seconds, and the lease that goes with it is of hours.
GATHERED_S = 5.0
QUIET_S = 300.0
# How often a program's end is looked for.
LOOK_S = 60.0
# Up to which part of all PCs they are of which kind: 60 % in labs that are free at night and at weekends, 25 % by day,
# 10 % in the evening, and 5 % that are always there. M is a minute that differs from PC to PC.
KINDS = (
    (0.60, ["mon-fri 18:{M}-07:{M}", "sat-sun all day"]),
    (0.85, ["mon-fri 08:{M}-18:{M}"]),
    (0.95, ["daily 20:{M}-06:{M}"]),
    (1.00, ["daily all day"]),
)
MINUTES = ("00", "10", "20", "30", "40", "50")
# Tasks for each PC and day: a bit more than half of what the windows hold.
TASKS_A_DAY = 5.0
SHORTEST_S, LONGEST_S = 0.1 * HOUR_S, 3 * HOUR_S
# What becomes of a task at its first execution, by chance.
FATES = ("ok",) * 97 + ("raise", "crash", "crash")
# What happens in a day to how many of all PCs: the power fails; somebody stops the agent; the network is cut for longer
# than the lease; the PC is put to sleep. And how many visitors there are, PCs that come once.
FAULTS = {"crash": 0.02, "stop": 0.05, "cut": 0.01, "sleep": 0.02, "visit": 0.005}
TEMPLATES = tuple(command_template([name, "{}"]) for name in ("first", "second", "third"))
# Answers of executions that are remembered, to compare what comes twice: of more than any day has.
REMEMBERED = 50_000


class Ledger(Witness):
    """What was asked for, and what came of it; forgets what is settled."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted = 0
        self.outcomes: Counter[int] = Counter()
        self._open: dict[str, int] = {}

    def opened(self, plan: BagPlan) -> None:
        """A bag is about to be submitted."""
        self._open[plan.bag] = plan.total
        self.submitted += plan.total

    @property
    def open(self) -> set[str]:
        """Bags whose results nobody has collected."""
        return set(self._open)

    def seen(self, bag: str, row: wire.BagResult) -> None:
        """A client was given a result: is it the answer of this very task?"""
        task, outcome = self.tasks[bag, row.item], wire.Outcome(row.outcome)
        self._expect_end(task, outcome)
        if outcome == wire.Outcome.DONE:
            expect(msgpack.unpackb(row.payload)[:2] == [bag, row.item], "{}: the answer of another task", task)

    def collected(self, bag: str, outcomes: dict[int, int]) -> None:
        """A client has all of a bag: its items, and how each ended."""
        expected = self._open.pop(bag)
        expect(sorted(outcomes) == list(range(expected)), "bag {}: {} results of {}", bag, len(outcomes), expected)
        self.outcomes.update(outcomes.values())
        for item in range(expected):
            del self.tasks[bag, item], self.executions.started[bag, item]
            self.executions.crashed.pop((bag, item), None)
        del self.timeouts[bag]
        answers = self.executions.answers
        for attempt in list(answers)[: max(0, len(answers) - REMEMBERED)]:
            del answers[attempt]


class Submitter(ClientNode):
    """A program that submits a bag and ends; somebody else collects the results."""

    def attach(self, bag: str) -> None:
        """It does not wait for results."""


class Exchange:
    """Between the network and the broker: takes it what arrives, and sends what it says."""

    def __init__(self, world: World, port: Port, broker: BrokerBeside) -> None:
        self._world = world
        self._port = port
        self._broker = broker
        self._inbox: deque[tuple[bytes, str, bytes]] = deque()
        self._known: set[bytes] = set()
        self._wakeup = Wakeup(world, self._turn)
        port.arrived = self._arrived
        port.listening = True
        self._wakeup.set(0.0)

    def _arrived(self, peer: bytes, role: str, data: bytes) -> None:
        self._inbox.append((peer, role, data))
        self._known.add(peer)
        self._wakeup.set(self._world.now + GATHERED_S)

    def _turn(self) -> None:
        gone = [peer for peer in self._known if peer not in self._port.connections]
        self._known.difference_update(gone)
        for peer, data in self._broker.turn(self._world.now, self._inbox, gone):
            self._port.send(peer, data)
        self._inbox.clear()
        self._wakeup.set(self._world.now + QUIET_S)


class Lab:
    """``workers`` PCs, what happens to them, and the bags that they work for; all of it from a seed."""

    def __init__(self, broker: BrokerBeside, workers: int, seed: int) -> None:
        self.world = World(seed)
        self.ledger = Ledger()
        self.days = 0
        self.lost = 0
        self._random = self.world.random
        self._port = Port(self.world)
        self._exchange = Exchange(self.world, self._port, broker)
        self._plans: dict[str, UptimePlan] = {}
        self._programs = 0
        self._bags = 0
        self._workers = [self._node(f"pc{number:04}", self._plan(number / workers)) for number in range(workers)]
        for node in self._workers:
            self.world.after(self._random.uniform(0.0, HOUR_S), node.start)

    # --- the PCs -----------------------------------------------------------------------------------------------------

    def _node(self, name: str, plan: UptimePlan | None) -> WorkerNode:
        made = (lambda now: plan) if plan is not None else for_seconds(self._random.uniform(1.0, 5.0) * HOUR_S)
        return WorkerNode(self.world, self._port, self.ledger, name, made, slots=1, delay_s=0.002)

    def _plan(self, place: float) -> UptimePlan:
        """That of the PC at ``place``, from 0 to 1; those of one kind and minute share it, and its arithmetic."""
        windows = next(windows for below, windows in KINDS if place < below)
        minute = self._random.choice(MINUTES)
        text = json.dumps({"zone": "UTC", "windows": [entry.replace("{M}", minute) for entry in windows]})
        if text not in self._plans:
            self._plans[text] = weekly_from_json(text)
        return self._plans[text]

    def _at_some_time(self, action: Callable[[], None]) -> None:
        self.world.after(self._random.uniform(0.0, DAY_S), action)

    def _plan_faults(self) -> None:
        """What happens on the day that begins."""
        strikes = {"crash": self._crash, "stop": self._stop, "cut": self._cut, "sleep": self._sleep}
        for what, share in FAULTS.items():
            for number in range(max(1, round(share * len(self._workers)))):
                if what == "visit":
                    visitor = self._node(f"visitor{self.days}-{number}", None)
                    self._at_some_time(visitor.start)
                else:
                    node = self._random.choice(self._workers)
                    self._at_some_time(lambda strike=strikes[what], node=node: strike(node))  # type: ignore[misc]

    def _hours(self, least: float, most: float) -> float:
        return self._random.uniform(least, most) * HOUR_S

    def _crash(self, node: WorkerNode) -> None:
        node.crash()
        self.world.after(self._hours(0.2, 12.0), node.start)

    def _stop(self, node: WorkerNode) -> None:
        node.stop(again_in=self._hours(0.1, 10.0))

    def _cut(self, node: WorkerNode) -> None:
        node.cable.cut = True
        self.world.after(self._hours(2.0, 5.0), node.cable.mend)
        self.world.after(PEER_PATIENCE_S, lambda: node.time_out(at_peer=True))

    def _sleep(self, node: WorkerNode) -> None:
        node.freeze(self._hours(0.5, 6.0), suspend=True)

    # --- the work ----------------------------------------------------------------------------------------------------

    def _bag(self) -> BagPlan:
        self._bags += 1
        name, draw = f"bag{self._bags}", self._random
        count = max(1, round(TASKS_A_DAY * len(self._workers) / 24))
        batches = bag_of(name, [draw.uniform(SHORTEST_S, LONGEST_S) for _ in range(count)])
        batches = [[task._replace(fate=draw.choice(FATES), times=1) for task in batch] for batch in batches]
        exact = [task.seconds for batch in batches for task in batch]
        runtimes = (exact, exact, LONGEST_S, None)[self._bags % 4]
        return BagPlan(name, TEMPLATES[self._bags % len(TEMPLATES)], batches, runtimes)

    def _program(self, kind: type[ClientNode] = ClientNode) -> ClientNode:
        self._programs += 1
        return kind(self.world, self._port, self.ledger, f"program{self._programs}")

    def _submit(self) -> None:
        plan, program = self._bag(), self._program(Submitter)
        self.ledger.opened(plan)
        program.submit(plan)
        self._end_when(program, lambda: program.idle)

    def _collect(self) -> None:
        """Somebody looks which bags have ended, and takes their results."""
        program, listed = self._program(), []

        def take(reply: object) -> None:
            assert isinstance(reply, wire.Answer)
            rows = json.loads(reply.body)["bags"]
            ended = [row["bag"] for row in rows if row["closed"] and not row["running"] + row["waiting"]]
            listed.append(True)
            for bag in self.ledger.open.intersection(ended):
                program.attach(bag)

        def done() -> bool:
            for bag in [bag for bag, seen in program.watched.items() if seen.complete]:
                self.ledger.collected(bag, program.watched.pop(bag).results)
            return bool(listed) and program.idle

        program.ask("bags", {}, take)
        self._end_when(program, done)

    def _watch(self) -> None:
        """Somebody looks at a bag that is under way for some minutes, and is cut off."""
        program = self._program()
        program.attach(min(self.ledger.open))
        self.world.after(600.0, program.crash)

    def _end_when(self, program: ClientNode, done: Callable[[], bool]) -> None:
        if done():
            program.leave()
        else:
            self.world.after(LOOK_S, lambda: self._end_when(program, done))

    # --- time --------------------------------------------------------------------------------------------------------

    def day(self, *, at_work: bool = True) -> None:
        """A day: a bag every hour and what happens to PCs, unless nobody is ``at_work``; and results are collected."""
        self.days += 1
        if at_work:
            self._plan_faults()
        for hour in range(24):
            if at_work:
                self._submit()
                if hour == 12:
                    self._watch()
            self.world.run(self.world.now + HOUR_S / 2)
            self._collect()
            self.world.run(self.world.now + HOUR_S / 2)
