"""Honest people beside an attack, each in a process of its own, so that the attacker's work is not in their figures.

    python -m tests.hostile.bystanders pinger FILE       asks for a sign of life every few milliseconds
    python -m tests.hostile.bystanders customer FILE     has bag after bag done, and checks every result

``FILE`` holds a join line. Each program runs until its input is closed, then prints its observations as JSON. The
pinger asks at fixed times, whether or not its earlier questions were answered. So if the broker stalls for a second,
all questions of that second show it.
"""

import json
import random
import secrets
import select
import sys
import time
from collections.abc import Callable

import zmq

from deskgrid import Grid, wire
from deskgrid.wire.joinline import read_join_line
from tests.chaos.book import gathered, work
from tests.pace import beat
from tests.peers import SocketLine
from tests.waiting import PATIENCE_S

# Between two pings, and between two looks at how long a beat is. Seconds.
PING_S = 0.015
BEAT_S = 0.1
# How long the last answers may take. Seconds.
LAST_S = 10.0
# A customer's bag: its tasks, the most that one takes, and what each is said to take: so long that it is given to no
# PC that is there for a moment. Seconds.
TASKS = 20
LONGEST_S = 0.02
SAID_S = 30.0


class Pinger:
    """``said``: each ping that was sent, and when it was answered, by request."""

    def __init__(self, line: SocketLine) -> None:
        self._line = line
        self._socket = line.socket
        self._session = secrets.token_hex(4)
        self.sent: dict[int, float] = {}
        self.answered: dict[int, float] = {}
        self._greet()

    def _greet(self) -> None:
        self._line.send(wire.encode(wire.Hello(wire.VERSION, self._session, "pinger")))

    def ping(self) -> None:
        """Ask."""
        request = len(self.sent) + 1
        self.sent[request] = time.monotonic()
        self._ask(request)

    def _ask(self, request: int) -> None:
        self._line.send(wire.encode(wire.Ask(request, "ping")))

    def hear(self) -> None:
        """Take what has come. Whoever is asked to come in again asks again, too."""
        while (data := self._line.receive(0.0)) is not None:
            now, message = time.monotonic(), wire.decode(data)
            if isinstance(message, wire.Answer):
                self.answered.setdefault(message.request, now)
            elif isinstance(message, wire.Rejoin | wire.Goodbye):
                self._greet()
                for request in self.unanswered:
                    self._ask(request)
            elif not isinstance(message, wire.Greeting):
                raise AssertionError(f"a ping is answered with {message}")

    @property
    def unanswered(self) -> list[int]:
        return [request for request in self.sent if request not in self.answered]

    def rows(self) -> list[tuple[float, float]]:
        """When each was sent, and how long it took; those without an answer have taken until now."""
        now = time.monotonic()
        return [(at, self.answered.get(request, now) - at) for request, at in self.sent.items()]


def ping(file: str, stopped: Callable[[], bool]) -> object:
    """Ping until ``stopped()``."""
    line = SocketLine(read_join_line(f"@{file}", "client"))
    try:
        pinger, due, beats = Pinger(line), time.monotonic(), list[tuple[float, float]]()
        while not stopped() or not beats:
            pinger.hear()
            if not beats or time.monotonic() >= beats[-1][0] + BEAT_S:
                beats.append((time.monotonic(), beat()))
            if time.monotonic() >= due:
                pinger.ping()
                due = max(due + PING_S, time.monotonic() - PING_S)
            line.socket.poll(max(0, int(1000 * (due - time.monotonic()))), zmq.POLLIN)
        until = time.monotonic() + LAST_S
        while pinger.unanswered and time.monotonic() < until:
            line.socket.poll(10, zmq.POLLIN)
            pinger.hear()
        return {"pings": pinger.rows(), "beats": beats}
    finally:
        line.close()


def buy(file: str, stopped: Callable[[], bool]) -> object:
    """Bag after bag until ``stopped()``; raises for a result that is wrong, missing, or there twice."""
    dice, ended = random.Random(1), list[float]()
    with Grid(f"@{file}", timeout=PATIENCE_S) as grid:
        while not stopped():
            items = [(item, dice.uniform(0.0, LONGEST_S)) for item in range(TASKS)]
            bag = grid.bag(work, items, runtime=SAID_S)
            assert gathered(bag) == TASKS
            ended.append(time.monotonic())
            bag.forget()
    return ended


ROLES: dict[str, Callable[[str, Callable[[], bool]], object]] = {"pinger": ping, "customer": buy}


def main(role: str, file: str) -> None:
    """Be that until standard input is closed. An empty line says that all is imported."""
    print(flush=True)

    def stopped() -> bool:
        return bool(select.select([sys.stdin], [], [], 0)[0])

    print(json.dumps(ROLES[role](file, stopped)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
