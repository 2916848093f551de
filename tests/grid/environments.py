"""Environments on a virtual grid: wheels that say what unpacking them is like, and a PC that unpacks them.

Clients offer and send the real parts, the broker keeps them, and PCs ask for them. Only unpacking is virtual: it takes
the seconds that a wheel says, and fails as the wheel says.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import msgpack

from deskgrid import wire
from tests.files.fakes import digest, entry
from tests.grid.tasks import PYTHON

# The sort of PC that every environment here has wheels for, and one that none has.
LINUX = wire.System(PYTHON, "linux_x86_64", 2, 35)
MAC = wire.System(PYTHON, "macosx_arm64", 14, 0)


class Wheel(NamedTuple):
    """A wheel, which takes ``seconds`` to unpack. On each PC the first ``times`` attempts fail, by ``fails``."""

    name: str
    seconds: float = 0.5
    fails: int = wire.Readiness.READY
    times: int = 0

    def pack(self) -> bytes:
        """Its file."""
        packed: bytes = msgpack.packb(list(self))
        return packed


@dataclass(frozen=True, slots=True)
class Libraries:
    """What a bag brings: ``parts`` by digest, and the tree that lists them."""

    environment: wire.Environment
    tree: bytes
    parts: dict[bytes, bytes]

    @property
    def hopeless(self) -> bool:
        """Whether no PC can ever prepare it."""
        wheels = (Wheel(*msgpack.unpackb(data)) for name, data in self.parts.items() if name != self.tree)
        return any(wheel.times == NEVER for wheel in wheels)


# A wheel that fails so often can never be used.
NEVER = 1_000_000


def libraries(*wheels: Wheel) -> Libraries:
    """The environment of these wheels."""
    files = {f"{wheel.name}.whl": wheel.pack() for wheel in wheels}
    tree = wire.Tree(tuple(entry(name, data) for name, data in sorted(files.items())), ()).packed()
    build = wire.Build(*LINUX[:2], 2, 17, digest(tree), sum(map(len, files.values())), 0)
    parts = {digest(data): data for data in (*files.values(), tree)}
    return Libraries(wire.Environment(" ".join(files), (build,)), digest(tree), parts)


class EnvironmentBook:
    """What bags bring, and which worker has said that it is ready: only from messages. For the witness."""

    def __init__(self) -> None:
        self.trees: dict[str, bytes] = {}
        self._keys: dict[str, bytes] = {}
        self._ready: set[tuple[str, str]] = set()
        self._sessions: dict[bytes, str] = {}
        # How often an environment became ready somewhere, and how often it failed.
        self.said: Counter[wire.Readiness] = Counter()

    def told(self, message: wire.Prepare) -> None:
        """A worker is told what to have."""
        for wanted in message.environments:
            known = self._keys.setdefault(wanted.key, wanted.tree)
            assert known == wanted.tree == self.trees[wanted.bag], f"{wanted} is not what bag {wanted.bag} brings"

    def heard(self, peer: bytes, message: wire.Join | wire.Prepared) -> None:
        """A worker introduces itself, or says what became of an environment."""
        if isinstance(message, wire.Join):
            self._sessions[peer] = message.session
            return
        self.said[wire.Readiness(message.readiness)] += 1
        place = self._sessions.get(peer, ""), message.key
        (self._ready.add if message.readiness == wire.Readiness.READY else self._ready.discard)(place)

    def forget_all(self) -> None:
        """The broker is new: workers have to say again what is ready."""
        self._ready.clear()

    def wrong(self, peer: bytes, bag: str, environment: str | None) -> str:
        """What is wrong with giving a task of a bag to a worker, to run in an environment; or empty."""
        brings = self.trees.get(bag)
        if (None if environment is None else self._keys.get(environment)) != brings:
            return f"a task of bag {bag} is to run in {environment}, which is not what the bag brings"
        session = self._sessions.get(peer, "")
        if environment is not None and (session, environment) not in self._ready:
            return f"a task of bag {bag} goes to {session}, where its environment is not ready"
        return ""


@dataclass(slots=True, eq=False)
class _Making:
    """An environment that is being made. ``asked``: the part that is on its way; ``ends``: when unpacking ends."""

    wanted: wire.EnvironmentWanted
    began: float
    asked: tuple[int, bytes] | None = None
    failing: Wheel | None = None
    ends: float = math.inf


class FakeEnvironments:
    """`deskgrid.worker.environments.environments.Environments` in virtual time, on the PC ``pc``.

    ``tries``: how often each PC has tried to unpack each wheel that fails. ``in_use``: whether a job is in an
    environment. What no bag wants is let go at once, unless it is in use.
    """

    def __init__(
        self, pc: str, clock: Callable[[], float], tries: Counter[tuple[str, str]], in_use: Callable[[str], bool]
    ) -> None:
        self.ready: set[str] = set()
        self._pc, self._clock, self._tries, self._in_use = pc, clock, tries, in_use
        self._wanted: dict[str, wire.EnvironmentWanted] = {}
        self._failed: set[str] = set()
        self._making: _Making | None = None
        self._parts: dict[bytes, bytes] = {}
        self._numbers = itertools.count(1)
        self._out: list[wire.Message] = []
        self._resting = False

    def prepare(self, message: wire.Prepare) -> None:
        """The broker says what this worker is to have."""
        self._wanted = {wanted.key: wanted for wanted in message.environments}
        self._failed.clear()
        for key in self._wanted:
            if key in self.ready:
                self._say(key, wire.Readiness.READY)

    def lacks(self, key: str) -> bool:
        """Whether an environment is not ready, although the broker believes it: then it is told."""
        if key not in self.ready and key not in self._wanted:
            self._say(key, wire.Readiness.GONE)
        return key not in self.ready

    def part(self, message: wire.Part) -> None:
        """A part that was asked for has come."""
        assert sha256(bytes(message.data)).digest() == message.digest
        self._parts[message.digest] = bytes(message.data)
        if self._making is not None and self._making.asked == (message.request, message.digest):
            self._making.asked = None

    def failed(self, message: wire.Failed) -> None:
        """A part cannot come."""
        making = self._making
        if making is not None and making.asked is not None and making.asked[0] == message.request:
            self._end(making, wire.Readiness.TROUBLE, message.reason)

    def reconnected(self) -> None:
        """What was asked for may be lost."""
        if self._making is not None:
            self._making.asked = None

    def rest(self) -> None:
        """The window is closed for long."""
        self._resting, self._making = True, None

    def start(self) -> None:
        """Go on."""
        self._resting = False

    def poll(self) -> None:
        """Go on with what is being made."""
        self.ready -= {key for key in self.ready if key not in self._wanted and not self._in_use(key)}
        if self._making is not None and self._making.wanted != self._wanted.get(self._making.wanted.key):
            self._making = None
        while not self._resting and (self._making is not None or self._begin()) and self._went_on():
            pass

    def say(self) -> list[wire.Message]:
        """Return the messages that are due."""
        out, self._out = self._out, []
        return out

    @property
    def next_end(self) -> float:
        """When unpacking ends; infinity if nothing is unpacked."""
        return math.inf if self._making is None else self._making.ends

    def _begin(self) -> bool:
        todo = (wanted for key, wanted in self._wanted.items() if key not in self.ready and key not in self._failed)
        wanted = next(todo, None)
        self._making = None if wanted is None else _Making(wanted, self._clock())
        return wanted is not None

    def _went_on(self) -> bool:
        """Whether there was something to do for the environment that is being made."""
        making = self._making
        if making is None or making.asked is not None:
            return False
        lacking = self._lacking(making.wanted.tree)
        if lacking is not None:
            making.asked = next(self._numbers), lacking
            self._out.append(wire.Want(making.asked[0], making.wanted.bag, lacking))
        elif making.ends == math.inf:
            self._unpack(making)
        elif self._clock() >= making.ends:
            bad = making.failing
            self._end(making, wire.Readiness.READY if bad is None else wire.Readiness(bad.fails), bad and bad.name)
            return True
        return False

    def _lacking(self, tree: bytes) -> bytes | None:
        """A part that is not here."""
        if tree not in self._parts:
            return tree
        return next((each for each in self._wheels(tree) if each not in self._parts), None)

    def _wheels(self, tree: bytes) -> list[bytes]:
        return [each.parts for each in wire.read_tree(self._parts[tree]).entries]

    def _unpack(self, making: _Making) -> None:
        making.ends = self._clock()
        for wheel in (Wheel(*msgpack.unpackb(self._parts[each])) for each in self._wheels(making.wanted.tree)):
            making.ends += wheel.seconds
            self._tries[self._pc, wheel.name] += 1
            if self._tries[self._pc, wheel.name] <= wheel.times:
                making.failing = wheel
                break

    def _end(self, making: _Making, readiness: wire.Readiness, reason: str | None) -> None:
        self._making = None
        (self.ready if readiness is wire.Readiness.READY else self._failed).add(making.wanted.key)
        self._say(making.wanted.key, readiness, reason or "", max(0.0, self._clock() - making.began))

    def _say(self, key: str, readiness: wire.Readiness, reason: str = "", seconds: float = 0.0) -> None:
        self._out.append(wire.Prepared(key, int(readiness), "", reason, seconds, 0))
