"""Whatever peers with a key send, in any order, the broker answers with messages, and does not end.

Messages are drawn from few values, so that they often refer to earlier messages of other peers. The seed in the test's
name determines the conversation.
"""

import json
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential
from deskgrid.client.template import PYTHON
from deskgrid.wire import fields, needs
from deskgrid.wire.task_options import PackedOptions
from tests.broker.office import ADMIN, CLIENT, Office, OfficeLine
from tests.peers import COMMAND

DIGEST = sha256(COMMAND).hexdigest()
# The first attempt of a broker's first life.
ATTEMPT = 1 << 40
BAGS = ("b1", "b2", "b3")
FEW: dict[type, list[Any]] = {
    fields.Share: [0.0, 0.5, 1.0],
    fields.Real: [0.0, 1e-9, 0.5, 1.0, 5.0, 60.0, wire.SECONDS_LIMIT],
    fields.Line: ["pc1", "pc2", "pc1~2", *BAGS],
    fields.Word: [
        *("pc1", "pc2", "pc1~2", *BAGS, "ok", "ended", "lic=1", "lic=2", DIGEST, "3.11", "linux_x86_64"),
        "00:1b:44:11:3a:b7",
    ],
    fields.Document: ["{}"],
    fields.Data: [b"", b"\x90", COMMAND],
    fields.Digests: [b"", sha256(COMMAND).digest(), sha256(COMMAND).digest() + sha256(b"").digest()],
    fields.Flag: [True, False],
    fields.Ratio: [0.001, 0.5, 1.0, 1000.0],
    needs.LeastAndMost: [(1, 1), (1, 1), (2, 2), (1, 3), (3, 3)],
    needs.SpeedupField: [(), (), ("amdahl", 0.1), ("downey", 4.0, 0.5), ("table", 2, 1.9)],
}
NUMBERS = [0, 0, 0, 1, 1, 2, 3, 5, *range(ATTEMPT, ATTEMPT + 8), 2**63 - 1]
# What the broker looks at first is as it should be, or nothing would come of it.
RIGHT = {"version": wire.VERSION, "pythons": (PYTHON,), "template": DIGEST, "digest": DIGEST}
QUESTIONS = [
    *"status bags progress cancel cancel pause pause resume shares systems environments release".split(),
    *"explain logs logs forget forget policy runtimes weather".split(),
]
ODD: list[Any] = [
    None,
    0,
    1,
    -1,
    True,
    "",
    0.5,
    2**64 - 1,
    "\ud800",
    [0],
    [0, 0],
    [0, 1],
    [1.5],
    [1.5, 3],
    ["a"],
    [None],
    {},
]
OPTIONS = [
    *ODD,
    {"order": "fifo"},
    {"order": []},
    {"margin": 2.0},
    {"margin": "a"},
    {"name": "pgs"},
    {"queue_length": 0},
]


def drawn(field: Any, dice: Random) -> Any:
    """A value that a field may have."""
    match field:
        case fields.Integer(least=least, most=most):
            return dice.choice([number for number in NUMBERS if least <= number <= most])
        case fields.Optional(inner=inner):
            return None if dice.random() < 0.3 else drawn(inner, dice)
        case fields.Many(inner=inner):
            return tuple(drawn(inner, dice) for _ in range(dice.randint(0, 3)))
        case fields.Rows(kind=kind):
            return tuple(built(kind, dice) for _ in range(dice.randint(0, 3)))
        case PackedOptions():
            return replace(built(wire.TaskOptions, dice), after=dice.choice([(), (), (), BAGS[:1], BAGS[:2]]))
    few = FEW[type(field)]
    if isinstance(field, fields.Word):
        few = [word for word in few if field.pattern.fullmatch(word)]
    return dice.choice(few)


def built(kind: Any, dice: Random) -> Any:
    """A message or a row of a kind."""
    return kind(*[drawn(field, dice) for field in fields.fields_of(kind).values()])


def message(kind: type[wire.Message], dice: Random) -> wire.Message:
    """A message of a kind that has a chance to be taken."""
    if kind is wire.Ask:
        return wire.Ask(dice.randint(0, 3), dice.choice(QUESTIONS), _arguments(dice))
    made: Any = built(kind, dice)
    if isinstance(made, wire.Submit):
        count = dice.randint(0, 3)
        runtimes = tuple(dice.choice(FEW[fields.Real]) for _ in range(count)) if dice.random() < 0.3 else ()
        made = replace(made, bag=dice.choice(BAGS), payloads=(b"",) * count, runtimes=runtimes)
    if isinstance(made, wire.Join) and dice.random() < 0.95:
        made = replace(made, slots=dice.randint(1, 3))
    if isinstance(made, wire.FROM_BOTH):
        return _about_files(made, dice)
    right: wire.Message = replace(made, **{name: value for name, value in RIGHT.items() if hasattr(made, name)})
    return right


def _about_files(made: Any, dice: Random) -> wire.Message:
    """For a bag, or an attempt; a part is mostly what its digest says."""
    made = replace(made, holder=dice.choice([*BAGS, *(f"{dice.randint(0, 3)}.{ATTEMPT + n}" for n in range(4)), "1.2"]))
    if isinstance(made, wire.Offer):
        return made
    data = dice.choice([b"", COMMAND])
    made = replace(made, digest=sha256(data).digest() if dice.random() < 0.9 else b"short")
    said: wire.Message = replace(made, data=data) if isinstance(made, wire.Part) else made
    return said


def _arguments(dice: Random) -> bytes:
    args = {"bag": dice.choice([*BAGS, *BAGS, *BAGS, "none", 1]), "name": dice.choice(["pgs", "fcfs", "none", 1])}
    args |= {name: dice.choice(ODD) for name in ("item", "items", "runtimes") if dice.random() < 0.6}
    if dice.random() < 0.5:
        args["options"] = dice.choice(OPTIONS)
    return wire.pack_record(args)


PEERS = ("worker 1", "worker 2", "worker 3", "client 1", "client 2", "admin")


def _who(name: str) -> Credential:
    """By which key a peer speaks; a worker's is another one when it has another name."""
    if name.startswith("worker"):
        return Credential(name.replace(" ", ""), "worker")
    return ADMIN if name == "admin" else CLIENT


WHO = {name: _who(name) for name in PEERS}


class Talk:
    """One broker, the peers of each sort, and what they say."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.office = Office(home)
        self.lines = self._connected()

    def _connected(self) -> dict[str, OfficeLine]:
        lines = {name: OfficeLine(self.office, WHO[name]) for name in PEERS}
        for name in PEERS:
            if WHO[name].role != "worker":
                lines[name].send(wire.encode(wire.Hello(wire.VERSION, name.replace(" ", "-"), "ada")))
                lines[name].send(wire.encode(wire.Blob(DIGEST, COMMAND)))
        return lines

    def step(self, dice: Random) -> None:
        """Somebody says something, or time goes by, or the broker is started again."""
        what = dice.random()
        if what < 0.02:
            self.restart()
        elif what < 0.4:
            self.office.now += dice.choice([0.0, 0.0, 0.01, 1.0, 5.0, 11.0, 100.0])
            self.settle()
        else:
            name = dice.choice(PEERS)
            its = wire.FROM_WORKER if WHO[name].role == "worker" else wire.FROM_CLIENT
            kind = dice.choice((*its, *wire.FROM_BOTH))
            if kind is not wire.Goodbye or what > 0.95:
                said = message(kind, dice)
                if isinstance(said, wire.Join) and dice.random() < 0.9:
                    self.lines[name].who = Credential(said.name, "worker")
                self.lines[name].send(wire.encode(said))
        self.office.sessions.state.scheduler.check(self.office.now)

    def settle(self) -> None:
        """Whatever the broker says can be read by those who hear it, JSON included."""
        self.office.settle()
        for line in self.lines.values():
            for data in line.inbox:
                said = wire.decode(data)
                if isinstance(said, wire.Answer):
                    json.loads(said.body, parse_constant=pytest.fail)
            line.inbox.clear()

    def close(self) -> None:
        self.office.close()

    def restart(self) -> None:
        self.close()
        self.office = Office(self._home)
        self.lines = self._connected()


# 218: a prediction is doubled beyond the longest duration there is.
@pytest.mark.parametrize("seed", [*range(20), 218])
def test_no_conversation_ends_the_broker(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    with closing(Talk(tmp_path)) as talk:
        for _ in range(150):
            talk.step(dice)
        talk.settle()
