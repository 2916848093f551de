"""Random grids and random faults: the seed determines everything in a run.

There are four kinds of weather. *Storm*: all kinds of faults. *Drizzle*: connections break and the broker is killed,
but every PC stays and reports before its lease ends; then no task may run twice. *Dusk*: a few PCs with short windows,
which are cut off when these close, so that most answers come late. *Sunshine*: no faults, but PCs come and go as
planned; then no task may be killed.
"""

import json
import random
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

from deskgrid import wire
from deskgrid.client.template import command_template
from deskgrid.scheduler.policies import Policy, make_policy
from tests.grid.clients import BagPlan, ClientNode
from tests.grid.environments import LINUX, MAC, NEVER, Libraries, Wheel, libraries
from tests.grid.grid import MakePlan, VirtualGrid, cycle, for_seconds, open_ended
from tests.grid.tasks import Task
from tests.grid.witness import expect
from tests.grid.worker_node import WorkerNode

# How long faults go on.
STORM_S = 120.0
TEMPLATES = (command_template(["first", "{}"]), command_template(["second", "{}"]))
# Shapes of bags: the least and the most seconds of their tasks, and the most tasks.
SHAPES: tuple[tuple[float, float, int], ...] = ((0.01, 0.4, 60), (0.05, 12.0, 14), (1.0, 6.0, 14), (2.0, 25.0, 14))
SHORT: tuple[tuple[float, float, int], ...] = ((0.05, 0.2, 60),)
LONG = SHAPES[2:]
DUSK: tuple[tuple[float, float, int], ...] = ((0.3, 6.0, 20),)
DUSK_S = 80.0
GANGS: tuple[tuple[float, float, int], ...] = ((0.01, 0.4, 10), (0.05, 12.0, 5), (1.0, 6.0, 5))
STEPS = ("receive", "settle", "commit: before", "commit: after", "send: before", "send: after", "")


class Weather:
    """A random grid, with what happens to it."""

    def __init__(self, seed: int, home: Path) -> None:
        self.random = random.Random(seed)
        self.grid = VirtualGrid(seed, home, self._policy)
        # Tasks that may be executed more than once.
        self.excused: set[tuple[str, int]] = set()
        self._bags = 0
        slow = self.random.uniform(0.0, 6.0)
        # What bags bring: nothing, mostly; wheels; and a wheel that each PC fails to unpack once.
        once = Wheel("once", 0.3, wire.Readiness.TROUBLE, 1)
        self.brings: list[Libraries | None] = [None] * 4
        self.brings += [libraries(Wheel("plain", slow)), libraries(Wheel("plain", slow), once)]
        self._policy_name = "packing" if seed % 5 == 4 else "pgs"
        self._order = self.random.choice(["newest-first", "longest-first", "fifo"])
        self._queue_length = self.random.choice([0, 1, 3])

    def _policy(self) -> Policy:
        if self._policy_name == "packing":
            return make_policy("packing")
        if self._policy_name == "fcfs":
            return make_policy("fcfs", queue_length=self._queue_length)
        return make_policy("pgs", order=self._order, queue_length=self._queue_length)

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Have ``action`` happen in ``seconds``."""
        self.grid.world.after(seconds, action)

    # --- the grid ----------------------------------------------------------------------------------------------------

    def cycle(self, shortest: float = 4.0) -> MakePlan:
        """The plan of a PC that comes and goes."""
        draw = self.random
        pairs = [(draw.uniform(shortest, 50.0), draw.choice([0.0, draw.uniform(0.05, 20.0)])) for _ in range(3)]
        return cycle(*pairs[: draw.randint(1, 3)])

    def weekly(self) -> str:
        """Weekly windows of a few minutes each, as the broker's file would say them."""
        minutes = sorted(self.random.sample(range(40), 6))
        spans = [f"daily 10:{a:02}-10:{b:02}" for a, b in zip(minutes[::2], minutes[1::2], strict=True)]
        return json.dumps({"zone": "UTC", "windows": spans})

    def tasks(self, bag: str, shape: tuple[float, float, int], fates: tuple[str, ...]) -> list[Task]:
        """The tasks of a bag, of one shape."""
        draw = self.random
        least, most, count = shape[0], shape[1], draw.randint(1, shape[2])
        times = (1, 2, 5)
        return [
            Task(bag, item, draw.uniform(least, most), draw.choice(fates), draw.choice(times)) for item in range(count)
        ]

    def bag(self, fates: tuple[str, ...] = ("ok",), shapes: tuple[tuple[float, float, int], ...] = SHAPES) -> BagPlan:
        """A bag whose predictions are exact."""
        self._bags += 1
        bag = f"bag{self._bags}"
        tasks = self.tasks(bag, self.random.choice(shapes), fates)
        size = self.random.choice([1, 3, 8, 50])
        batches = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        self.grid.work_s += 3 * sum(task.seconds for task in tasks)
        runtimes = [task.seconds for task in tasks]
        limit = self.random.choice([None, None, None, 1, 3])
        options = wire.TaskOptions(priority=self.random.choice([0, 0, 5]), limit=limit)
        forget = self.random.random() < 0.4
        template, brings = self.random.choice(TEMPLATES), self.random.choice(self.brings)
        if brings is not None:
            template = command_template(["bring", "{}"], environment=brings.environment)
            if brings.hopeless:
                self.grid.hopeless.add(bag)
        return BagPlan(bag, template, batches, runtimes, options, forget, brings)

    def join(self, name: str, plan: MakePlan | None, slots: int, delay_s: float, key: str = "") -> None:
        """A PC's agent starts. For some PCs no environment has wheels."""
        system = MAC if self.random.random() < 0.2 else LINUX
        self.grid.worker(name, plan, slots=slots, delay_s=delay_s, key=key, system=system)

    def run(self) -> None:
        """The whole run; raises `Broken` or whatever the code under test raises."""
        raise NotImplementedError

    def end(self) -> None:
        """Penalties are over; everything has to come right."""
        self.grid.calm()
        self.grid.finish()

    def end_without_waste(self) -> None:
        """The same, and no task was executed twice."""
        self.end()
        started = self.grid.witness.executions.started
        twice = [place for place, times in started.items() if times > 1 and place not in self.excused]
        expect(not twice, "executed more than once: {}", twice)


class Sunshine(Weather):
    """No faults; PCs keep their plans. Where some predictions fail, the tasks that keep to theirs do not suffer."""

    def run(self) -> None:
        draw = self.random
        for number in range(draw.randint(1, 5)):
            self._worker(f"pc{number}")
        self.grid.broker.start()
        client = self.grid.client(draw.uniform(0.001, 0.05))
        honest = draw.random() < 0.7
        for _ in range(draw.randint(1, 3)):
            plan = self.bag() if honest else self._with_lies(self.bag(shapes=LONG))
            self.at(draw.uniform(0.0, 60.0), partial(client.submit, plan))
        self.grid.run(draw.uniform(60.0, 200.0))
        self.end_without_waste()
        killed = self.grid.counters["kills"]
        expect(not (honest and killed), "{} tasks were killed", killed)

    def _with_lies(self, plan: BagPlan) -> BagPlan:
        """Some tasks take longer than predicted; one that is killed for it is predicted anew."""
        assert isinstance(plan.runtimes, list)
        for item in range(0, plan.total, 3):
            plan.runtimes[item] *= 0.6
            self.excused.add((plan.bag, item))
        return plan

    def _worker(self, name: str) -> None:
        draw = self.random
        plan: MakePlan | None = draw.choice([open_ended, self.cycle(), self.cycle(), for_seconds(draw.uniform(5, 90))])
        if draw.random() < 0.25:
            self.grid.broker.windows.tables[name] = self.weekly()
            plan = None
        slots, delay = draw.randint(1, 3), draw.uniform(0.001, 0.05)
        self.at(draw.uniform(0.0, 30.0), partial(self.join, name, plan, slots, delay))


class Drizzle(Weather):
    """Every PC stays. Connections break for moments, the broker is killed and is back in seconds."""

    def run(self) -> None:
        draw, grid = self.random, self.grid
        grid.broker.downtime_s = draw.uniform(0.1, 4.0)
        grid.broker.lease_s = 30.0
        grid.broker.start()
        for number in range(3):
            # With the last delay, introductions are said again before they are answered.
            delay_s = draw.choice([0.001, 0.1, 1.2])
            grid.worker(f"pc{number}", slots=draw.randint(1, 3), delay_s=delay_s)
        client = grid.client(draw.uniform(0.001, 0.1))
        self._disturb_short_tasks(client) if draw.random() < 0.3 else self._disturb_long_tasks(client)
        grid.run(STORM_S + 10.0)
        self.end_without_waste()

    def _fault_times(self) -> list[float]:
        """A PC that is cut off is back within seconds: one fault is over before the next begins."""
        gaps = [self.random.uniform(8.0, 20.0) for _ in range(int(STORM_S / 8.0))]
        return [time for time in accumulate(gaps) if time < STORM_S]

    def _disturb_long_tasks(self, client: ClientNode) -> None:
        draw = self.random
        for _ in range(draw.randint(1, 3)):
            plan = self.bag(shapes=LONG)
            plan.runtimes = draw.choice([plan.runtimes, 3.0, 1.0])
            self.at(draw.uniform(0.0, 30.0), partial(client.submit, plan))
        for time in self._fault_times():
            self.at(time, draw.choice([self._break, self._break, self._kill]))

    def _disturb_short_tasks(self, client: ClientNode) -> None:
        """The broker is not killed: attempts shorter than a second are not remembered then, and rightly made again."""
        for time in self._fault_times():
            self.at(time - self.random.uniform(0.1, 1.5), partial(client.submit, self.bag(shapes=SHORT)))
            self.at(time, self._break)

    def _break(self) -> None:
        draw, nodes = self.random, list(self.grid.workers.values())
        for node in draw.sample(nodes, draw.randint(1, len(nodes))):
            if draw.random() < 0.3:
                self.grid.partition(node, draw.uniform(0.5, 5.0))
            else:
                node.break_link(half_open=draw.random() < 0.5)

    def _kill(self) -> None:
        self.grid.broker.steps.arm(self.random.choice(STEPS), self.random.randint(0, 6))


class Dusk(Weather):
    """PCs work on while they are cut off, and come back outside their windows, with what they have done by then."""

    def run(self) -> None:
        draw, grid = self.random, self.grid
        grid.broker.start()
        for number in range(draw.randint(1, 3)):
            grid.worker(f"pc{number}", self.cycle(6.0), slots=draw.randint(1, 3))
        client = grid.client()
        for _ in range(2):
            self.at(draw.uniform(0.0, 20.0), partial(client.submit, self.bag(shapes=DUSK)))
        for _ in range(draw.randint(4, 20)):
            self.at(draw.uniform(2.0, DUSK_S), self._cut)
        grid.run(DUSK_S)
        self.end()

    def _cut(self) -> None:
        draw = self.random
        self.grid.partition(draw.choice(list(self.grid.workers.values())), draw.choice([2.0, 5.0, 10.0, 20.0, 30.0]))


class Storm(Weather):
    """Everything at once."""

    def run(self) -> None:
        draw, grid = self.random, self.grid
        self.brings.append(libraries(Wheel("bad", 0.2, wire.Readiness.REFUSED, NEVER)))
        if draw.random() < 0.25:
            self._policy_name = "fcfs"
        grid.broker.start()
        for number in range(draw.randint(2, 5)):
            self._worker(f"pc{number}")
        for _ in range(draw.randint(1, 2)):
            grid.client(draw.choice([0.001, 0.05, 0.4]))
        for _ in range(draw.randint(1, 4)):
            self.at(draw.uniform(0.0, 0.6 * STORM_S), self._submit)
        for _ in range(draw.randint(2, 30)):
            self.at(draw.uniform(1.0, STORM_S), self._fault())
        grid.run(STORM_S)
        self.end()

    # --- who is there ------------------------------------------------------------------------------------------------

    def _worker(self, name: str) -> None:
        draw = self.random
        plans = [open_ended, self.cycle(), self.cycle(1.0), for_seconds(draw.uniform(5, 90)), None]
        plan = draw.choice(plans)
        if plan is None and draw.random() < 0.7:
            self.grid.broker.windows.tables[name] = self.weekly()
        key = name
        if draw.random() < 0.15:
            name = "pc0"  # somebody cloned a disk
        slots, delay = draw.randint(1, 3), draw.choice([0.001, 0.02, 0.3])
        self.at(draw.uniform(0.0, 20.0), partial(self.join, name, plan, slots, delay, key))

    def _submit(self) -> None:
        draw = self.random
        alive = [client for client in self.grid.clients if client.alive]
        plan = self.bag(draw.choice([("ok",), ("ok", "ok", "raise", "crash")]))
        assert isinstance(plan.runtimes, list)
        noisy = [seconds * draw.choice([0.3, 1.0, 3.0]) for seconds in plan.runtimes]
        plan.runtimes = draw.choice([plan.runtimes, noisy, 5.0, 0.0, None])
        plan.options = wire.TaskOptions(draw.choice([None, None, None, 4.0]), draw.randint(0, 2), draw.random() < 0.5)
        draw.choice(alive).submit(plan)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _fault(self) -> Callable[[], None]:
        network = [self._break, self._break, self._partition, self._slow, self._clog, self._echo]
        machines = [self._crash, self._stop, self._freeze, self._set_clock]
        broker = [self._kill, self._kill_at_step, self._kill_at_step, self._stop_broker, self._freeze_broker]
        broker.append(self._fill_disk)
        people = [self._crash_client, self._cancel, self._ask, self._predict, self._change_policy, self._change_windows]
        return self.random.choice(self.random.choice([network, machines, broker, people]))

    def _some_worker(self) -> WorkerNode | None:
        nodes = list(self.grid.workers.values())
        return self.random.choice(nodes) if nodes else None

    def _some_peer(self) -> WorkerNode | ClientNode:
        return self.random.choice(self.grid.peers())

    def _break(self) -> None:
        self._some_peer().break_link(half_open=self.random.random() < 0.5)

    def _partition(self) -> None:
        self.grid.partition(self._some_peer(), self.random.choice([1.0, 5.0, 14.0, 20.0, 40.0]))

    def _slow(self) -> None:
        cable, usual = self._some_peer().cable, 0.01
        cable.delay_s = self.random.choice([1.0, 5.0])

        def mend() -> None:
            cable.delay_s = usual

        self.at(self.random.uniform(2.0, 20.0), mend)

    def _echo(self) -> None:
        cable = self._some_peer().cable
        cable.echo = self.random.choice([0.1, 1.0])

        def mend() -> None:
            cable.echo = 0.0

        self.at(self.random.uniform(2.0, 30.0), mend)

    def _clog(self) -> None:
        self._some_peer().clog(self.random.uniform(0.1, 10.0))

    def _crash(self) -> None:
        if (worker := self._some_worker()) is not None:
            worker.crash()
            self.at(self.random.choice([0.2, 3.0, 20.0]), worker.start)

    def _stop(self) -> None:
        if (worker := self._some_worker()) is not None:
            worker.stop(self.random.choice([None, 0.5, 10.0]))

    def _freeze(self) -> None:
        if (worker := self._some_worker()) is not None:
            seconds = self.random.choice([1.0, 10.0, 25.0, 45.0])
            self.grid.freeze(worker, seconds, suspend=self.random.random() < 0.5)

    def _set_clock(self) -> None:
        if (worker := self._some_worker()) is not None:
            worker.set_clock(self.random.choice([-86_400.0, -300.0, -20.0, 20.0, 300.0, 86_400.0]))

    def _kill(self) -> None:
        self.grid.restart_broker(self.random.choice([0.05, 2.0, 20.0, 40.0]))

    def _kill_at_step(self) -> None:
        self.grid.broker.downtime_s = self.random.choice([0.05, 1.0, 10.0])
        self.grid.broker.steps.arm(self.random.choice(STEPS), self.random.randint(0, 5))

    def _stop_broker(self) -> None:
        self.grid.broker.stop()
        self.at(self.random.choice([0.1, 5.0, 30.0]), self.grid.broker.start)

    def _fill_disk(self) -> None:
        self.grid.broker.fill_disk(self.random.choice([0.5, 5.0, 30.0]))

    def _freeze_broker(self) -> None:
        self.grid.freeze_broker(self.random.choice([0.5, 5.0, 20.0]))

    def _crash_client(self) -> None:
        alive = [client for client in self.grid.clients if client.alive]
        client = self.random.choice(alive)
        client.crash()
        successor = self.grid.client(0.01)
        for bag in client.unfinished:
            successor.cancel(bag, None)
        for bag in dict.fromkeys([*client.watched, *client.unfinished]):
            successor.attach(bag)

    def _cancel(self) -> None:
        client = self.random.choice([client for client in self.grid.clients if client.alive])
        for bag, seen in client.watched.items():
            if not seen.complete:
                items = [0, 0] if self.random.random() < 0.5 else None
                client.cancel(bag, items)
                if self.random.random() < 0.3:
                    client.forget(bag)
                return

    def _ask(self) -> None:
        client = self.random.choice([client for client in self.grid.clients if client.alive])
        for what in ("status", "bags", "nonsense"):
            client.ask(what, {})
        for bag in client.watched:
            client.ask("explain", {"bag": bag, "item": self.random.choice([None, 0])})
            client.ask("logs", {"bag": bag, "item": 0})
            client.ask("progress", {"bag": bag})
            client.attach(bag) if client.watched[bag].complete else None

    def _predict(self) -> None:
        client = self.random.choice([client for client in self.grid.clients if client.alive])
        for bag, seen in client.watched.items():
            if not seen.complete:
                items = list(range(self.grid.witness.told.get(bag, 0)))
                runtimes = self.random.choices([0.1, 4.0, 40.0], k=len(items))
                client.ask("runtimes", {"bag": bag, "items": items, "runtimes": runtimes})

    def _change_policy(self) -> None:
        client = self.random.choice([client for client in self.grid.clients if client.alive])
        name = self.random.choice(["pgs", "fcfs", "packing"])
        client.ask("policy", {"name": name, "options": {}})

    def _change_windows(self) -> None:
        tables = self.grid.broker.windows.tables
        name = f"pc{self.random.randint(0, 4)}"
        if tables.pop(name, None) is None:
            tables[name] = self.weekly()


class Squall(Storm):
    """A storm over gangs, with some single tasks among them."""

    def end(self) -> None:
        """The PC that stays has room for the largest gang."""
        self.grid.anchor_slots = 6
        super().end()

    def _submit(self) -> None:
        draw = self.random
        if draw.random() < 0.3:
            super()._submit()
            return
        alive = [client for client in self.grid.clients if client.alive]
        fates = draw.choice([("ok",), ("ok", "ok", "raise", "crash")])
        plan = self.bag(fates, shapes=GANGS)
        least = draw.randint(1, 3)
        ranks = (least, draw.choice([least, 3]))
        plan.options = wire.TaskOptions(
            draw.choice([None, None, None, 4.0]),
            draw.randint(0, 2),
            ranks=ranks,
            gang=True,
            slots=draw.choice([1, 1, 2]),
        )
        draw.choice(alive).submit(plan)
