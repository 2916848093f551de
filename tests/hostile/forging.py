"""Hostile messages, drawn from a seed: valid messages of every kind, mutated field by field.

They are made from the declarations of the message classes (which `tests.fuzz.frames` reads), so new messages and fields
are attacked automatically. Special values for fields of known names only make messages that get further.

Rule 1: a message is a list of frames, as raw bytes. The encoder is our own, because the honest one refuses these
messages.
Rule 2: a forged worker never has a window that is open for more than a moment. A worker with work can answer as it
likes; that is tested in `tests/hostile/test_black_hole.py` and others.
"""

import copy
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgpack

from deskgrid import wire
from deskgrid.broker.auth.roles import Role
from deskgrid.client.template import PYTHON
from deskgrid.wire.questions import QUESTIONS
from tests.fuzz.frames import CHANGES, NUMBERS, SECONDS, WRONG, declared, whole

Frames = list[bytes]

# A large message in so many: most of what they cost is to send them.
LARGE_IN = 4_000
# How long a large one is, at most; bytes. Every other is as long as any may be.
LARGE = 72 * 2**20
# One message in so many is said again and again, so often.
AGAIN = {2: 100, 60: 4_000, 2_000: 40_000}
# How long a moment is: less than what any task is given. Seconds.
MOMENT_S = 0.001
# Lengths around every limit that somebody may have thought of.
LENGTHS = (0, 1, 2, 63, 64, 65, 127, 128, 254, 255, 256, 257, 1023, 1024, 1025, 4096, 65_535, 65_536, 2**20, 2**20 + 1)
DEPTHS = (1, 2, 10, 100, 511, 512, 513, 900, 1000, 1024, 1025, 5000)
TEXTS = (
    "\x1b[2J\x1b[1;1H\x1b]0;owned\x07",
    "\x00",
    "\r\n\tok 1 2 3\x7f\x9b31m",
    "\u202eevil\u2066\u2069",
    "\ud800",
    "\udfff\ud800",
    "e\u0301" * 200,
    "\U0001f4a9" * 300,
    "..",
    "/etc/passwd",
    "a/../../b",
    "%s%n{0}{x!r}",
    "'; DROP TABLE bags; --",
    "9" * 5000,
    "-1",
    "*",
    "[a-z",
    "\ufeff",
    " ",
)
# What a question may come with: names of arguments, whoever knows them, and what may stand there.
ARGUMENTS = (
    "bag",
    "item",
    "items",
    "runtimes",
    "running",
    "name",
    "options",
    "role",
    "public",
    "after",
    "first",
    "count",
)


@dataclass(frozen=True, slots=True)
class Known:
    """What an attacker knows of a grid: its own things, and what it has heard of others'."""

    bags: Sequence[str]
    digests: Sequence[str]
    names: Sequence[str]
    tasks: int

    def dumped(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class _Raw:
    """Bytes that stand in a message as they are."""

    data: bytes


_PACKER = msgpack.Packer(unicode_errors="surrogatepass")


def packed(value: Any) -> bytes:
    """``value`` as msgpack, `_Raw` inside it as it is, and texts that UTF-8 does not have."""
    if isinstance(value, _Raw):
        return value.data
    try:
        return bytes(_PACKER.pack(value))
    except (OverflowError, TypeError, ValueError):
        if isinstance(value, list):
            return _array(len(value)) + b"".join(map(packed, value))
        return b"\xcf" + b"\xff" * 8  # an integer that has no place in msgpack


def _array(count: int) -> bytes:
    return bytes([0x90 | count]) if count < 16 else b"\xdd" + struct.pack(">I", count)


def nested(depth: int, shape: str) -> _Raw:
    """Arrays, maps, or both by turns, in each other."""
    inside = {"arrays": b"\x91", "maps": b"\x81\xa1a", "both": b"\x91\x81\xa1a", "keys": b"\x81"}[shape]
    return _Raw(inside * depth + b"\xc0" * (depth + 1 if shape == "keys" else 1))


def many(count: int, each: bytes = b"\x90") -> _Raw:
    """An array of ``count`` values: of empty arrays, a byte each."""
    return _Raw(b"\xdd" + struct.pack(">I", count) + each * count)


def account(*parts: Any) -> bytes:
    """What a worker says of a failure."""
    return packed(list(parts))


# The name of the PC that means harm: whoever joins under another one is not let in.
MALLORY = "mallory-worker"
# What each role says.
KINDS: dict[Role, Sequence[type[wire.Message]]] = {
    "lab": wire.FROM_LAB,
    "worker": (*wire.FROM_WORKER, *wire.FROM_BOTH),
    "submitter": (*wire.FROM_CLIENT, *wire.FROM_BOTH),
    "admin": (*wire.FROM_CLIENT, *wire.FROM_BOTH),
}


class Forger:
    """Messages of whoever has the key of ``role``, without end."""

    def __init__(self, seed: int, role: Role, known: Known, *, large: bool = True) -> None:
        self.dice = random.Random(seed)
        self.known = known
        self._role = role
        self._kinds: Sequence[type[wire.Message]] = KINDS[role]
        self._large = large
        self._session = f"mallory{seed}"
        self._request = 0
        self._changes: list[Callable[[Any], Any]] = [
            self._other_type,
            self._number,
            self._text,
            self._length,
            self._depth,
            self._promise,
            self._extension,
            self._columns,
        ]
        self._by_name: dict[str, Callable[[], Any]] = {
            "version": lambda: wire.VERSION,
            "python": lambda: PYTHON,
            "name": self._pc,
            "public": lambda: self.dice.randbytes(32),
            "session": lambda: self._session,
            "opening": self._next,
            "request": self._next,
            "watch": lambda: self._one_of((0, self._request)),
            "slots": lambda: self._one_of((1, 2, 1024)),
            "uptime": lambda: self._one_of((0.0, MOMENT_S)),
            "bag": self._bag,
            "digest": lambda: self._one_of(self.known.digests),
            "template": lambda: self._one_of(self.known.digests),
            "first": lambda: 0,
            "runtime": lambda: self._one_of((None, 1.0)),
            "runtimes": list,
            "what": lambda: self._one_of([*QUESTIONS]),
            "args": self._arguments,
            "payload": self._payload,
            "payloads": lambda: [self._payload() for _ in range(self.dice.randint(1, 3))],
            "data": self._template,
        }

    # --- messages ----------------------------------------------------------------------------------------------------

    def introduction(self) -> Frames:
        """Whoever says this is let in."""
        if self._role == "lab":
            return [packed([wire.MESSAGES.index(wire.Enrol), wire.VERSION, self._pc(), self.dice.randbytes(32)])]
        if self._role != "worker":
            return [packed(self._valid(wire.Hello))]
        said = self._valid(wire.Join)
        said[1 + wire.Join.__slots__.index("name")] = MALLORY
        return [packed(said)]

    def script(self) -> Iterator[Frames]:
        """What is said on one connection: the introduction mostly, and mostly first; then anything, of which none or
        much is refused while it is decoded; a goodbye somewhere."""
        dice = self.dice
        if dice.random() < 0.95:
            yield self.introduction()
        dirty = dice.random() < 0.5
        length = dice.randint(100, 800)
        for _ in range(length):
            frames = self._forged()
            while not dirty and not _is_decoded(frames):
                frames = self._forged()
            yield from [frames] * self._times(frames)
            if dice.random() < 0.02:
                yield self.introduction()

    def _times(self, frames: Frames) -> int:
        if sum(map(len, frames)) > 10_000:
            return 1
        return next((count for count, rarely in reversed(AGAIN.items()) if self.dice.random() * rarely < 1), 1)

    def _forged(self) -> Frames:
        dice = self.dice
        kinds = self._kinds if dice.random() < 0.9 else wire.MESSAGES
        kind = self._one_of(kinds)
        values = self._valid(kind) if dice.random() < 0.9 else whole(dice)
        if self._large and dice.random() * LARGE_IN < 1:
            return self._with_large(values)
        behind: Frames = []
        for _ in range(dice.choice((0, 0, 1, 1, 1, 2, 3))):
            behind = self._mutate(values) or behind
        self._tame(kind, values)
        data = packed(values)
        if dice.random() < 0.05:
            data = dice.choice(CHANGES)(data, dice) or b"\0"
        return [data, *behind]

    def _valid(self, kind: Any) -> list[Any]:
        tag = wire.MESSAGES.index(kind)
        values = whole(self.dice, tag)
        for place, name in enumerate(declared(kind), 1):
            if name in self._by_name:
                values[place] = self._by_name[name]()
        return values

    def _tame(self, kind: Any, values: list[Any]) -> None:
        """Rule 2."""
        for place, name in enumerate(declared(kind), 1):
            if name != "uptime" or place >= len(values):
                continue
            value = values[place]
            if value is None or (isinstance(value, int | float) and 0.0 <= value <= wire.SECONDS_LIMIT):
                values[place] = MOMENT_S

    # --- mutations ---------------------------------------------------------------------------------------------------

    def _mutate(self, values: list[Any]) -> Frames:
        """Change one value, at any depth; the frames that belong behind the message then."""
        if not values:
            return []
        dice, inside = self.dice, values
        place = dice.randrange(1, len(values)) if len(values) > 1 and dice.random() < 0.98 else 0
        while isinstance(inside[place], list) and inside[place] and dice.random() < 0.7:
            inside = inside[place]
            place = dice.randrange(len(inside))
        if isinstance(inside[place], bytes) and dice.random() < 0.2:
            inside[place], behind = self._outside()
            return behind
        if dice.random() < 0.05:
            self._miscount(inside, place)
        else:
            inside[place] = self._changed(inside[place])
        return []

    def _changed(self, value: Any) -> Any:
        """Something else; half of the time of the same type, so that it is not refused for that."""
        dice = self.dice
        if dice.random() < 0.5:
            if type(value) in (int, float):
                kept = [number for number in (*NUMBERS, *SECONDS) if type(number) is type(value)]
                return dice.choice(kept)
            if isinstance(value, str | bytes | list):
                return self._length(value) if isinstance(value, list) or dice.random() < 0.5 else self._text(value)
        return dice.choice(self._changes)(value)

    def _other_type(self, value: Any) -> Any:
        return self._one_of((*WRONG, True, {1: 2}, {"kind": "python"}, [None] * 3, msgpack.Timestamp(1)))

    def _number(self, value: Any) -> Any:
        return self._one_of((*NUMBERS, *SECONDS, 5e-324, 1e308, float("-inf"), 2**62, 10**30, -(10**30)))

    def _text(self, value: Any) -> Any:
        text = self._one_of(TEXTS)
        return text.encode(errors="surrogatepass") if isinstance(value, bytes) else text

    def _length(self, value: Any) -> Any:
        length = self._one_of(LENGTHS if self.dice.random() < 0.05 else LENGTHS[:-8])
        if isinstance(value, list):
            return [value[0] if value else self._one_of(WRONG)] * min(length, 4096)
        return b"x" * length if isinstance(value, bytes) else "x" * length

    def _depth(self, value: Any) -> Any:
        raw = nested(self._one_of(DEPTHS), self._one_of(("arrays", "maps", "both", "keys")))
        return raw.data if isinstance(value, bytes) else raw

    def _promise(self, value: Any) -> Any:
        lengths = struct.pack(">I", self._one_of((1, 2**16, 2**24, 2**31, 2**32 - 1)))
        return _Raw(bytes([self._one_of((0xC6, 0xC9, 0xDB, 0xDD, 0xDF))]) + lengths)

    def _extension(self, value: Any) -> Any:
        return msgpack.ExtType(self._one_of((0, 1, 2, 127)), bytes(self._one_of((0, 1, 4, 7, 8, 9, 16, 300))))

    def _columns(self, value: Any) -> Any:
        """Columns of unequal length, too many of them, or of rows that are none."""
        if not isinstance(value, list):
            return many(self._one_of((1, 100, 10_000)))
        dice = self.dice
        columns = [column * dice.randint(0, 3) if isinstance(column, list) else [column] for column in value]
        return columns + [[1]] * dice.choice((0, 1, 5)) if columns else [[1]] * dice.randint(1, 9)

    def _miscount(self, inside: list[Any], place: int) -> None:
        if self.dice.random() < 0.5:
            inside += [self._one_of(WRONG)] * self.dice.choice((1, 2, 50))
        else:
            del inside[place]

    def _outside(self) -> tuple[Any, Frames]:
        """What stands for a large payload, and frames that are that, or are not."""
        dice = self.dice
        size = dice.choice((0, 1, 2**20, 2**20, 2**20 + 1, 2**40, 2**63, 2**64 - 1))
        whole_frames = [bytes(min(size, 2**20))] * (size < 2**21)
        behind = dice.choice(([], whole_frames, whole_frames, [b"x"], [b""] * 300, [*whole_frames, b"", b"more"]))
        return msgpack.ExtType(dice.choice((1, 1, 1, 2)), size.to_bytes(8, "big")), behind

    def _with_large(self, values: list[Any]) -> Frames:
        """One value is very large."""
        dice = self.dice
        size = dice.choice((2**20, 2**22, 30 * 2**20, LARGE - 2**20))
        shapes: tuple[Callable[[], Any], ...] = (
            lambda: many(size),
            lambda: many(size // 2, b"\x91\x90"),
            lambda: many(size, b"\x80"),
            lambda: many(size // 3, b"\xa2ab"),
            lambda: "n" * size,
            lambda: bytes(size),
            lambda: many(size // 9, b"\xcb" + struct.pack(">d", 1.0)),
            lambda: _Raw(b"\xdf" + struct.pack(">I", size // 2) + b"\x01\x90" * (size // 2)),
        )
        if len(values) > 1:
            values[dice.randrange(1, len(values))] = dice.choice(shapes)()
        return [packed(values)]

    # --- values that get further -------------------------------------------------------------------------------------

    def _one_of(self, values: Sequence[Any]) -> Any:
        # What is chosen may be changed: without a copy, a list would be put into itself some day.
        return copy.deepcopy(self.dice.choice(values))

    def _next(self) -> int:
        self._request += 1
        return self._request

    def _pc(self) -> str:
        """The name of a PC: with a lab's line mostly of one that there is not yet."""
        if self._role == "lab" and self.dice.random() < 0.8:
            return f"evil{self.dice.randrange(100_000)}"
        return str(self._one_of(self.known.names))

    def _bag(self) -> str:
        """Of its own a few, for each is done work for; others', and ones that there are not."""
        own = f"{self._session}-{self.dice.randrange(20)}" if self.dice.random() < 0.98 else f"{self.dice.random()}"
        return str(self._one_of((own, own, *self.known.bags)))

    def _payload(self) -> bytes:
        """An argument, a result or an account of a failure."""
        dice = self.dice
        deep = nested(self._one_of(DEPTHS), self._one_of(("arrays", "maps", "both")))
        parts: tuple[Any, ...] = (
            self._one_of(TEXTS),
            self._one_of(WRONG),
            deep,
            b"\x80\x04x.",
            2**64 - 1,
            {"a": {}},
            [1, [2]],
            None,
        )
        return bytes(
            self._one_of(
                (
                    b"",
                    deep.data,
                    b"\x80\x05\x95\xff",
                    b"cposix\n",
                    packed({"kind": 1, "message": [2]}),
                    *[account(*dice.choices(parts, k=dice.choice((0, 1, 3, 4, 4, 4, 4, 5))))] * 5,
                )
            )
        )

    def _template(self) -> bytes:
        dice = self.dice
        table = {
            "kind": self._one_of(("python", "command", "python", "x", 1, None)),
            "python": self._one_of((PYTHON, "2.7", 3)),
            "function": self._payload(),
            "bundle": self._one_of(({}, {"../x.py": b"x"}, {"a": {}}, {"/tmp/x": b""}, [], None, {1: 2})),
            "argv": self._one_of((["true"], [], [""], "true", [1], None, ["\0"], ["true"] * 5000)),
        }
        for name in dice.sample(sorted(table), dice.randint(0, 3)):
            del table[name]
        return packed(table) if dice.random() < 0.8 else self._payload()

    def _arguments(self) -> bytes:
        """A packed map, or nearly."""
        dice = self.dice
        if dice.random() < 0.1:
            deep = dice.choice(DEPTHS) * 20
            bag, end = b"\x81\xa3bag", b"\xc0"
            return dice.choice(
                (b"", end, b"\x91" * deep, bag * deep, b"\x91" * deep + end, b"\xff" * 5000, bag, b"\x80\x80")
            )
        deep_list: Any = 0
        for _ in range(dice.choice((1, 10, 300))):
            deep_list = [deep_list]
        values: tuple[Any, ...] = (
            None,
            True,
            0,
            -1,
            1.5,
            2**64 - 1,
            1e308,
            "",
            "0",
            [],
            [0],
            [-1],
            [0] * 3000,
            {},
            {"a": 1},
            deep_list,
        )
        given = {name: self._one_of(values) for name in dice.sample(ARGUMENTS, dice.randint(0, 6))}
        if dice.random() < 0.8:
            given["bag"] = self._bag()
        if dice.random() < 0.3:
            given[dice.choice(ARGUMENTS)] = self._one_of((*TEXTS, float("nan"), float("inf"), "x" * 70_000))
        return wire.pack_record(given)


def _is_decoded(frames: Frames) -> bool:
    """Whether it is a message; large ones are not tried here."""
    data, *behind = frames
    if len(data) > 100_000:
        return True
    try:
        wire.decode(data, [memoryview(frame) for frame in behind])
    except wire.ProtocolError:
        return False
    return True
