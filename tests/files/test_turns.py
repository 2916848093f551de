"""Work with files is done in steps and in turns: what one attempt left, however much, holds up no other."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import wire
from deskgrid.worker.files import background as background_module
from deskgrid.worker.files import task_folder
from deskgrid.worker.files.background import Background, Dropped, TookTooLong
from deskgrid.worker.files.turns import Turns
from tests.files.fakes import digest, entry
from tests.files.test_stage import Rig, failure
from tests.waiting import PATIENCE_S, eventually

ZEROS = bytes(wire.PART_BYTES)


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background(lambda: None)
    yield made
    made.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.background.poll()


def done(background: Background, found: list[Any], count: int = 1) -> bool:
    """Whether so many results have been passed on, after some time at most."""

    def looked() -> bool:
        background.poll()
        return len(found) >= count

    return eventually(looked, PATIENCE_S)


def test_holders_take_turns_and_what_is_one_holders_stays_in_order() -> None:
    turns = Turns[int]()
    turns.add("a", [1, 2, 3])
    turns.add("b", [4])
    turns.put_back("b", 5)
    assert [turns.take() for _ in range(3)] == [("a", 1), ("b", 5), ("a", 2)]
    turns.drop("a")
    assert list(turns) == [4]
    assert turns.take() == ("b", 4)
    assert not turns
    with pytest.raises(KeyError):
        turns.take()


def test_what_takes_long_lets_others_have_their_turns(background: Background) -> None:
    other = threading.Event()
    found = list[Any]()

    def long() -> Iterator[None]:
        while not other.is_set():
            yield

    background.do(long, lambda end: found.append("long"), "5.1")
    background.do(other.set, lambda end: found.append("short"), "6.1")
    assert done(background, found, 2)
    assert found == ["short", "long"]


def test_what_takes_long_ends_when_it_is_dropped_and_lets_go_of_its_files(background: Background) -> None:
    begun, closed = threading.Event(), threading.Event()
    found = list[Any]()

    def endless() -> Iterator[None]:
        try:
            while True:
                begun.set()
                yield
        finally:
            closed.set()

    work = background.do(endless, found.append, "5.1")
    assert begun.wait(PATIENCE_S)
    work.drop()
    assert done(background, found)
    assert isinstance(found[0], Dropped)
    assert closed.is_set()


def test_what_takes_too_long_ends(background: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_module, "LIMIT_S", 0.0)
    found = list[Any]()

    def endless() -> Iterator[None]:
        while True:
            yield

    background.do(endless, found.append)
    assert done(background, found)
    assert isinstance(found[0], TookTooLong)


def test_a_worker_that_ends_does_not_wait_for_what_takes_long(background: Background) -> None:
    begun, closed = threading.Event(), threading.Event()

    def endless() -> Iterator[None]:
        try:
            while True:
                begun.set()
                yield
        finally:
            closed.set()

    background.do(endless, lambda end: None)
    assert begun.wait(PATIENCE_S)
    background.close()
    assert closed.is_set()


def test_what_a_stopped_attempt_left_is_not_read_to_its_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.command("*")
    rig.run(0)
    rig.go()
    (rig.work(0) / "big").write_bytes(os.urandom(3 * wire.PART_BYTES))
    read, reading = list[int](), task_folder._read_part

    def stopping(descriptor: int, place: int) -> bytes:
        read.append(place)
        rig.stage.stop(0, 0.0)
        return reading(descriptor, place)

    monkeypatch.setattr(task_folder, "_read_part", stopping)
    rig.processes.end(0)
    rig.go()
    assert read == [0]
    assert rig.ended == []


def test_reading_and_writing_that_takes_too_long_fails_the_task(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.command("*")
    rig.run(0)
    rig.go()
    (rig.work(0) / "big").write_bytes(os.urandom(wire.PART_BYTES + 1))
    monkeypatch.setattr(background_module, "LIMIT_S", 0.0)
    rig.processes.end(0)
    rig.say()
    assert failure(rig.ended[0]).kind == "OutputsRefused"
    assert "minutes of reading and writing" in failure(rig.ended[0]).message


def test_a_small_result_does_not_wait_for_a_large_one(rig: Rig) -> None:
    rig.command("*")
    for task, size in ((0, 20 * wire.PART_BYTES), (1, 1)):
        rig.run(task)
        rig.go()
        (rig.work(task) / "a").write_bytes(os.urandom(size))
    rig.processes.end(0)
    for message in rig.say():
        rig.hear(rig.store.answer(message))
    rig.processes.end(1)
    while not rig.ended:
        for message in rig.say():
            rig.hear(rig.store.answer(message))
    assert [each.task for each in rig.ended] == [1]
    assert len(rig.store.kept) < 10
    rig.go()
    assert [each.task for each in rig.ended] == [1, 0]


def test_a_task_with_one_file_does_not_wait_for_one_with_hundreds(rig: Rig) -> None:
    rig.command(inputs={f"{number}": str(number).encode() for number in range(300)})
    rig.run(0)
    for _ in range(3):
        for message in rig.say():
            rig.hear(rig.store.answer(message))
    rig.processes.templates["other"] = rig.processes.templates["command"]
    rig.command(inputs={"small": b"small"})
    rig.stage.run(1, [rig.job(1)])
    while 1 not in rig.ran:
        for message in rig.say():
            rig.hear(rig.store.answer(message))
    assert rig.ran == [1]
    rig.go()
    assert rig.ran == [1, 0]


# --- holes -----------------------------------------------------------------------------------------------------------


def test_parts_of_zeros_are_neither_fetched_nor_written(rig: Rig) -> None:
    data = ZEROS + b"data" + ZEROS[4:] + ZEROS + b"\0" * 9
    rig.command(inputs={"a": data})
    rig.run(0)
    rig.go()
    assert rig.ran == [0]
    assert (rig.work(0) / "a").read_bytes() == data
    assert digest(ZEROS) not in rig.store.sent
    if hasattr(os, "SEEK_DATA"):
        assert (rig.work(0) / "a").stat().st_blocks * 512 <= 2 * wire.PART_BYTES


@pytest.mark.skipif(sys.platform == "win32", reason="there is no os.pwrite there")
def test_what_was_written_where_zeros_should_be_is_written_over(rig: Rig) -> None:
    file = entry("a", ZEROS + b"1")
    partial = rig.cache.begin(file)
    assert partial is not None
    os.pwrite(partial._descriptor, b"x", 5)
    assert len(list(partial.look())) == 2
    assert partial.missing == [0, 1]
    partial.close()


def test_files_that_do_not_fit_on_the_disk_are_not_begun(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 2 * wire.PART_BYTES

    monkeypatch.setattr("shutil.disk_usage", lambda folder: Usage)
    tree = rig.store.add({f"{number}": str(number).encode() * wire.PART_BYTES for number in range(3)})
    rig.processes.templates["command"] = rig.processes.templates["plain"]
    rig.run(0, "plain", wire.wrap([tree], b"x"))
    rig.go()
    (ended,) = rig.ended
    assert ended.outcome is wire.Outcome.NO_ROOM
    assert "there is room for" in wire.read_failure(ended.payload).message
    assert rig.store.sent == [tree]
