"""A virtual grid: one broker, PCs and clients, the faults that can hit them, and how a run is brought to its end."""

import json
from collections.abc import Callable
from pathlib import Path

from deskgrid import wire
from deskgrid.scheduler.policies import Policy, make_policy
from deskgrid.worker.windows.uptime import Cycle, Instant, OpenEnded, Until, UptimePlan
from tests.grid.broker_node import BrokerNode
from tests.grid.clients import ClientNode
from tests.grid.environments import LINUX
from tests.grid.network import BROKER_PATIENCE_S, PEER_PATIENCE_S, Port, World
from tests.grid.tasks import Task
from tests.grid.witness import Witness, expect
from tests.grid.worker_node import WorkerNode

# How long a grid without faults, with a PC that stays, may take to end everything it can, beyond the work itself.
SETTLING_S = 600.0
# How long the last messages of a run may take.
LAST_WORDS_S = 120.0

MakePlan = Callable[[Instant], UptimePlan]


def open_ended(now: Instant) -> UptimePlan:
    """Available until further notice."""
    return OpenEnded()


def cycle(*pairs: tuple[float, float]) -> MakePlan:
    """The paper's plan: seconds up, seconds down, from its start."""
    return lambda now: Cycle(pairs, now)


def for_seconds(seconds: float) -> MakePlan:
    """One window, on the monotonic clock."""
    return lambda now: Until(now.mono + seconds, on_wall=False, text=f"for {seconds:g} s")


class VirtualGrid:
    """Everything of one run. ``home`` is the broker's, on a real disk."""

    def __init__(self, seed: int, home: Path, policy: Callable[[], Policy] = lambda: make_policy("pgs")) -> None:
        self.world = World(seed)
        self.witness = Witness()
        self.port = Port(self.world)
        self.broker = BrokerNode(self.world, self.port, home, self.witness, policy)
        self.workers: dict[str, WorkerNode] = {}
        self.clients: list[ClientNode] = []
        self.work_s = 0.0
        # Of the PC that stays at the end.
        self.anchor_slots = 2
        # Bags whose environment no PC can prepare: they never end, and none of their tasks may run.
        self.hopeless: set[str] = set()

    # --- who is there ------------------------------------------------------------------------------------------------

    def worker(
        self,
        name: str,
        plan: MakePlan | None = open_ended,
        *,
        slots: int = 1,
        delay_s: float = 0.002,
        key: str = "",
        system: wire.System = LINUX,
    ) -> WorkerNode:
        """A PC whose agent starts now; ``key`` tells it from another of the same name."""
        node = WorkerNode(self.world, self.port, self.witness, name, plan, slots=slots, delay_s=delay_s, system=system)
        self.workers[key or name] = node
        node.start()
        return node

    def client(self, delay_s: float = 0.002) -> ClientNode:
        """A client's process that starts now."""
        node = ClientNode(self.world, self.port, self.witness, f"client{len(self.clients)}", delay_s)
        self.clients.append(node)
        return node

    def peers(self) -> list[WorkerNode | ClientNode]:
        """Everyone who dials."""
        return [*self.workers.values(), *self.clients]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.now + seconds)

    def run_until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Let time pass until ``done()``, which has to be within ``seconds``."""
        expect(self.world.run(self.world.now + seconds, done), "after {} s: not yet {}", seconds, what)

    # --- faults of the network ---------------------------------------------------------------------------------------

    def partition(self, node: WorkerNode | ClientNode, seconds: float) -> None:
        """Nothing gets through for a while; a silence that is too long for an end ends the connection."""
        self.world.note("{} is cut off for {:.1f} s", node.name, seconds)
        node.cable.cut = True
        self.world.after(seconds, node.cable.mend)
        if seconds > PEER_PATIENCE_S:
            self.world.after(PEER_PATIENCE_S, lambda: node.time_out(at_peer=True) if node.cable.cut else None)

    def freeze(self, node: WorkerNode, seconds: float, *, suspend: bool) -> None:
        """A PC or its agent stands still; the broker gives its connection up when that is for long."""
        node.freeze(seconds, suspend=suspend)
        if seconds > BROKER_PATIENCE_S:
            self.world.after(BROKER_PATIENCE_S, lambda: node.time_out(at_peer=False))

    def freeze_broker(self, seconds: float) -> None:
        """The broker's process stands still; its peers give their connections up when that is for long."""
        if self.broker.up:
            self.broker.freeze(seconds)
            life = self.broker.lives
            if seconds > PEER_PATIENCE_S:
                self.world.after(PEER_PATIENCE_S, lambda: self._all_time_out(life))

    def _all_time_out(self, life: int) -> None:
        if self.broker.lives == life:
            for node in self.peers():
                node.time_out(at_peer=True)

    def restart_broker(self, after: float) -> None:
        """Kill the broker and start it again."""
        self.broker.kill()
        self.world.after(after, self.broker.start)

    # --- the end -----------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """Penalties end: everything that is broken works again, and a PC that stays joins."""
        self.world.note("calm")
        self.broker.steps.disarm()
        self.broker.free_disk()
        self.broker.thaw()
        self.broker.start()
        for node in self.workers.values():
            node.thaw()
            node.wall_offset_s = 0.0
            node.start()
        for peer in self.peers():
            peer.cable.mend()
        self.worker("anchor", slots=self.anchor_slots)

    def finish(self) -> None:
        """Everything ends, is seen to have ended, and is forgotten without leaving a trace."""
        limit = SETTLING_S + self.work_s
        self.run_until(lambda: not any(client.unfinished for client in self._alive()), limit, "all bags submitted")
        janitor = _Janitor(self)  # a bag whose client died while it submitted is closed by nobody else
        self.run_until(lambda: all(client.idle for client in self._alive()) and janitor.done(), limit, "all bags ended")
        self.witness.everything_ended()
        ran = {bag for bag, _ in self.witness.executions.started} & self.hopeless
        expect(not ran, "tasks of {} ran without their environment", ran)
        for bag in janitor.bags:
            janitor.client.forget(bag)
        self.run_until(self._all_quiet, LAST_WORDS_S, "workers that hold nothing and know it")
        self.run(1.0)
        self.witness.nothing_left(self.broker.sessions)

    def close(self) -> None:
        """Let go of the home."""
        self.broker.kill()

    def _alive(self) -> list[ClientNode]:
        return [client for client in self.clients if client.alive]

    def _all_quiet(self) -> bool:
        forgotten = self.broker.up and not self.broker.sessions.state.book.by_id
        forgotten = forgotten and not self.witness.files_of_forgotten(self.broker.sessions)
        done = forgotten and not self.broker.sessions.unfinished
        return done and all(node.idle for node in self.workers.values())

    @property
    def counters(self) -> dict[str, float]:
        """What the scheduler of the broker's present life has counted."""
        counters = self.broker.sessions.state.scheduler.counters
        return {name: getattr(counters, name) for name in counters.__slots__}


class _Janitor:
    """A client that closes what its client left open, and sees all bags to their end."""

    def __init__(self, grid: VirtualGrid) -> None:
        self.client = grid.client()
        self._grid = grid
        self.bags: list[str] = []
        self._asked = False
        self.client.ask("bags", {}, self._listed)

    def _listed(self, reply: object) -> None:
        assert isinstance(reply, wire.Answer)
        for row in json.loads(reply.body)["bags"]:
            bag = row["bag"]
            self.bags.append(bag)
            if not row["closed"] or bag in self._grid.hopeless:
                self.client.cancel(bag, None)
            self.client.attach(bag)
        self._asked = True

    def done(self) -> bool:
        """Whether every bag has ended."""
        return self._asked and self.client.idle


def bag_of(bag: str, seconds: list[float], size: int = 1000, fate: str = "ok") -> list[list[Task]]:
    """Batches of at most ``size`` tasks that take ``seconds``."""
    tasks = [Task(bag, item, length, fate) for item, length in enumerate(seconds)]
    return [tasks[start : start + size] for start in range(0, len(tasks), size)]
