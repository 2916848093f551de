"""A broker for tests of the client: it speaks the protocol, runs tasks itself, and misbehaves as it is told to.

It runs in a thread. It keeps its bags in a `Memory` that outlives it, as a real journal does. `restart` makes a new
broker on the same port and memory, without any connections.
"""

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgpack
import zmq

from deskgrid import wire
from deskgrid.wire.joinline import JoinLine
from tests.waiting import PATIENCE_S, eventually

_TICK_MS = 5


@dataclass
class FakeBag:
    """A bag: its tasks' payloads, and the results so far in the order in which they were recorded."""

    template: str
    name: str
    options: wire.TaskOptions = field(default_factory=wire.TaskOptions)
    payloads: list[bytes] = field(default_factory=list)
    runtimes: list[float | None] = field(default_factory=list)
    results: list[wire.BagResult] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    closed: bool = False


@dataclass
class Memory:
    """What survives a restart. ``hold``: tasks do not run before they are told to by `FakeBroker.run`."""

    templates: dict[str, bytes] = field(default_factory=dict)
    bags: dict[str, FakeBag] = field(default_factory=dict)
    seen: list[wire.Message] = field(default_factory=list)
    hold: bool = False
    note: str = ""

    def of(self, kind: type[Any]) -> list[Any]:
        """The messages of one kind that have arrived so far, over all restarts."""
        return [message for message in list(self.seen) if isinstance(message, kind)]

    def asked_for_results(self) -> list[int]:
        """After which results it was asked for more: by a message of its own, or by a batch."""
        seen = list(self.seen)
        return [m.after for m in seen if isinstance(m, wire.Watch) or (isinstance(m, wire.Submit) and m.watch)]

    def asked(self, what: str) -> list[dict[str, Any]]:
        """The arguments of all questions of one kind."""
        return [msgpack.unpackb(ask.args) for ask in self.of(wire.Ask) if ask.what == what]


class FakeBroker:
    """One broker on one port, in a thread.

    ``lose(message)``: whether a message, of either side, gets lost. ``refuse``: why every client is refused.
    ``garbage``: bytes to send before each answer. ``python``: what the grid is said to run. ``withhold``: say of no
    batch that it was accepted, until that is False again.
    """

    def __init__(self, memory: Memory | None = None, port: int = 0) -> None:
        self.memory = memory or Memory()
        self.lose: Callable[[wire.Message], bool] = lambda message: False
        self.refuse = ""
        self.garbage = b""
        self.withhold = False
        self.answers: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._known: set[bytes] = set()
        self._watchers: list[tuple[bytes, wire.Watch]] = []
        self._withheld: list[tuple[bytes, wire.Message]] = []
        self._stop = threading.Event()
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        assert eventually(lambda: self._bind(port), PATIENCE_S)
        self.port = int(self._router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._thread = threading.Thread(target=self._serve, name="fake broker", daemon=True)
        self._thread.start()

    def _bind(self, port: int) -> bool:
        try:
            self._router.bind(f"tcp://127.0.0.1:{port or '*'}")
        except zmq.ZMQError:
            return False
        return True

    @property
    def line(self) -> str:
        """The join line for clients."""
        return str(JoinLine("client", "127.0.0.1", self.port, None))

    def stop(self) -> None:
        """End it, without a word to anybody."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def run(self, bag_id: str, *items: int) -> None:
        """Run these tasks of a bag now."""
        with self._lock:
            for item in items:
                self._run(bag_id, item)

    def end(self, bag_id: str, item: int, outcome: wire.Outcome, payload: bytes) -> None:
        """Have a task of a bag end in this way."""
        with self._lock:
            bag = self.memory.bags[bag_id]
            if item not in bag.ended:
                bag.ended.add(item)
                bag.results.append(wire.BagResult(item, outcome, 0.25, "pc1", payload))

    # --- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._stop.is_set():
            if self._router.poll(_TICK_MS):
                peer, data, *more = self._router.recv_multipart()
                message = wire.decode(data, [memoryview(frame) for frame in more])
                if not self.lose(message):
                    with self._lock:
                        self._receive(peer, message)
            with self._lock:
                self._watchers = [watcher for watcher in self._watchers if not self._tell(*watcher)]
                if not self.withhold:
                    held, self._withheld = self._withheld, []
                    for receipt in held:
                        self._send(*receipt)
        self._router.close()
        self._context.term()

    def _send(self, peer: bytes, message: wire.Message) -> None:
        if self.lose(message):
            return
        if self.withhold and isinstance(message, wire.Accepted):
            self._withheld.append((peer, message))
            return
        if self.garbage:
            self._router.send_multipart([peer, self.garbage])
        self._router.send_multipart([peer, wire.encode(message)])

    def _receive(self, peer: bytes, message: wire.Message) -> None:
        self.memory.seen.append(message)
        if self.refuse:
            self._send(peer, wire.Refused(self.refuse))
        elif isinstance(message, wire.Hello):
            self._known.add(peer)
            self._send(peer, wire.Greeting(wire.VERSION, "fake"))
        elif isinstance(message, wire.Goodbye):
            self._known.discard(peer)
        elif peer not in self._known:
            self._send(peer, wire.Rejoin())
        elif isinstance(message, wire.Blob):
            self.memory.templates[message.digest] = bytes(message.data)
        elif isinstance(message, wire.Submit):
            answer = self._submit(message)
            self._send(peer, answer)
            if message.watch and isinstance(answer, wire.Accepted):
                self._watch(peer, wire.Watch(message.watch, message.bag, message.after))
        elif isinstance(message, wire.Watch):
            self._watch(peer, message)
        elif isinstance(message, wire.Ask):
            self._ask(peer, message)
        elif isinstance(message, wire.Offer):
            self._send(peer, wire.Lacks(message.request, b""))  # it has all files already

    def _submit(self, submit: wire.Submit) -> wire.Message:
        bag = self.memory.bags.get(submit.bag)
        if bag is None:
            if submit.template not in self.memory.templates:
                return wire.Failed(submit.request, "template: send it first")
            bag = self.memory.bags[submit.bag] = FakeBag(submit.template, submit.name, submit.options)
        if submit.first > len(bag.payloads):
            return wire.Failed(submit.request, "a batch is missing")
        if submit.first == len(bag.payloads):
            bag.payloads += map(bytes, submit.payloads)
            bag.runtimes += submit.runtimes or [submit.runtime] * len(submit.payloads)
            for item in range(submit.first, len(bag.payloads)):
                if not self.memory.hold:
                    self._run(submit.bag, item)
        bag.closed = bag.closed or submit.last
        return wire.Accepted(submit.request, submit.bag, self.memory.note)

    def _run(self, bag_id: str, item: int) -> None:
        bag = self.memory.bags[bag_id]
        if item in bag.ended:
            return
        bag.ended.add(item)
        table = msgpack.unpackb(self.memory.templates[bag.template])
        try:
            if table["kind"] == "command":
                value: Any = " ".join([*table["argv"], bag.payloads[item].decode()])
            else:
                args, kwargs = pickle.loads(bag.payloads[item])
                value = pickle.loads(table["function"])(*args, **kwargs)
        except Exception as error:
            outcome = wire.Outcome.ERROR
            rank = bag.options.ranks[1] - 1 if bag.options.gang else None
            told = wire.Failure(type(error).__name__, str(error), f"remote: {error}", pickle.dumps(error), rank)
            payload: wire.Payload = told.packed()
        else:
            outcome, payload = wire.Outcome.DONE, pickle.dumps(value)
            if bag.options.gang:
                payload = wire.join_ranks([payload] * bag.options.ranks[1])
        bag.results.append(wire.BagResult(item, outcome, 0.25, "pc1", payload))

    def _watch(self, peer: bytes, watch: wire.Watch) -> None:
        if watch.bag in self.memory.bags:
            self._watchers.append((peer, watch))
        else:
            self._send(peer, wire.Failed(watch.request, f"no bag {watch.bag}"))

    def _tell(self, peer: bytes, watch: wire.Watch) -> bool:
        bag = self.memory.bags[watch.bag]
        settled, total = len(bag.results), len(bag.payloads)
        results = bag.results[watch.after : watch.after + wire.BATCH_ROWS]
        if not results and not (bag.closed and settled == total):
            return False
        after = min(watch.after, settled) + len(results)
        pieces = (wire.pack_columns([*zip(*results, strict=True)]),) if results else ()
        self._send(peer, wire.Outcomes(watch.request, watch.bag, pieces, (), after, settled, total, bag.closed))
        return True

    def _ask(self, peer: bytes, ask: wire.Ask) -> None:
        args = msgpack.unpackb(ask.args)
        bag = self.memory.bags.get(args.get("bag", ""))
        if ask.what in self.answers:
            answer: dict[str, Any] = self.answers[ask.what]
        elif bag is None:
            self._send(peer, wire.Failed(ask.request, f"no bag {args.get('bag')}"))
            return
        elif ask.what == "cancel":
            answer = {"cancelled": self._cancel(bag, args["items"])}
        else:
            answer = _row(args["bag"], bag)
        self._send(peer, wire.Answer(ask.request, json.dumps(answer)))

    def _cancel(self, bag: FakeBag, items: list[int] | None) -> int:
        wanted = [item for item in (range(len(bag.payloads)) if items is None else items) if item not in bag.ended]
        bag.ended.update(wanted)
        bag.results += [wire.BagResult(item, wire.Outcome.CANCELLED, 0.0, "", b"") for item in wanted]
        bag.closed = bag.closed or items is None
        return len(wanted)


def _row(bag_id: str, bag: FakeBag) -> dict[str, Any]:
    counts = [result.outcome for result in bag.results]
    done, cancelled = counts.count(wire.Outcome.DONE), counts.count(wire.Outcome.CANCELLED)
    return {
        "bag": bag_id,
        "name": bag.name,
        "kind": "python",
        "total": len(bag.payloads),
        "done": done,
        "failed": len(counts) - done - cancelled,
        "cancelled": cancelled,
        "running": 0,
        "waiting": len(bag.payloads) - len(counts),
        "closed": bag.closed,
        "left_s": 12.5,
        "eta_s": None,
        "eta_low_s": None,
        "eta_high_s": None,
        "note": "",
    }


class FakeGrid:
    """A broker that can be restarted; the client sees the same address all the time."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.memory = self.broker.memory

    @property
    def line(self) -> str:
        return self.broker.line

    def restart(self) -> None:
        """End the broker and start another one on the same port, which remembers bags but no connection."""
        self.broker.stop()
        self.broker = FakeBroker(self.memory, self.broker.port)


@contextmanager
def fake_grid() -> Iterator[FakeGrid]:
    """A broker that ends with the test."""
    grid = FakeGrid()
    try:
        yield grid
    finally:
        grid.broker.stop()


def free_port() -> int:
    """A port that nothing listens on."""
    with zmq.Context() as context, context.socket(zmq.REP) as probe:
        probe.bind("tcp://127.0.0.1:*")
        return int(probe.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
