"""What ``deskgrid doctor`` finds on a PC that is well, and on one that is not."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest
from click.testing import Result

from deskgrid.wire.dealer import new_pair
from deskgrid.wire.joinline import JoinLine, Keys
from deskgrid.worker.identities import Identities, PcIdentity
from deskgrid.worker.pc import checks
from deskgrid.worker.pc.checks import Finding
from tests.cli.fakes import deskgrid
from tests.live import live_grid
from tests.waiting import eventually

Usage = namedtuple("Usage", "total used free")


def identity(home: Path, port: int, host: str = "127.0.0.1") -> JoinLine:
    """This PC has a key that no broker knows."""
    public, secret = new_pair()
    line = JoinLine("worker", host, port, Keys(new_pair()[0], public, secret))
    Identities(home).keep(PcIdentity("lab3-07", line))
    return line


def to_do(home: Path) -> list[str]:
    """What is not well, and what to do; the exit code says whether there is something."""
    result = deskgrid("doctor", "--home", str(home))
    found = [line.partition("do    ")[2] for line in result.stdout.splitlines() if line.startswith("do ")]
    found = [line for line in found if not line.startswith("clock")]  # the machine of these tests may have another
    assert result.exit_code in ((1,) if found else (0, 1))
    return found


def test_a_pc_that_has_joined_is_well_and_one_whose_key_was_forgotten_is_told_to_enrol(tmp_path: Path) -> None:
    with live_grid(tmp_path / "broker") as grid:
        worker = grid.start_worker("lab3-07")
        assert grid.joined(worker)
        (home,) = {path.parents[3] for path in tmp_path.rglob("lab3-07.join")}
        assert to_do(home) == []
        known = Identities(home).choose(None, None)
        assert known is not None
        assert [each.state for each in checks.key(known.line, known.name)] == ["well", "well"]
        late = list(checks.key(known.line, known.name, lambda: time.time() - 3630.0))
        assert late[1].said.startswith("it is 1 h 00 min behind that of the broker: set the one that is wrong")
        (path,) = home.rglob("lab3-07.join")
        server = Identities(home).choose(None, None)
        assert server is not None
        public, secret = new_pair()
        stranger = JoinLine("worker", server.line.host, server.line.port, Keys(server.keys.server, public, secret))
        path.write_text(f"{stranger}\n")
        (said,) = to_do(home)
        assert said == "key      the broker does not know it: enrol again, with deskgrid worker --join LINE"


def test_without_a_home_or_a_key_it_says_how_to_join(tmp_path: Path) -> None:
    (said,) = to_do(tmp_path / "none")
    assert said.endswith(f"is not there: join a grid with deskgrid worker --home {tmp_path / 'none'} --join LINE")
    assert to_do(tmp_path) == [f"key      this PC has none: run deskgrid worker --home {tmp_path} --join LINE"]


def test_a_closed_port_and_a_name_that_does_not_resolve_are_told(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        identity(tmp_path / "a", port)
        (said,) = to_do(tmp_path / "a")
    assert said.startswith(f"port     127.0.0.1:{port} cannot be reached (Connection refused)")
    identity(tmp_path / "b", 7077, "no-such-host.invalid")
    (said,) = to_do(tmp_path / "b")
    assert said.startswith("address  no-such-host.invalid does not resolve")


def test_another_program_on_the_port_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "PATIENCE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as other:
        line = identity(tmp_path, other.getsockname()[1])
        (found,) = checks.key(line, "lab3-07")
        assert found.said.endswith("does not answer as this grid's broker: is another program there?")


def test_two_identities_have_to_be_told_apart(tmp_path: Path) -> None:
    identity(tmp_path, 7077)
    identity(tmp_path, 7078)
    (said,) = to_do(tmp_path)
    assert "choose one with --broker and --name" in said


def test_a_full_disk_and_a_home_of_somebody_else_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 2**40, 2**20))
    assert checks.disk(tmp_path) == Finding("disk", "do", f"0.0 GiB are free in {tmp_path}: make room")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert checks.folder(tmp_path).state == "do"


@pytest.mark.parametrize(
    ("told", "state"), [(b"NTPSynchronized=yes", "well"), (b"NTPSynchronized=no", "do"), (b"", "note")]
)
def test_the_clock_is_well_if_it_is_synchronised(monkeypatch: pytest.MonkeyPatch, told: bytes, state: str) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda command, **how: subprocess.CompletedProcess(command, 0, b"Timezone=UTC\n%b\n" % told)
    )
    assert checks.clock().state == state


def test_a_clock_that_is_years_behind_is_told_and_one_that_nobody_knows_of_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert checks.clock(lambda: 0.0).said.startswith("it is before the day when deskgrid was installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks.clock().state == "note"


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the shell")
def test_a_program_of_the_system_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "timedatectl"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(checks, "PATIENCE_S", 0.2)
    assert checks.clock().state == "note"


def test_an_environment_whose_python_is_gone_is_told(tmp_path: Path) -> None:
    unit, program = tmp_path / "unit", tmp_path / "venv" / "deskgrid"
    program.parent.mkdir()
    unit.write_text(f"[Service]\nExecStart={program} worker\n")
    (found,) = checks.program([unit, tmp_path / "none"])
    assert (found.state, str(program) in found.said) == ("do", True)
    program.touch()
    (program.parent / "python").symlink_to(tmp_path / "removed")
    (found,) = checks.program([unit])
    assert (found.state, "python is gone" in found.said) == ("do", True)
    (program.parent / "python").unlink()
    (found,) = checks.program([unit])
    assert found.state == "well"


def test_python_has_to_be_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.python().state == "well"
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    assert checks.python().said == "3.9.2 is too old: install Python 3.11 or later"


@pytest.mark.parametrize(("nested", "how"), [("Y", "with"), ("0", "without")])
def test_virtual_machines_are_told(tmp_path: Path, nested: str, how: str) -> None:
    assert checks.nested(tmp_path, tmp_path / "kvm").state == "note"
    (tmp_path / "kvm").touch()
    (tmp_path / "kvm_intel/parameters").mkdir(parents=True)
    (tmp_path / "kvm_intel/parameters/nested").write_text(f"{nested}\n")
    assert checks.nested(tmp_path, tmp_path / "kvm").said.endswith(f", {how} nested virtual machines")


def test_without_control_groups_there_is_a_note(tmp_path: Path) -> None:
    assert checks.groups(tmp_path).state == "note"


def test_probes_of_the_owner_are_part_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "what_probes_say", lambda: {"X11": "idle for 3 min", "battery": "not in use"})
    assert Finding("owner", "note", "X11: idle for 3 min; battery: not in use") in list(
        checks.findings(tmp_path, None, None)
    )


def test_the_server_shows_what_the_workers_of_all_pcs_have_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checks, "LEAST_ROOM", 1 << 80)
    with live_grid(tmp_path / "broker") as grid:
        for name in ("lab3-07", "lab4-01"):
            assert grid.joined(grid.start_worker(name, checks=name == "lab3-07"))
        monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "broker"))

        def told(*more: str) -> Result:
            return deskgrid("doctor", "--all", *more)

        assert eventually(lambda: "make room" in told().stdout, 30.0)
        result = told()
        title, *rows = result.stdout.splitlines()
        assert title.split() == ["PC", "WHAT", "CHECKED", "SAID"]
        assert ["lab3-07", "do", "disk"] in [row.split()[:3] for row in rows]
        assert not any("owner" in row.split() for row in told("--notes").stdout.splitlines())
        assert result.stderr == "deskgrid: something to do on 1 of 2 PCs; 1 not checked yet\n"
        assert (result.exit_code, told("lab4-*").exit_code) == (1, 0)
        assert told("lab4-*").stderr == "deskgrid: nothing to do on 1 PC; 1 not checked yet\n"
        assert told("lib-*").stderr == "deskgrid: no PC that has joined has a name like lib-*\n"


def test_what_belongs_to_all_pcs_and_what_to_this_one_is_not_mixed(tmp_path: Path) -> None:
    assert "--all takes no --home" in deskgrid("doctor", "--all", "--home", str(tmp_path)).stderr
    for wrong in (["lab3-*"], ["--notes"], ["--join", "x"]):
        assert "need --all" in deskgrid("doctor", *wrong).stderr
