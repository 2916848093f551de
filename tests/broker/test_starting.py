"""Starting the server: what it prints and writes, and each reason why it does not start, in one line."""

import ipaddress
import os
import socket
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest

from deskgrid.broker import server as server_module
from deskgrid.broker.server import BrokerError
from deskgrid.broker.store.journal import NAME, Journal
from tests.broker.records import bag_row, batch_row, result_row
from tests.live import LiveBroker, live_grid


def refusal(home: Path, **options: Any) -> str:
    """Why a broker does not start."""
    broker = LiveBroker(home, **options)
    with pytest.raises(BrokerError) as error:
        broker.start()
    reason = str(error.value)
    assert reason.isprintable()
    return reason


def test_the_join_lines_are_in_the_home_for_its_owner_only(tmp_path: Path) -> None:
    with live_grid(tmp_path) as grid:
        ready = grid.broker.ready
        assert ready.home == tmp_path
        for name, line in (("worker.join", ready.worker_line), ("client.join", ready.client_line)):
            path = tmp_path / name
            assert path.read_text() == f"{line}\n"
            assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o600
        assert grid.broker.line("worker").port == grid.broker.line("client").port != 0


def test_lines_are_the_same_after_a_restart_and_written_anew(tmp_path: Path) -> None:
    with live_grid(tmp_path) as grid:
        before = grid.broker.ready
        grid.restart(meanwhile=(tmp_path / "worker.join").unlink)
        assert grid.broker.ready == before
        assert (tmp_path / "worker.join").read_text() == f"{before.worker_line}\n"


def test_the_advertised_host_is_in_the_lines(tmp_path: Path) -> None:
    with live_grid(tmp_path, advertise="lab-server.example") as grid:
        assert grid.broker.line("worker").host == "lab-server.example"
        assert grid.broker.ready.address.startswith("lab-server.example:")


def test_everywhere_is_advertised_as_an_address_that_others_can_dial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_EVERYWHERE", ("127.0.0.1",))
    with live_grid(tmp_path) as grid:
        host = grid.broker.line("client").host
        assert host == server_module._own_address()
        assert ipaddress.ip_address(host).version == 4


def has_ipv6() -> bool:
    """Whether this machine has a loopback address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    with live_grid(tmp_path, listen="[::1]:0") as grid:
        grid.worker("pc1")
        status = grid.client().ask("status")
        assert status["broker"]["address"].startswith("[::1]:")
        assert [worker["name"] for worker in status["workers"]] == ["pc1"]


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with live_grid(tmp_path / "one") as grid:
        address = grid.broker.ready.address
        reason = refusal(tmp_path / "two", listen=address)
        assert reason.startswith(f"cannot listen on {address}: ")
        assert "in use" in reason
        assert grid.client().ask("bags") == {"bags": [], "after": None}


def test_a_home_in_use_is_said(tmp_path: Path) -> None:
    with live_grid(tmp_path):
        assert "in use by another broker" in refusal(tmp_path)


@pytest.mark.parametrize("listen", ["", "7077", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:x"])
def test_an_address_that_is_none_is_said(tmp_path: Path, listen: str) -> None:
    assert "an address is HOST:PORT" in refusal(tmp_path / "home", listen=listen)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("listen", ["no-such-host.invalid:0", "192.0.2.7:0"])
def test_an_address_that_is_not_ours_is_said(tmp_path: Path, listen: str) -> None:
    assert f"cannot listen on {listen}: " in refusal(tmp_path, listen=listen)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"policy": "lottery"}, "no policy 'lottery'; there are: packing, pgs, longest, fcfs"),
        ({"policy_options": {"speed": 3}}, "policy 'packing'"),
        ({"policy": "pgs", "policy_options": {"order": "backwards"}}, "not 'backwards'"),
        ({"policy_options": {"margin": -1.0}}, "margin"),
    ],
)
def test_a_policy_that_cannot_be_is_said(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    assert reason in refusal(tmp_path / "home", **options)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "*:0", "[::]:0", "192.0.2.7:0", "lab-server:0"])
def test_without_encryption_it_listens_on_loopback_only(tmp_path: Path, listen: str) -> None:
    assert "--insecure is only for this machine" in refusal(tmp_path, listen=listen, insecure=True)


def test_a_local_socket_is_not_encrypted(tmp_path: Path) -> None:
    assert "give --insecure, too" in refusal(tmp_path, listen=f"ipc:{tmp_path}/socket")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such sockets for ZeroMQ")
def test_a_local_socket_is_only_in_a_folder_that_nobody_else_can_open(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    assert f"others can open {shared}" in refusal(tmp_path, listen=f"ipc:{shared}/socket", insecure=True)
    assert "cannot listen in /nowhere" in refusal(tmp_path, listen="ipc:/nowhere/socket", insecure=True)


def _file_as_home(home: Path) -> None:
    home.write_text("not a folder")


def _garbage_journal(home: Path) -> None:
    home.mkdir()
    (home / NAME).write_bytes(b"garbage" * 1000)


def _newer_journal(home: Path) -> None:
    with live_grid(home):
        pass
    with closing(sqlite3.connect(home / NAME)) as db:
        db.execute("UPDATE meta SET value = 999 WHERE key = 'format'")
        db.commit()


def _damaged_key(home: Path) -> None:
    with live_grid(home):
        pass
    (home / "keys" / "broker").write_bytes(b"cut")


def _ended_twice(home: Path) -> None:
    with closing(Journal(home)) as journal:
        journal.add_bag(bag_row(1))
        journal.add_batch(batch_row(0, 1, 0, 2), [b"", b""], 1e9)
        for _ in range(2):
            journal.add_results([result_row(0, b"")])
            journal.commit()


def _of_another_world(home: Path) -> None:
    with closing(Journal(home)) as journal:
        journal.add_bag(bag_row(1))
    with closing(sqlite3.connect(home / NAME)) as db:
        db.execute("UPDATE bags SET options = ?", (msgpack.packb({"colour": "red"}),))
        db.commit()


def _of_no_bag(home: Path) -> None:
    with closing(Journal(home)) as journal:
        journal.add_batch(batch_row(0, 1, 0, 2), [b"", b""], 1e9)


def _folder_as_join_line(home: Path) -> None:
    (home / "worker.join" / "x").mkdir(parents=True)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_file_as_home, "cannot use"),
        (_garbage_journal, "cannot use"),
        (_newer_journal, "format 999, of a later deskgrid; this one reads and writes "),
        (_damaged_key, "is not a key file; remove it"),
        (_folder_as_join_line, "directory"),
        (_ended_twice, "is damaged: the journal contradicts itself: the batch from 0 on is restored with tasks "),
        (_of_another_world, "is damaged: the options of the tasks of bag bag1 cannot be read: 'colour' is not known"),
        (_of_no_bag, "is damaged: the tasks from 0 on belong to no bag in the journal; put a copy of it in its place"),
    ],
)
def test_a_home_that_cannot_be_used_is_said(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    home = tmp_path / "home"
    damage(home)
    said = refusal(home)
    assert reason in said
    assert str(home) in said
