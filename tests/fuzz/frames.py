"""Mutated frames, drawn from a seed: messages of every kind, changed as a broken or clever peer could change them.

    python -m tests.fuzz.frames --count 1000000 --seed 1        what ``make soak`` runs

Rule: `decode` returns a message, which can be encoded and decoded again to the same message, or raises `ProtocolError`.
It does nothing else, and leaks no memory.
"""

import argparse
import gc
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgpack

from deskgrid import wire
from deskgrid.wire import fields
from deskgrid.wire.task_options import PackedOptions, read_task_options

# Values at the edges of what the codec distinguishes.
NUMBERS: tuple[Any, ...] = (0, 1, 127, 128, 255, 256, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -(2**63))
SECONDS: tuple[Any, ...] = (0.0, 1e-300, 0.5, 1e10, 1.0000001e10, float("nan"), float("inf"), -0.0, -1.0)
WRONG: tuple[Any, ...] = (*NUMBERS, *SECONDS, None, True, "", "x", "é" * 40, b"", b"x" * 300, [], [[]], {}, {"a": 1})
# First bytes of msgpack that promise much: arrays, maps, texts and bytes of any length, timestamps, a reserved one.
PROMISES = bytes([0xC1, 0xC4, 0xC6, 0xC7, 0xC9, 0xCF, 0xD3, 0xD6, 0xD9, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF, 0x9F, 0x8F])
# Between two looks at the memory: the first is a warm-up.
LOOKS = 10
# Blocks that the interpreter may have more at the last look than at the second: its own, some caches.
BLOCKS = 200

Change = Callable[[bytes, random.Random], bytes]


@dataclass(slots=True)
class Fuzzed:
    """What came of it."""

    inputs: int = 0
    messages: int = 0
    blocks: int = 0

    def __str__(self) -> str:
        taken = f"{self.messages:,} were messages, the others refused"
        return f"{self.inputs:,} inputs, {taken}; no crash, {self.blocks:+} blocks of memory"


# For each pattern of a field, a word that it allows.
WORDS = ("3.12", "d" * 64, "b1", "matlab=1", "ok", "linux_x86_64", "00:1b:44:11:3a:b7")


@cache
def declared(kind: Any) -> dict[str, Any]:
    """What each field of a message or a row may be, in their order."""
    return fields.fields_of(kind)


def _value(field: Any, dice: random.Random) -> Any:
    """Something that a field may be."""
    made: Any
    match field:
        case fields.Optional(inner=inner):
            made = None if dice.random() < 0.3 else _value(inner, dice)
        case fields.Many(inner=inner):
            made = [_value(inner, dice) for _ in range(dice.randint(0, 3))]
        case fields.Rows(kind=kind):
            made = _columns(kind, dice.randint(0, 3), dice)
        case fields.Integer(least=least, most=most):
            made = min(most, max(least, dice.getrandbits(dice.choice([3, 8, 33, 63]))))
        case fields.Real(most=most):
            made = dice.uniform(0.0, min(most, 1e4))
        case fields.Flag():
            made = dice.random() < 0.5
        case fields.Word(pattern=pattern):
            made = next(word for word in WORDS if pattern.fullmatch(word))
        case fields.Line() | fields.Document():
            made = "".join(dice.choices("aé☃x ", k=dice.randint(0, 9)))
        case PackedOptions():
            options = declared(wire.TaskOptions)
            made = packed({name: _value(options[name], dice) for name in options if dice.random() < 0.5})
        case fields.Digests():
            made = dice.randbytes(32 * dice.randint(0, 3))
        case _:
            made = dice.randbytes(dice.randint(0, 20))
    return made


def _columns(kind: Any, count: int, dice: random.Random) -> list[Any]:
    """``count`` rows as they travel."""
    lengths = [count, *(dice.choice([1, count]) for _ in [*declared(kind)][1:])]
    columns = zip(declared(kind).values(), lengths, strict=True)
    return [[_value(field, dice) for _ in range(length)] for field, length in columns] if count else []


def whole(dice: random.Random, tag: int | None = None) -> list[Any]:
    """The values of a message as they are packed; of any kind, or of that ``tag``."""
    tag = dice.randrange(len(wire.MESSAGES)) if tag is None else tag
    kind: Any = wire.MESSAGES[tag]
    return [tag, *(_value(field, dice) for field in declared(kind).values())]


def packed(values: Any) -> bytes:
    """A message as it is sent, whatever its values are."""
    return bytes(msgpack.packb(values))


def _with_wrong_value(values: list[Any], dice: random.Random) -> bytes:
    place, inside = dice.randrange(len(values)), values
    while isinstance(inside[place], list) and inside[place] and dice.random() < 0.7:
        inside = inside[place]
        place = dice.randrange(len(inside))
    inside[place] = dice.choice(WRONG)
    return packed(values)


def _with_other_length(values: list[Any], dice: random.Random) -> bytes:
    place = dice.randint(0, len(values))
    return packed(
        values[:place] + [dice.choice(WRONG)] * dice.choice([0, 1, 40]) + values[place + dice.choice([0, 1]) :]
    )


def _flipped(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]


def _promised(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(data))
    return data[:place] + bytes([dice.choice(PROMISES)]) + dice.randbytes(dice.randint(0, 4)) + data[place + 1 :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def _doubled(data: bytes, dice: random.Random) -> bytes:
    place, length = dice.randrange(len(data)), dice.randint(1, 30)
    return data[:place] + data[place : place + length] * dice.randint(2, 5) + data[place + length :]


def _random(data: bytes, dice: random.Random) -> bytes:
    return dice.randbytes(dice.randint(0, 40))


CHANGES: tuple[Change, ...] = (_flipped, _flipped, _promised, _cut, _doubled, _random)


def frames(seed: int) -> Iterator[bytes]:
    """Mutated frames without end."""
    dice = random.Random(seed)
    while True:
        values = whole(dice)
        way = dice.random()
        if way < 0.4:
            yield (_with_wrong_value if way < 0.25 else _with_other_length)(values, dice)
            continue
        data = packed(values)
        for _ in range(dice.randint(1, 3)):
            data = dice.choice(CHANGES)(data, dice) or b"\0"
        yield data


def taken(data: bytes) -> bool:
    """Whether `decode` takes it; raises when it does anything but take or refuse it."""
    try:
        message = wire.decode(data)
    except wire.ProtocolError:
        return False
    again = wire.decode(wire.encode(message))
    if again != message:
        raise AssertionError(f"{data!r} is {message}, and that is read back as {again}")
    return True


def fuzz(seed: int, count: int) -> Fuzzed:
    """Try ``count`` frames; raises when anything crashes, with the frame, or when memory grows."""
    fuzzed, source, before = Fuzzed(), frames(seed), 0
    for look in range(LOOKS):
        for data in (next(source) for _ in range(count // LOOKS)):
            try:
                fuzzed.messages += taken(data)
            except Exception as error:
                raise AssertionError(f"seed {seed}, input {fuzzed.inputs}: {data!r}: {error!r}") from error
            fuzzed.inputs += 1
        # Options that were read are remembered, a bounded number of them: that is no leak.
        read_task_options.cache_clear()
        gc.collect()
        if look == 1:
            before = sys.getallocatedblocks()
    fuzzed.blocks = sys.getallocatedblocks() - before
    assert fuzzed.blocks < BLOCKS, f"{fuzzed.blocks} blocks of memory more than at the beginning"
    return fuzzed


def main() -> None:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frames", description="Mutated frames for the codec.")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(f"fuzzed, seed {asked.seed}: {fuzz(asked.seed, asked.count)}")


if __name__ == "__main__":
    main()
