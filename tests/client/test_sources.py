"""Where the parts of a program's files and large objects are read from."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Iterable
from hashlib import sha256

import pytest

from deskgrid.client import sources
from deskgrid.client.sources import stored_pieces
from deskgrid.wire import LARGE_BYTES, PART_BYTES, Chunks, Payload
from tests.waiting import PATIENCE_S


def sent(pieces: list[memoryview]) -> list[Payload]:
    """The parts of a file in memory, without the tree."""
    *parts, _ = stored_pieces(pieces).parts.values()
    return [part.read() for part in parts]


def test_a_large_object_is_sent_from_where_it_is() -> None:
    data = bytearray(range(256)) * (PART_BYTES // 128)
    head = memoryview(b"head")
    for number, part in enumerate(sent([head, memoryview(data)])[:2]):
        assert isinstance(part, Chunks)
        assert len(part) == PART_BYTES
        assert [frame.obj for frame in part.frames()][-1] is data
        assert bytes(part) == (b"head" + data)[number * PART_BYTES :][:PART_BYTES]


@pytest.mark.parametrize("size", [100, LARGE_BYTES // 100, LARGE_BYTES // 10])
def test_many_small_pieces_travel_as_few(size: int) -> None:
    pieces = [memoryview(bytes([number % 256]) * size) for number in range(100)]
    part, *_ = sent(pieces)
    frames = [part] if isinstance(part, bytes) else part.frames()
    assert len(frames) < 20
    assert bytes(part) == b"".join(pieces)[:PART_BYTES]


# More parts than are hashed on one thread, and a rest.
LARGE = b"".join([bytes([number]) * PART_BYTES for number in range(9)]) + b"rest"
DIGESTS = [sha256(LARGE[start : start + PART_BYTES]).digest() for start in range(0, len(LARGE), PART_BYTES)]


def test_a_large_object_is_hashed_on_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, calls, at_once, digest_of = set[str](), itertools.count(), threading.Barrier(2), sources._digest_of

    def noted(part: Iterable[memoryview]) -> bytes:
        if next(calls) < 2:
            at_once.wait(PATIENCE_S)
        threads.add(threading.current_thread().name)
        return digest_of(part)

    monkeypatch.setattr(sources, "_digest_of", noted)
    *digests, _ = stored_pieces([memoryview(LARGE)]).parts
    assert digests == DIGESTS
    assert len(threads) > 1
    assert threading.current_thread().name not in threads


def test_a_large_object_is_hashed_while_its_program_ends() -> None:
    program = (
        "import atexit\n"
        "from deskgrid.client.sources import stored_pieces\n"
        "@atexit.register\n"
        "def late():\n"
        "    print(len(stored_pieces([memoryview(b'x' * 40_000_000)]).parts))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout.strip(), ended.stderr) == ("3", "")  # nine same parts, the rest, and the list
