"""PCs that are off are woken when their window is open and work waits, and only then."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deskgrid import wire
from deskgrid.broker.auth.roles import Credential, Credentials, Known
from deskgrid.broker.port.wake import magic_packet, wake
from deskgrid.broker.work import waking
from deskgrid.broker.work.waking import AGAIN_S, LOOK_S
from deskgrid.windows.weekly import PlanError
from deskgrid.windows.windows_file import WINDOWS, read_tables, windows_file
from tests.broker.office import ADMIN, Office, OfficeLine
from tests.live import live_grid
from tests.peers import BareWorker
from tests.uptime.builders import at

HOUR = 3600.0
MAC = "00:1b:44:11:3a:b7"
PLAN = """
zone = "Europe/Brussels"
["lab-*"]
windows = "daily 9-17"
wake = "10.3.255.255"
["*"]
windows = "daily 9-17"
"""
EVERYBODY = ("10.3.255.255", 9)


def opened(folder: Path) -> Office:
    """A broker that starts at 8 o'clock on a Monday; PCs come at 9."""
    (folder / WINDOWS).write_text(PLAN)
    office = Office(folder, wall=at("2026-11-16T08:00").wall)
    office.sessions.state.windows_file = windows_file(folder)
    office.sessions.state.windows_file.refresh()
    return office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with closing(opened(tmp_path)) as office:
        yield office


def hang_up(office: Office, worker: BareWorker) -> None:
    """The connection has ended: the PC is off."""
    assert isinstance(worker.line, OfficeLine)
    office.sessions.gone(worker.line.peer)


def been(office: Office, name: str = "lab-1", **facts: Any) -> None:
    """A PC has been there, and was switched off."""
    worker = office.worker(name)
    worker.join(**{"mac": MAC} | facts)
    worker.send(wire.Leave("it ends", False, True, (), ()))
    hang_up(office, worker)


def woken(office: Office, now: float) -> list[tuple[str, tuple[str, int]]]:
    office.now = now
    office.settle()
    return office.sessions.state.take_wakes()


def test_a_pc_is_woken_when_its_window_opens_and_work_waits(office: Office) -> None:
    been(office)
    office.client().submit([b"0"])
    assert woken(office, 0.9 * HOUR) == [], "it is not nine yet"
    assert woken(office, HOUR + 1.0) == [(MAC, EVERYBODY)]
    (note,) = [line for line in office.sessions.state.take_notices() if line.startswith("pc-woken")]
    assert note == f"pc-woken name='lab-1' mac='{MAC}'"
    assert woken(office, HOUR + AGAIN_S - 1.0) == [], "it has some minutes to start"
    assert woken(office, HOUR + AGAIN_S + LOOK_S) == [(MAC, EVERYBODY)]


def test_nobody_is_woken_without_work(office: Office) -> None:
    been(office)
    assert woken(office, HOUR + 1.0) == []
    office.client().submit([b"0"])
    assert woken(office, HOUR + 2.0 + LOOK_S) == [(MAC, EVERYBODY)]


def test_a_pc_that_is_on_is_never_woken(office: Office) -> None:
    worker = office.worker("lab-1")
    worker.join(mac=MAC, uptime=0.0, windows=(wire.Window(HOUR, HOUR),))
    office.client().submit([b"0"])
    for step in range(1, 20):
        office.now = 300.0 * step
        worker.send(wire.Heartbeat(0.0, None))
        assert woken(office, 300.0 * step) == []


def test_only_pcs_whose_table_says_so_and_that_are_not_drained_are_woken(office: Office) -> None:
    drained = office.worker("lab-2")
    drained.join(mac=MAC)
    office.client(ADMIN).ask("drain", pcs=["lab-2"])
    drained.send(wire.Leave("it ends", False, True, (), ()))
    hang_up(office, drained)
    been(office, "other")
    been(office, mac="00:00:00:00:00:05")
    been(office, "lab-3", mac=None)
    guest = BareWorker(OfficeLine(office, ADMIN), "lab-9")
    guest.join(mac=MAC)
    guest.send(wire.Leave("it ends", False, True, (), ()))
    hang_up(office, guest)
    office.client().submit([b"0"])
    assert woken(office, HOUR + 1.0) == [("00:00:00:00:00:05", EVERYBODY)]


def test_a_room_is_not_woken_all_at_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "AT_ONCE", 2)
    for number in range(3):
        been(office, f"lab-{number}", mac=f"00:00:00:00:01:{number:02}")
    office.client().submit([b"0"])
    first = woken(office, HOUR + 1.0)
    assert [mac[-2:] for mac, _ in first + woken(office, HOUR + 2.0 + LOOK_S)] == ["00", "01", "02"]


def test_a_card_is_known_after_a_restart_and_forgotten_with_the_key(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as office:
        been(office)
        office.client().submit([b"0"])
        office.settle()
    with closing(opened(tmp_path)) as office:
        assert woken(office, HOUR + 1.0) == [(MAC, EVERYBODY)]
        office.sessions.state.revoked.append("lab-1")
        office.settle()
    with closing(opened(tmp_path)) as office:
        assert woken(office, HOUR + 1.0) == []


@pytest.mark.parametrize("rows", [[], [Known(Credential("lab-1", "worker"), revoked=True)]])
def test_a_card_is_forgotten_at_a_restart_if_the_key_is_gone(office: Office, rows: list[Known]) -> None:
    been(office)
    office.client().submit([b"0"])
    office.settle()
    state = office.sessions.state
    for known, wakes in ([Known(Credential("lab-1", "worker"))], 1), (rows, 0):
        state.credentials = cast(Credentials, SimpleNamespace(rows=lambda known=known: known))
        waking.Waking(state, {}).look(HOUR + 1.0)
        assert len(state.take_wakes()) == wakes


@pytest.mark.parametrize(
    "value", [1, "lab-server", "::1", "10.3.255.255:0", "10.3.255.255:x", "10.3.255.255:70000", []]
)
def test_where_packets_go_is_true_or_an_address(value: object) -> None:
    with pytest.raises(PlanError, match="wake: expected true, or an IPv4 address such as"):
        read_tables({"lab-*": {"windows": "daily 9-17", "wake": value}})


def test_true_is_the_network_of_the_broker_and_workers_are_told_nothing_of_it() -> None:
    windows = read_tables({"a*": {"windows": "daily 9-17", "wake": True}, "rest": {"closed": True, "wake": False}})
    assert (windows.wake_for("a1"), windows.wake_for("b"), windows.wakes) == (("255.255.255.255", 9), None, True)
    assert "wake" not in (windows.table_for("a1") or "")
    assert windows.describe().startswith("[a*] daily 9-17 (local time), woken")


class Unreachable(socket.socket):
    """No packet leaves this machine."""

    def sendto(self, *args: Any) -> int:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")


def test_the_packet_arrives_and_one_that_cannot_be_sent_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.0.0.1", 0))
        card.settimeout(30.0)
        wake(MAC, card.getsockname())
        packet = card.recv(1024)
    assert packet == magic_packet(MAC) == b"\xff" * 6 + bytes.fromhex("001b44113ab7") * 16
    monkeypatch.setattr(socket, "socket", Unreachable)
    wake(MAC, EVERYBODY)
    said = "not-woken mac=00:1b:44:11:3a:b7 address=10.3.255.255:9 reason='Network is unreachable'"
    assert [record.getMessage() for record in caplog.records] == [said]


def test_a_broker_wakes_a_pc_that_it_has_known(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.0.0.1", 0))
        card.settimeout(30.0)
        home = tmp_path / "broker"
        home.mkdir(mode=0o700)
        wakes = f'wake = "127.0.0.1:{card.getsockname()[1]}"'
        (home / WINDOWS).write_text(f'["lab-*"]\nwindows = "daily all day"\n{wakes}\n')
        with live_grid(home) as grid:
            worker = grid.bare_worker("lab-1")
            worker.join(mac=MAC)
            worker.send(wire.Leave("it ends", False, True, (), ()))
            worker.close()
            grid.client().submit([os.urandom(8)])
            assert card.recv(1024) == magic_packet(MAC)
