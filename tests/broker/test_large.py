"""Large arguments and results on a real grid: through files of the broker, across its restarts, on a full disk."""

import errno
import os
import threading
from pathlib import Path

import msgpack
import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import ANYBODY
from deskgrid.broker.port import value_writer as value_writer_module
from deskgrid.broker.port.value_writer import ValueWriter
from deskgrid.broker.server import BrokerError
from deskgrid.broker.store import files
from deskgrid.broker.store.disk import RESERVE_BYTES
from deskgrid.broker.store.files import FOLDER
from deskgrid.broker.store.journal import Journal
from deskgrid.client.grid import Grid
from deskgrid.errors import BagRejected
from deskgrid.wire.joinline import parse_join_line
from tests.live import live_grid
from tests.peers import Client, SocketLine
from tests.waiting import eventually

# One that is read, and one that is mapped.
VALUES = [os.urandom(size) for size in (wire.LARGE_BYTES, wire.BATCH_BYTES + 3)]


def on_disk(home: Path) -> list[Path]:
    return [*(home / FOLDER).iterdir()]


def test_they_get_there_and_back_wait_through_a_restart_and_go_with_their_bag(tmp_path: Path) -> None:
    with live_grid(tmp_path) as live, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(bytes.swapcase, [*VALUES, b"small"], runtime=0.1)
        live.restart()
        live.worker()
        assert bag.results() == [data.swapcase() for data in [*VALUES, b"small"]]
        assert [grid.submit(bytes.swapcase, data).result() for data in VALUES] == [data.swapcase() for data in VALUES]
        assert len(on_disk(tmp_path)) == 8
        assert grid.attach(bag.id).results()[0] == VALUES[0].swapcase()
        bag.forget()
        assert eventually(lambda: len(on_disk(tmp_path)) == 4)


def test_a_function_with_large_data_in_it_runs_and_its_file_goes_with_its_bag(tmp_path: Path) -> None:
    large = VALUES[1]

    def part(start: int) -> bytes:
        return large[start : start + 3]

    with live_grid(tmp_path) as live, Grid(live.broker.ready.client_line) as grid:
        bag = grid.bag(part, [5, len(large) - 3], runtime=0.1)
        live.restart()
        live.worker()
        assert bag.results() == [large[5:8], large[-3:]]
        assert [path.stat().st_size > len(large) for path in on_disk(tmp_path)] == [True]
        bag.forget()
        assert eventually(lambda: not on_disk(tmp_path))


def test_a_large_template_under_a_digest_that_is_not_its_own_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with live_grid(tmp_path) as live:
        client = Client(SocketLine(parse_join_line(live.broker.ready.client_line, "client")))
        template = wire.payload_of(msgpack.packb({"kind": "command", "argv": ["x" * 2**21]}))
        client.send(wire.Blob("d" * 64, template))
        assert client.expect(wire.Refused).reason == "that is not a template, or it was damaged in transit"
        assert eventually(lambda: not on_disk(tmp_path))
        client.close()


def test_on_a_full_disk_they_are_refused_and_what_was_accepted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _data: memoryview) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with live_grid(tmp_path) as live, Grid(live.broker.ready.client_line) as grid:
        small = grid.bag(bytes.swapcase, [b"small"], runtime=0.1)
        with monkeypatch.context() as patch:
            patch.setattr(files, "_write", full)
            with pytest.raises(BagRejected, match="is full"):
                grid.bag(bytes.swapcase, VALUES)
            assert not on_disk(tmp_path)
        live.worker()
        assert small.results() == [b"SMALL"]
        assert eventually(lambda: grid.status()["broker"]["disk"] == "ok")
        assert grid.submit(bytes.swapcase, VALUES[0]).result() == VALUES[0].swapcase()


def test_a_large_one_without_room_is_refused_alone_and_the_disk_of_the_others_is_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "free", lambda _: (RESERVE_BYTES + len(VALUES[0]), 2**40))
    monkeypatch.setattr(files.Files, "write", lambda *_: pytest.fail("it was written"))
    with live_grid(tmp_path) as live, Grid(live.broker.ready.client_line) as grid:
        with pytest.raises(BagRejected, match="has no room for"):
            grid.bag(bytes.swapcase, [VALUES[0] + VALUES[1]])
        small = grid.bag(bytes.swapcase, [b"small"], runtime=0.1)
        assert grid.status()["broker"]["disk"] == "ok"
        live.worker()
        assert small.results() == [b"SMALL"]


def test_a_broker_whose_file_is_harmed_while_it_runs_ends_and_says_so(tmp_path: Path) -> None:
    with live_grid(tmp_path) as live, Grid(live.broker.ready.client_line) as grid:
        grid.bag(bytes.swapcase, VALUES[:1])
        (path,) = on_disk(tmp_path)
        path.unlink()
        live.start_worker()
        error = live.broker.failure()
        assert isinstance(error, BrokerError)
        assert str(error).startswith(f"{tmp_path} is damaged: file {FOLDER}/{path.name}: No such file")


# --- while they are written -------------------------------------------------------------------------------------------


class Disk:
    """Writes nothing before it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.woken = threading.Event()
        self.value_writer = ValueWriter([self._keep], self.woken.set)

    def _keep(self, _value: wire.Chunks) -> None:
        self.let.wait()

    def put(self, peer: bytes, message: wire.Message) -> bool:
        return self.value_writer.put(peer, ANYBODY, message, wire.large_of(message))


def finished(task: int) -> wire.Finished:
    payload = wire.payload_of(VALUES[0])
    return wire.Finished((wire.Result(task, 1, 0, 0.5, payload, b"", b""),))


def test_what_a_peer_says_behind_them_waits_and_nobody_else_does() -> None:
    disk, leave = Disk(), wire.Goodbye("later")
    try:
        assert not disk.put(b"a", leave)
        first, second = finished(1), finished(2)
        assert [disk.put(b"a", message) for message in (first, leave, second)] == [True] * 3
        assert not disk.put(b"b", leave)
        assert (b"a" in disk.value_writer, b"b" in disk.value_writer) == (True, False)
        assert not list(disk.value_writer.ready())
    finally:
        disk.let.set()
        disk.value_writer.close()
    assert disk.woken.is_set()
    assert [arrival.message for arrival in disk.value_writer.ready()] == [first, leave, second]
    assert b"a" not in disk.value_writer


def test_no_more_large_values_are_heard_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_writer_module, "INTAKE_LIMIT", len(VALUES[0]))
    disk = Disk()
    try:
        disk.put(b"a", finished(1))
        assert not disk.value_writer.has_room(b"b", "ann", large=True)
        assert disk.value_writer.has_room(b"b", "ann", large=False)
    finally:
        disk.let.set()
        disk.value_writer.close()
    assert len([*disk.value_writer.ready()]) == 1
    assert disk.value_writer.has_room(b"b", "ann", large=True)


def test_one_credential_cannot_take_all_the_room_of_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_writer_module, "CREDENTIAL_LIMIT", len(VALUES[0]))
    disk = Disk()
    try:
        disk.put(b"a", finished(1))
        assert not disk.value_writer.has_room(b"another of its", ANYBODY.name, large=True)
        assert disk.value_writer.has_room(b"b", "ann", large=True)
    finally:
        disk.let.set()
        disk.value_writer.close()


def test_behind_a_large_value_only_so_many_messages_of_a_peer_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_writer_module, "ARRIVALS_LIMIT", 2)
    disk = Disk()
    try:
        for message in (finished(1), wire.Goodbye("later")):
            assert disk.value_writer.has_room(b"a", ANYBODY.name, large=False)
            assert disk.put(b"a", message)
        assert not disk.value_writer.has_room(b"a", ANYBODY.name, large=False)
        assert disk.value_writer.has_room(b"b", ANYBODY.name, large=False)
    finally:
        disk.let.set()
        disk.value_writer.close()
