"""Bare peers of a broker, for tests: they send exactly what a test tells them, byte by byte if necessary.

A peer uses a line: a real socket (`SocketLine`), or anything else that carries frames. Tests of the broker without
sockets have a line of their own.
"""

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import msgpack
import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from deskgrid import wire
from deskgrid.client.template import PYTHON
from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys
from tests.waiting import PATIENCE_S

# The program that every PC can run without the grid's help; it is not run where workers are bare.
COMMAND: bytes = msgpack.packb({"kind": "command", "argv": [sys.executable, "-c", "print(1)", "{}"]})
_HANDSHAKES = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)

# What may be said of all tasks of a batch.
OPTIONS = {"timeout", "retries", "checkpoint", "min_piece"}

_Answered = TypeVar("_Answered", bound=wire.Message)


class Line(Protocol):
    """What carries frames to and from a broker."""

    def send(self, data: bytes, *behind: bytes) -> None: ...

    def receive(self, seconds: float) -> bytes | None:
        """The next frame, or None when none comes within ``seconds``."""

    def close(self) -> None: ...


class SocketLine:
    """A connection by a join line, over a real socket. ``monitored``: whether `handshake` will be asked.

    ``most``: messages that are taken in before they are read; None: as many as ZeroMQ takes by itself.
    """

    def __init__(self, line: JoinLine, monitored: bool = False, most: int | None = None) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        if most is not None:
            self.socket.setsockopt(zmq.RCVHWM, most)
        # To a broker that turned the connection down a send would wait for ever.
        self.socket.setsockopt(zmq.SNDTIMEO, int(PATIENCE_S * 1000))
        self.socket.setsockopt(zmq.IPV6, int(line.host.startswith("[")))
        if line.keys is not None:
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, z85.encode(line.keys.server))
            self.socket.setsockopt(zmq.CURVE_PUBLICKEY, z85.encode(line.keys.public))
            self.socket.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(line.keys.secret))
        self._monitor = self.socket.get_monitor_socket(_HANDSHAKES) if monitored else None
        self.socket.connect(line.endpoint)

    def handshake(self, seconds: float = PATIENCE_S) -> int:
        """How the next handshake ends: one of `_HANDSHAKES`."""
        assert self._monitor is not None
        assert self._monitor.poll(int(seconds * 1000)), f"no handshake ended within {seconds} s"
        return int(parse_monitor_message(self._monitor.recv_multipart())["event"])

    def send(self, data: bytes, *behind: bytes) -> None:
        self.socket.send_multipart([data, *behind])

    def receive(self, seconds: float) -> bytes | None:
        if not self.socket.poll(int(seconds * 1000)):
            return None
        data, *more = self.socket.recv_multipart()
        return wire.encode(wire.decode(data, [memoryview(frame) for frame in more])) if more else data

    def close(self) -> None:
        if self._monitor is not None:
            self.socket.disable_monitor()
            self._monitor.close()
        self.socket.close()
        self._context.term()


def enrolled(lab: JoinLine, name: str) -> JoinLine:
    """The line of a PC of that name, which enrols by the lab's line now; without keys, that line."""
    if lab.keys is None:
        return lab
    public, secret = new_pair()
    peer = Peer(SocketLine(lab))
    try:
        peer.send(wire.Enrol(wire.VERSION, name, public))
        answer = peer.expect(wire.Enrolled)
        assert (answer.name, answer.public) == (name, public)
    finally:
        peer.close()
    return replace(lab, keys=Keys(lab.keys.server, public, secret))


class Peer:
    """One bare connection to a broker."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def close(self) -> None:
        """Hang up."""
        self.line.close()

    def send(self, *messages: wire.Message) -> None:
        for message in messages:
            self.line.send(*map(bytes, wire.frames_of(wire.parts_of(message))))

    def receive(self, seconds: float = PATIENCE_S) -> wire.Message:
        """The next message; fails when none comes."""
        data = self.line.receive(seconds)
        assert data is not None, f"nothing came within {seconds} s"
        return wire.decode(data)

    def expect(self, kind: type[_Answered]) -> _Answered:
        """The next message, which is of that kind."""
        message = self.receive()
        assert isinstance(message, kind), message
        return message

    def refusal(self) -> str:
        """Why the broker refuses; what else it sends before is dropped."""
        while True:
            if isinstance(message := self.receive(), wire.Refused):
                return message.reason


class Client(Peer):
    """A bare client; the methods wait for the answer."""

    def __init__(self, line: Line, python: str | None = None, greet: bool = True) -> None:
        super().__init__(line)
        self._request = 0
        if greet:
            try:
                self._greet(wire.Hello(wire.VERSION, secrets.token_hex(4), "ada"))
            except BaseException:
                self.close()
                raise

    def _greet(self, hello: wire.Hello) -> None:
        """Say it again when asked to: a broker that fails in this turn takes nothing from it, and begins anew."""
        self.send(hello)
        while isinstance(answer := self.receive(), wire.Rejoin):
            self.send(hello)
        assert isinstance(answer, wire.Greeting), answer

    def number(self) -> int:
        """For a new request."""
        self._request += 1
        return self._request

    def ask(self, what: str, **args: object) -> Any:
        """The answer to a question, out of JSON."""
        answer = self._answer(what, args)
        assert isinstance(answer, wire.Answer), answer
        return json.loads(answer.body)

    def failed(self, what: str, **args: object) -> str:
        """Why a question was not answered."""
        answer = self._answer(what, args)
        assert isinstance(answer, wire.Failed), answer
        return answer.reason

    def _answer(self, what: str, args: Mapping[str, object]) -> wire.Message:
        request = self.number()
        self.send(wire.Ask(request, what, wire.pack_record(args)))
        answer = self.receive()
        assert isinstance(answer, (wire.Answer, wire.Failed)), answer
        assert answer.request == request
        return answer

    def batch(self, bag: str, payloads: Sequence[bytes], **changes: Any) -> wire.Submit:
        """A batch that is a whole bag of commands of one second each, but for ``changes``."""
        fields: dict[str, Any] = {
            "name": "sweep",
            "template": sha256(COMMAND).hexdigest(),
            "first": 0,
            "runtime": 1.0,
            "runtimes": (),
            "options": wire.TaskOptions(**{name: changes.pop(name) for name in OPTIONS & changes.keys()}),
            "last": True,
        }
        sent = tuple(map(wire.payload_of, payloads))
        return wire.Submit(request=self.number(), bag=bag, payloads=sent, **fields | changes)

    def answer_to(self, submit: wire.Submit) -> wire.Accepted | wire.Failed:
        """What the broker says to a batch."""
        self.send(submit)
        answer = self.receive()
        assert isinstance(answer, (wire.Accepted, wire.Failed)), answer
        assert answer.request == submit.request
        return answer

    def submit(self, payloads: Sequence[bytes], template: bytes = COMMAND, **changes: Any) -> str:
        """Submit a bag, template first; its id."""
        bag, digest = secrets.token_hex(6), sha256(template).hexdigest()
        self.send(wire.Blob(digest, template))
        answer = self.answer_to(self.batch(bag, payloads, **{"template": digest} | changes))
        assert isinstance(answer, wire.Accepted), answer
        return bag

    def watch(self, bag: str, after: int = 0) -> wire.Outcomes:
        """What ended after ``after``, once there is something."""
        self.send(wire.Watch(self.number(), bag, after))
        return self.expect(wire.Outcomes)

    def results(self, bag: str) -> list[wire.BagResult]:
        """All results of a closed bag, in the order they were recorded, when it is complete."""
        found: list[wire.BagResult] = []
        outcomes = self.watch(bag)
        found += wire.results_in(outcomes)
        while outcomes.settled < outcomes.total or len(found) < outcomes.total:
            outcomes = self.watch(bag, outcomes.after)
            found += wire.results_in(outcomes)
        return found


class BareWorker(Peer):
    """A bare worker; ``session`` stays when it comes back over another connection."""

    def __init__(self, line: Line, name: str = "bare", session: str | None = None) -> None:
        super().__init__(line)
        self.name = name
        self.session = session or secrets.token_hex(8)
        self.opening = 0
        self._assigned: list[wire.Work] = []

    def introduction(self, **changes: Any) -> wire.Join:
        """An open-ended worker of one slot, but for ``changes``."""
        self.opening += 1
        fields: dict[str, Any] = {
            "version": wire.VERSION,
            "pythons": (PYTHON,),
            "name": self.name,
            "session": self.session,
            "opening": self.opening,
            "host": "lab3-07.example",
            "site": "lab3",
            "slots": 1,
            "kind": "open-ended",
            "plan": "open-ended",
            "uptime": None,
            "windows": (),
            "running": (),
        }
        return wire.Join(**fields | changes)

    def join(self, **changes: Any) -> wire.Welcome:
        """Be let in."""
        self.send(self.introduction(**changes))
        return self.expect(wire.Welcome)

    def work(self, count: int = 1) -> list[wire.Work]:
        """The next ``count`` attempts that are assigned; templates that come with them are dropped."""
        while len(self._assigned) < count:
            message = self.receive()
            assert self._is_work(message), message
        found, self._assigned = self._assigned[:count], self._assigned[count:]
        return found

    def finish(
        self,
        *work: wire.Work,
        payload: bytes = b"",
        outcome: wire.Outcome = wire.Outcome.DONE,
        elapsed: float = 0.5,
        waited: bool = False,
    ) -> wire.Taken:
        """Deliver results; the broker's receipt. Work that comes before that is kept for `work`."""
        told = wire.payload_of(payload)
        rows = tuple(wire.Result(w.task, w.number, int(outcome), elapsed, told, b"out", b"err", waited) for w in work)
        self.send(wire.Finished(rows))
        while not isinstance(message := self.receive(), wire.Taken):
            assert self._is_work(message), message
        return message

    def _is_work(self, message: wire.Message) -> bool:
        if isinstance(message, wire.Assign):
            self._assigned += message.work
        return isinstance(message, (wire.Assign, wire.Blob, wire.ShowOutput))
