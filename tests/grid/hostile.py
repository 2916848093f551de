"""Hostile peers with valid keys: they send messages that could hurt others, as if they could see everything.

They do no harm here that is within their rights: a worker decides on its own tasks' answers, a submitter on the code.
"""

import json
import math
import random
from collections.abc import Callable

import msgpack

from deskgrid import wire
from tests.grid.network import Cable, Connection, Dialler, Port, Wakeup, World
from tests.grid.tasks import PYTHON
from tests.grid.witness import Witness, expect

# One message, or one burst, in so long. Seconds.
EVERY_S = 0.1
BURST = 20
EVER = wire.SECONDS_LIMIT
FORGED = b"forged"


class Hostile:
    """What both have in common: a connection, and a turn every moment. ``named``: whose name and key it takes."""

    role = "stranger"

    def __init__(self, world: World, port: Port, witness: Witness, named: str) -> None:
        self.cable = Cable(world, 0.002)
        self.said = 0
        self.dice = random.Random(world.random.random())
        self.witness = witness
        self.named = named
        self._world = world
        self._wakeup = Wakeup(world, self._turn)
        self._dialler = Dialler(world, port, self)
        self._dialler.start()

    def hang_up(self) -> None:
        """It has had enough."""
        self._wakeup.clear()
        if (connection := self._dialler.stop()) is not None:
            connection.hang_up()

    def opened(self, connection: Connection) -> None:
        self.begin()
        self._wakeup.set(self._world.now + EVERY_S)

    def closed(self, connection: Connection) -> None:
        if self._dialler.connection is connection:
            self._wakeup.clear()
            self._dialler.lost()

    def arrived(self, connection: Connection, data: bytes) -> None:
        self.told(wire.decode(data))

    def say(self, *messages: wire.Message) -> None:
        """Send messages."""
        for message in messages:
            self.say_bytes(wire.encode(message))

    def say_bytes(self, data: bytes) -> None:
        """Send anything."""
        if self._dialler.connection is not None:
            self.said += 1
            self._dialler.connection.to_broker(data)

    def say_values(self, kind: type[wire.Message], *values: object) -> None:
        """Send what looks like a message of ``kind``."""
        self.say_bytes(msgpack.packb([wire.MESSAGES.index(kind), *values]))

    def garble(self) -> None:
        """Say what is no message, or none of ours."""
        dice = self.dice
        self.say_bytes(dice.randbytes(dice.randint(0, 60)))
        wrongs: list[object] = [float("nan"), float("inf"), -1.0, -1, 2**64 - 1, None, "x", [[]] * 3]
        for wrong in wrongs:
            self.say_values(wire.Heartbeat, wrong, [])
            self.say_values(wire.Finished, [[1, 1, 0, wrong, FORGED, b"", b""]])
            self.say_values(wire.Submit, wrong, "bag1", "n", "t", 0, [b""], wrong, [], wrong, True)

    def begin(self) -> None:
        """Introduce yourself."""
        raise NotImplementedError

    def told(self, message: wire.Message) -> None:
        """The broker says something."""

    def harms(self) -> list[Callable[[], None]]:
        """All that it can do."""
        raise NotImplementedError

    def act(self) -> None:
        """Do one of them."""
        self.dice.choice(self.harms())()

    def _turn(self) -> None:
        self.act()
        self._wakeup.set(self._world.now + EVERY_S)


class HostileWorker(Hostile):
    """A worker that speaks for others, lies about itself, and floods."""

    session = "hostile"
    opening = 0

    def __init__(self, world: World, port: Port, witness: Witness, named: str) -> None:
        self.role = f"worker {named}"
        super().__init__(world, port, witness, named)
        self.mine: set[tuple[int, int]] = set()

    def begin(self) -> None:
        self._join(self.named, self.session, 2, [])

    def harms(self) -> list[Callable[[], None]]:
        speaking = [self._finish_others, self._guess, self._return_others, self._claim_others, self._take_a_name]
        speaking.append(self._speak_for_ranks)
        lying = [self._lie_about_uptime, self._leave_with_others, self._join_anew]
        return speaking + lying + [self.garble, self._flood, self._send_much, self._speak_as_a_client]

    def told(self, message: wire.Message) -> None:
        if isinstance(message, wire.Assign):
            self.mine.update((work.task, work.number) for work in message.work)

    def act(self) -> None:
        # What it is given it hands back, so that the others may go on: it is not about what it has itself.
        self.say(wire.Returned(tuple(wire.Ref(*attempt) for attempt in self.mine)))
        super().act()

    def _others(self) -> list[tuple[int, int]]:
        others = sorted(self.witness.newest.items() - self.mine)
        return self.dice.sample(others, min(8, len(others)))

    def _join(self, name: str, session: str, slots: int, running: list[wire.Running]) -> None:
        self.opening += 1
        self.witness.holdings.liars.add(session)
        uptime = self.dice.choice([None, 0.0, 0.001, 30.0, EVER])
        rows = (name, session, self.opening, "host", "", slots, "until", "", uptime, self._windows(), tuple(running))
        self.say(wire.Join(wire.VERSION, (PYTHON,), *rows))

    def _windows(self) -> tuple[wire.Window, ...]:
        draw = self.dice
        many = draw.choice([0, 1, wire.WINDOWS_LIMIT, 10 * wire.WINDOWS_LIMIT])
        return tuple(wire.Window(draw.choice([0.0, 5.0, EVER]), draw.choice([0.0, 1.0, EVER])) for _ in range(many))

    def _finish_others(self) -> None:
        self._finish(self._others())

    def _finish(self, attempts: list[tuple[int, int]]) -> None:
        outcomes = [self.dice.choice([0, 1, 2, 3, 4, 99, 2**40]) for _ in attempts]
        seconds = self.dice.choice([0.0, EVER])
        rows = zip(attempts, outcomes, strict=True)
        self.say(wire.Finished(tuple(wire.Result(*at, outcome, seconds, FORGED, b"", b"") for at, outcome in rows)))

    def _guess(self) -> None:
        near = [(task, number + self.dice.choice([-1, 1, 2**40])) for task, number in self._others()]
        self._finish([*near, (2**62, 1), (1, 2**62), (0, 0)])

    def _return_others(self) -> None:
        self.say(wire.Returned(tuple(wire.Ref(*attempt) for attempt in self._others())))

    def _speak_for_ranks(self) -> None:
        for attempt in self._others():
            rank, outcome = self.dice.choice([0, 1, 1000]), self.dice.choice([0, 1, 2, 3, 99])
            result = wire.RankResult(*attempt, outcome, EVER, FORGED, b"", b"", rank)
            self.say(wire.RanksReady(*attempt, 80), wire.RanksUnready(*attempt, "no"), wire.RanksEnded((result,)))
            self.say(wire.Meet(*attempt, rank, 1, False, True, b""), wire.PmiBytes(*attempt, rank, 0, b"cmd=abort\n"))

    def _claimed(self) -> list[wire.Running]:
        draw = self.dice
        return [wire.Running(*at, draw.choice([0, 1, 2**31]), draw.choice([None, 0.0, EVER])) for at in self._others()]

    def _claim_others(self) -> None:
        self._join(self.named, self.session, self.dice.choice([0, 1, 32, 2**31]), self._claimed())

    def _take_a_name(self) -> None:
        self._join(f"pc{self.dice.randint(0, 3)}", f"hostile{self.dice.random()}", 32, self._claimed())

    def _join_anew(self) -> None:
        for _ in range(BURST):
            self._join(self.named, f"hostile{self.dice.random()}", 2, [])

    def _lie_about_uptime(self) -> None:
        for uptime in (EVER, 0.0, None, 1e-9):
            self.say(wire.Heartbeat(uptime, self._windows()))

    def _leave_with_others(self) -> None:
        planned, stopping = self.dice.random() < 0.5, self.dice.random() < 0.5
        self.say(wire.Leave("", planned, stopping, self._windows(), tuple(self._claimed())))

    def _flood(self) -> None:
        for number in range(BURST):
            self.say(wire.Fetch(f"{number}"), wire.Heartbeat(5.0, ()))

    def _send_much(self) -> None:
        self.say(wire.Finished((wire.Result(1, 1, 0, 0.0, bytes(2**20), b"", b""),)))

    def _speak_as_a_client(self) -> None:
        self.say(wire.Hello(wire.VERSION, "client0", "somebody"), wire.Watch(1, "bag1", 0))
        self.say(wire.Ask(2, "cancel", wire.pack_record({"bag": "bag1", "items": None})))
        self.say(wire.Ask(3, "keys add", wire.pack_record({"name": "evil", "role": "admin", "public": "00" * 32})))


class HostileSubmitter(Hostile):
    """A submitter who wants what belongs to others: to read it, to change it, to end it, to be in its way."""

    def begin(self) -> None:
        self.say(wire.Hello(wire.VERSION, self.dice.choice(["mine", self.named]), "somebody"))

    def harms(self) -> list[Callable[[], None]]:
        return [
            self._ask,
            self._watch,
            self._submit,
            self._send_templates,
            self.garble,
            self._speak_as_a_worker,
            self.begin,
        ]

    def told(self, message: wire.Message) -> None:
        kinds = wire.Outcomes | wire.Accepted
        expect(not isinstance(message, kinds), "a stranger is told {}", message)
        if isinstance(message, wire.Answer):
            body = json.loads(message.body)
            expect("broker" in body or "bags" in body, "a stranger is answered {}", body)

    def _bag(self) -> str:
        return self.dice.choice(sorted({bag for bag, _ in self.witness.tasks}) or ["bag1"])

    def _ask(self) -> None:
        bag, item = self._bag(), self.dice.choice([None, 0, -1, 2**40, "0", [0]])
        whats = [
            "cancel",
            "forget",
            "progress",
            "explain",
            "logs",
            "runtimes",
            "policy",
            "keys",
            "keys add",
            "nonsense",
        ]
        args = {"bag": bag, "item": item, "items": self.dice.choice([None, [0], [-1], 5]), "runtimes": [EVER]}
        more = {"name": "fcfs", "options": {}, "role": "admin", "public": "00" * 32}
        for what in [*whats, "keys revoke", "status", "bags"]:
            self.say(wire.Ask(self.said, what, wire.pack_record(args | more)))
        for data in (b"", b"\x90", b"\x81", b"\x91" * 5000, wire.pack_record({"bag": math.inf}), b"\xc0"):
            self.say(wire.Ask(self.said, self.dice.choice(whats), data))

    def _watch(self) -> None:
        for request in range(BURST):
            self.say(wire.Watch(request, self._bag(), self.dice.choice([0, 2**40])))

    def _submit(self) -> None:
        draw, bag = self.dice, self._bag()
        first = draw.choice([0, 1, len([1 for of, _ in self.witness.tasks if of == bag]), 2**40])
        payloads = tuple(FORGED for _ in range(draw.choice([0, 1, 3])))
        runtimes = draw.choice([(), (EVER,), (0.0,) * 3])
        self.say(
            wire.Submit(
                self.said, bag, "", "0" * 64, first, payloads, None, runtimes, wire.TaskOptions(0.0, 2**40), True
            )
        )
        self.say(wire.Submit(self.said, "unknown", "", "0" * 64, first, payloads, EVER, (), wire.TaskOptions(), True))

    def _send_templates(self) -> None:
        for data in (b"", FORGED, msgpack.packb({"kind": "worse"}), msgpack.packb({"kind": "command"})):
            self.say(wire.Blob("0" * 64, data))

    def _speak_as_a_worker(self) -> None:
        rows = ("pc0", "s", 1, "h", "", 1, "until", "", None, (), ())
        self.say(wire.Join(wire.VERSION, (PYTHON,), *rows), wire.Heartbeat(None, ()))
        newest = list(self.witness.newest.items())
        self.say(wire.Finished(tuple(wire.Result(*attempt, 0, 0.0, FORGED, b"", b"") for attempt in newest)))
