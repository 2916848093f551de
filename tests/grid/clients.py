"""A client program on the virtual network: the real `deskgrid.client.conversation`, driven as its link does.

The program submits bags batch by batch, with several batches in flight, watches for results until a bag is complete,
and may cancel and forget bags. It can crash; its successor attaches to its bags.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from deskgrid import wire
from deskgrid.client.conversation import Conversation, Reply, Request, TransferCut
from deskgrid.client.template import Template
from deskgrid.errors import DeskgridError
from tests.grid.brief import Brief
from tests.grid.environments import Libraries
from tests.grid.network import TURN_S, Cable, Connection, Dialler, Port, Wakeup, World
from tests.grid.tasks import Task
from tests.grid.witness import Broken, Witness, expect

# As in the client's link: how often it looks at the silence.
LOOK_S = 0.5
# Batches of one bag on their way at once.
WINDOW = 3
# When the broker's disk is full, a program tries again after this long; seconds.
TRY_AGAIN_S = 3.0

Question = wire.Submit | wire.Watch | wire.Ask | wire.Offer | wire.Part
Answered = Callable[[Reply], None]


@dataclass(slots=True)
class BagPlan:
    """What a program wants of one bag. ``runtimes``: predictions of all its tasks, one for all, or None unsaid.

    ``libraries``: what the template says that it brings.
    """

    bag: str
    template: Template
    batches: list[list[Task]]
    runtimes: list[float] | float | None
    options: wire.TaskOptions = field(default_factory=wire.TaskOptions)
    forget: bool = False
    libraries: Libraries | None = None

    @property
    def total(self) -> int:
        """Its tasks."""
        return sum(map(len, self.batches))


@dataclass(slots=True)
class Watched:
    """One bag as a client sees it."""

    bag: str
    after: int = 0
    results: dict[int, int] = field(default_factory=dict)
    complete: bool = False
    gone: bool = False


class ClientNode:
    """One process of a client on some machine."""

    role = "client"

    def __init__(self, world: World, port: Port, witness: Witness, name: str, delay_s: float = 0.002) -> None:
        self.world = world
        self.name = name
        self.cable = Cable(world, delay_s)
        self.alive = True
        self.watched: dict[str, Watched] = {}
        self._witness = witness
        self._conversation = Conversation(wire.Hello(wire.VERSION, name, "somebody"))
        self._todo: deque[Request] = deque()
        self._inbox: deque[bytes] = deque()
        self._receive_budget: deque[bytes] = deque()
        self._submitting: set[str] = set()
        self._was_full = False
        self._to_forget: set[str] = set()
        self._flying: dict[str, int] = {}
        self._wakeup = Wakeup(world, self._turn)
        self._dialler = Dialler(world, port, self)
        self._dial()

    # --- what the program does ---------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing more."""
        return not self._submitting and all(seen.complete or seen.gone for seen in self.watched.values())

    def submit(self, plan: BagPlan, *, backwards: bool = False) -> None:
        """Submit a bag and watch it. ``backwards``: its batches leave in the wrong order."""
        witness = self._witness
        witness.timeouts[plan.bag] = plan.options.timeout
        witness.tasks.update({(plan.bag, task.item): task for batch in plan.batches for task in batch})
        self._submitting.add(plan.bag)
        if plan.forget:
            self._to_forget.add(plan.bag)
        self._flying[plan.bag] = 0
        numbers = range(len(plan.batches))
        left = deque(reversed(numbers) if backwards else numbers)
        if plan.libraries is None:
            self._send_batches(plan, left)
        else:
            witness.environments.trees[plan.bag] = plan.libraries.tree
            self._bring(plan, plan.libraries, left)

    def attach(self, bag: str) -> None:
        """Watch a bag from its beginning."""
        self.watched[bag] = Watched(bag)
        self._watch(self.watched[bag])

    def cancel(self, bag: str, items: list[int] | None) -> None:
        """Cancel some items, or (None) the whole bag."""
        self._witness.cancelled.add(bag)
        if items is None:
            self._submitting.discard(bag)
        self.ask("cancel", {"bag": bag, "items": items})

    def forget(self, bag: str) -> None:
        """Drop a bag that has ended."""
        self._witness.forgotten.add(bag)
        self.ask("forget", {"bag": bag})

    def ask(self, what: str, args: Mapping[str, object], answered: Answered = lambda reply: None) -> None:
        """Ask anything."""
        self._say(wire.Ask(self._conversation.number(), what, wire.pack_record(args)), answered)

    @property
    def unfinished(self) -> list[str]:
        """Bags that it has not submitted completely."""
        return sorted(self._submitting)

    def crash(self) -> None:
        """The process ends."""
        self.world.note("{} crashes", self.name)
        self.alive = False
        self._wakeup.clear()
        connection = self._dialler.stop()
        if connection is not None:
            connection.open_here = False
            connection.cut(half_open=self.world.random.random() < 0.5)

    def leave(self) -> None:
        """The process ends in good order."""
        self._send([wire.Goodbye("the client ends")])
        self.alive = False
        self._wakeup.clear()
        connection = self._dialler.stop()
        if connection is not None:
            connection.hang_up()

    def break_link(self, *, half_open: bool = False) -> None:
        """The connection breaks, if there is one."""
        if self._dialler.connection is not None:
            self.world.note("{}: the connection breaks", self.name)
            self._dialler.connection.cut(half_open=half_open)

    def clog(self, seconds: float) -> None:
        """What the broker sends finds no room for a while."""
        self._dialler.clog(self.name, seconds)

    def time_out(self, *, at_peer: bool) -> None:
        """One end gives up a line that has been silent for too long."""
        if self._dialler.connection is not None:
            self._dialler.connection.time_out(at_peer=at_peer)

    # --- submitting and watching -------------------------------------------------------------------------------------

    def _bring(self, plan: BagPlan, libraries: Libraries, left: deque[int]) -> None:
        """Offer all parts, send one that the broker lacks, and so on; then submit."""

        def offered(reply: Reply) -> None:
            expect(isinstance(reply, wire.Lacks), "what {} brings is refused: {}", plan.bag, reply)
            assert isinstance(reply, wire.Lacks)
            lacking = wire.split_digests(reply.parts)
            if not lacking:
                self._send_batches(plan, left)
                return
            part = wire.Part(self._conversation.number(), plan.bag, lacking[0], libraries.parts[lacking[0]])
            self._say(part, lambda kept: self._bring(plan, libraries, left))

        if plan.bag in self._submitting:
            size = sum(map(len, libraries.parts.values()))
            offer = wire.Offer(self._conversation.number(), plan.bag, b"".join(libraries.parts), size, 0, 0)
            self._say(offer, offered)

    def _send_batches(self, plan: BagPlan, left: deque[int]) -> None:
        while left and self._flying[plan.bag] < WINDOW and plan.bag in self._submitting:
            self._flying[plan.bag] += 1
            message = self._submit_message(plan, left.popleft())
            self._say(message, lambda reply: self._submitted(plan, left, reply), plan.template)

    def _submit_message(self, plan: BagPlan, number: int) -> wire.Submit:
        tasks = plan.batches[number]
        first = sum(map(len, plan.batches[:number]))
        runtimes = plan.runtimes
        return wire.Submit(
            request=self._conversation.number(),
            bag=plan.bag,
            name=f"bag of {self.name}",
            template=plan.template.digest,
            first=first,
            payloads=tuple(task.pack() for task in tasks),
            runtime=runtimes if isinstance(runtimes, float) else None,
            runtimes=tuple(runtimes[first : first + len(tasks)]) if isinstance(runtimes, list) else (),
            options=plan.options,
            last=number == len(plan.batches) - 1,
        )

    def _submitted(self, plan: BagPlan, left: deque[int], reply: Reply) -> None:
        self._flying[plan.bag] -= 1
        if isinstance(reply, wire.Failed):
            excused = plan.bag in self._witness.cancelled or plan.bag in self._witness.forgotten
            expect(excused, "bag {} is refused: {}", plan.bag, reply.reason)
            left.clear()
        elif plan.bag not in self.watched:
            self.attach(plan.bag)
        self._send_batches(plan, left)
        if not left and not self._flying[plan.bag]:
            self._submitting.discard(plan.bag)

    def _watch(self, seen: Watched) -> None:
        message = wire.Watch(self._conversation.number(), seen.bag, seen.after)
        self._say(message, lambda reply: self._results(seen, reply))

    def _results(self, seen: Watched, reply: Reply) -> None:
        if not isinstance(reply, wire.Outcomes):
            excused = seen.bag in self._witness.forgotten or seen.bag not in self._witness.told
            expect(excused, "bag {} cannot be watched: {}", seen.bag, getattr(reply, "reason", ""))
            seen.gone = True
            return
        for row in wire.results_in(reply):
            expect(row.item not in seen.results, "{} sees item {} of {} twice", self.name, row.item, seen.bag)
            seen.results[row.item] = row.outcome
            self._witness.seen(seen.bag, row)
        seen.after = reply.after
        if reply.closed and reply.settled == reply.total and len(seen.results) == reply.total:
            seen.complete = True
            if seen.bag in self._to_forget:
                self.forget(seen.bag)
        else:
            expect(bool(reply.results), "{}: nothing new of {}, and it is not complete", self.name, seen.bag)
            self._watch(seen)

    # --- the link ----------------------------------------------------------------------------------------------------

    def _say(self, message: Question, answered: Answered, template: Template | None = None) -> None:
        def checked(reply: Reply | DeskgridError) -> None:
            if isinstance(reply, TransferCut):
                self._say(replace(message, request=self._conversation.number()), answered)
            elif isinstance(reply, DeskgridError):
                raise Broken(f"{self.name} is refused: {reply}")
            elif isinstance(reply, wire.Failed) and self._comes_again(message, reply.reason):
                again = replace(message, request=self._conversation.number())
                self.world.after(TRY_AGAIN_S, lambda: self._say(again, answered, template))
            else:
                answered(reply)

        self._todo.append(Request(message, checked, template))
        self._wakeup.set(self.world.now)

    def _comes_again(self, message: Question, reason: str) -> bool:
        """Whether the disk was full, or this is a batch behind one for which it was."""
        if "the disk of the broker's home" in reason:
            self._was_full = True
        late = isinstance(message, wire.Submit) and ("have not arrived" in reason or "did not arrive" in reason)
        return self.alive and ("the disk of the broker's home" in reason or (late and self._was_full))

    def _dial(self) -> None:
        self._send(self._conversation.connected(self.world.now))
        self._dialler.start()

    def opened(self, connection: Connection) -> None:
        while self._receive_budget:
            connection.to_broker(self._receive_budget.popleft())

    def closed(self, connection: Connection) -> None:
        if self._dialler.connection is connection:
            self._dialler.lost()  # below us, and without a word: only silence will tell

    def arrived(self, connection: Connection, data: bytes) -> None:
        if self._dialler.connection is connection:
            self._inbox.append(data)
            self._wakeup.set(self.world.now + self.world.random.uniform(0.0, TURN_S))

    def _turn(self) -> None:
        if not self.alive:
            return
        while self._inbox:
            self._send(self._conversation.receive(wire.decode(self._inbox.popleft()), self.world.now))
        while self._todo:
            self._send(self._conversation.request(self._todo.popleft(), self.world.now))
        self._send(self._conversation.overdue(self.world.now))
        if self._conversation.gone(self.world.now):
            self.world.note("{} gives its connection up", self.name)
            connection = self._dialler.stop()
            if connection is not None:
                connection.hang_up()
            self._receive_budget.clear()
            self._inbox.clear()
            self._dial()
        if self._conversation.busy:
            self._wakeup.set(self.world.now + LOOK_S)

    def _send(self, messages: list[wire.Message]) -> None:
        for message in messages:
            self.world.note("{} -> broker: {}", self.name, Brief(message))
            data = wire.encode(message)
            connection = self._dialler.connection
            if connection is None or not connection.to_broker(data):
                self._receive_budget.append(data)
