"""An honest program and an honest PC that use every message of the protocol; they end when they are refused."""

from collections import deque
from typing import Any

from deskgrid import wire
from deskgrid.wire.questions import QUESTIONS
from tests.grid.builders import TEMPLATE
from tests.grid.grid import MakePlan, VirtualGrid, cycle
from tests.grid.hostile import Hostile
from tests.grid.network import Connection
from tests.grid.tasks import Task
from tests.grid.worker_node import WorkerNode

# How long a PC is on, and how long it is off; the seconds of a task. Seconds.
CYCLE = cycle((1.2, 0.6))
TASK_S = 0.2


class VictimProgram(Hostile):
    """A client that has a bag of its own, asks every question, and ends its bag."""

    def __init__(self, grid: VirtualGrid, name: str) -> None:
        self.role = name
        self.refused = False
        self._script: deque[wire.Message] = deque()
        super().__init__(grid.world, grid.port, grid.witness, name)
        self.bag = f"bag-of-{name}"
        tasks = [Task(self.bag, item, TASK_S) for item in range(4)]
        grid.witness.tasks.update({(self.bag, task.item): task for task in tasks})
        grid.witness.timeouts[self.bag] = None
        grid.witness.cancelled.add(self.bag)
        grid.witness.forgotten.add(self.bag)
        digest = TEMPLATE.digest
        first, second = (self._submit(digest, number, tasks[2 * number : 2 * number + 2]) for number in range(2))
        questions = [
            self._ask(what, number) for number, what in enumerate(QUESTIONS) if what not in ("cancel", "forget")
        ]
        endings = [self._ask("cancel", 50, items=[3]), self._ask("cancel", 51, items=None), self._ask("forget", 52)]
        watch = wire.Watch(60, self.bag, 0)
        early, late = wire.Goodbye("done"), self._hello()
        gang = self._submit_gangs(digest)
        self._script += [late, wire.Blob(digest, TEMPLATE.data), gang, first, watch, *questions, second, *questions]
        self._script += [*endings, self._ask("cancel", 53, bag=f"gangs-of-{name}", items=None)]
        self._script += [self._ask("forget", 54, bag=f"gangs-of-{name}"), early]

    def _hello(self) -> wire.Message:
        return wire.Hello(wire.VERSION, self.named, "somebody")

    def _submit(self, digest: str, number: int, tasks: list[Task]) -> wire.Submit:
        payloads = tuple(task.pack() for task in tasks)
        rest = (2 * number, payloads, TASK_S, (), wire.TaskOptions(), number == 1)
        return wire.Submit(number + 1, self.bag, "victim's", digest, *rest)

    def _submit_gangs(self, digest: str) -> wire.Submit:
        """Gangs of one rank, so that some are on the victim's PC alone; each second one fails."""
        bag = f"gangs-of-{self.named}"
        tasks = [Task(bag, item, TASK_S, "raise" if item % 2 else "ok") for item in range(6)]
        self.witness.tasks.update({(bag, task.item): task for task in tasks})
        self.witness.timeouts[bag] = None
        self.witness.cancelled.add(bag)
        self.witness.forgotten.add(bag)
        payloads, options = tuple(task.pack() for task in tasks), wire.TaskOptions(gang=True)
        return wire.Submit(70, bag, "victim's gangs", digest, 0, payloads, TASK_S, (), options, True)

    def _ask(self, what: str, request: int, **changes: Any) -> wire.Ask:
        args = {"bag": self.bag, "item": 0, "items": [0], "runtimes": [TASK_S], "name": "pgs", "options": {}}
        return wire.Ask(100 + request, what, wire.pack_record(args | changes))

    def begin(self) -> None:
        """It is said by the script."""

    def told(self, message: wire.Message) -> None:
        self.refused = self.refused or isinstance(message, wire.Refused)
        if isinstance(message, wire.Rejoin):
            self.say(self._hello())

    def act(self) -> None:
        if self._script and not self.refused:
            self.say(self._script.popleft())

    @property
    def done(self) -> bool:
        """Whether it has said everything, or was refused."""
        return self.refused or not self._script


class VictimPC(WorkerNode):
    """A PC that comes and goes."""

    def __init__(self, grid: VirtualGrid, name: str, plan: MakePlan = CYCLE) -> None:
        super().__init__(grid.world, grid.port, grid.witness, name, plan, slots=2, delay_s=0.002)
        self.role = name
        self.refused = False
        self.start()

    def arrived(self, connection: Connection, data: bytes) -> None:
        if isinstance(wire.decode(data), wire.Refused):
            self.refused = True
            self.crash()
        else:
            super().arrived(connection, data)
