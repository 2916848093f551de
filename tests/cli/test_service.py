"""``deskgrid service``: the files that it writes, what it refuses, and what services tell systemd."""

import os
import plistlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from deskgrid.cli import service
from deskgrid.cli.lifetime import Notifier
from deskgrid.service.files import Service, What
from deskgrid.wire.joinline import JoinLine, Keys
from tests.cli.fakes import deskgrid

LINE = str(JoinLine("worker", "lab", 7077, Keys(b"s" * 32, b"p" * 32, b"x" * 32)))
SECRET = LINE.rpartition("/")[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the service of a user of Linux")


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a systemd that writes down what it is told; the file."""
    told = tmp_path / "told"
    (tmp_path / "bin").mkdir()
    ctl = tmp_path / "bin" / "systemctl"
    ctl.write_text(f'#!/bin/sh\necho "$@" >> {told}\ntest ! -e {tmp_path}/broken || {{ echo no bus >&2; exit 1; }}\n')
    ctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(service, "SYSTEMD", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    return told


def test_a_service_of_a_user_is_installed_shown_and_removed_and_its_line_is_private(
    systemd: Path, tmp_path: Path
) -> None:
    result = deskgrid("service", "install", "--user", "--join", LINE, "--", "--slots", "2")
    assert result.exit_code == 0, result.stderr
    unit = tmp_path / ".config/systemd/user/deskgrid-worker.service"
    line = tmp_path / "home" / "service.join"
    assert f"worker --home {tmp_path}/home --join @{line} --slots 2\n" in unit.read_text()
    assert SECRET not in unit.read_text() + result.stdout
    assert (line.read_text(), line.stat().st_mode & 0o777) == (f"{LINE}\n", 0o600)
    assert "enable-linger" in result.stderr
    again = deskgrid("service", "install", "--user")
    assert (again.exit_code, again.stderr) == (
        2,
        f"deskgrid: deskgrid-worker is installed already, in {unit}: first run deskgrid service uninstall worker\n",
    )
    assert deskgrid("service", "status", "--user").exit_code == 0
    (tmp_path / "broken").touch()
    assert deskgrid("service", "status", "--user").exit_code == 1
    assert "systemctl --user restart deskgrid-worker failed" in deskgrid("service", "restart", "--user").stderr
    refused = deskgrid("service", "uninstall", "--user")
    assert refused.stderr == "deskgrid: systemctl --user disable --now deskgrid-worker failed: no bus\n"
    (tmp_path / "broken").unlink()
    assert deskgrid("service", "restart", "--user").stdout == "restarted deskgrid-worker\n"
    assert systemd.read_text().splitlines()[-1] == "--user restart deskgrid-worker"
    assert deskgrid("service", "uninstall", "--user").stdout == f"removed {unit}\n"
    assert not unit.exists()
    assert deskgrid("service", "uninstall", "--user").exit_code == 2
    assert deskgrid("service", "restart", "--user").exit_code == 2
    assert deskgrid("service", "status", "--user").exit_code == 1
    assert systemd.read_text().splitlines()[:2] == ["--user daemon-reload", "--user enable --now deskgrid-worker"]


def test_a_program_of_the_system_that_hangs_is_told(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "systemctl").write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(service, "CONTROL_S", 0.2)
    said = deskgrid("service", "install", "--user").stderr
    assert "systemctl --user daemon-reload has not ended within" in said


def test_the_service_of_another_user_is_left_alone(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = tmp_path / ".config/systemd/user/deskgrid-worker.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    monkeypatch.setattr(os, "geteuid", lambda: unit.stat().st_uid + 1)
    assert deskgrid("service", "install", "--user").stderr == f"deskgrid: {unit} belongs to another user\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--system"], "a service for the whole machine is for root: use sudo, or --user for one of your own"),
        (["--user"], "this machine does not run systemd: --print shows the unit, for another way to start it"),
        (["--print", "--", "--join", "x"], "give --join before --, so that it is kept in a file"),
        (["--kind", "launchd"], "--kind needs --print"),
        (["--system", "--print", "--kind", "windows"], "on Windows, a service is for you alone"),
        (["broker", "--system", "--print", "--kind", "launchd"], "on macOS, the service of a broker is for you alone"),
        (["nobody"], "'nobody' is neither worker nor broker"),
        (["broker", "--join", LINE], "a broker joins nothing"),
    ],
)
def test_what_cannot_be_installed_is_refused(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(service, "SYSTEMD", tmp_path / "none")
    result = deskgrid("service", "install", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not systemd.exists()
    assert SECRET not in result.stderr


def test_the_broker_of_a_machine_needs_its_account(systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(service, "BROKER_USER", "nobody-has-this-name")
    assert "make it with useradd" in deskgrid("service", "install", "broker", "--system").stderr


@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("what", ["worker", "broker"])
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_units_and_calls_the_broker_of_a_machine_ok(
    tmp_path: Path, what: What, system: bool
) -> None:
    unit = tmp_path / f"deskgrid-{what}.service"
    unit.write_text(Service(what, [sys.executable, "a b", "50%", "$x"], system).text("systemd"))
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    strict = what == "broker" and system
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={25 if strict else 100}", str(unit)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_words_with_a_meaning_are_quoted() -> None:
    unit = Service("worker", ["/x/deskgrid", "--run-as", "task-%", "a b", 'c"d', "$e", ""], True).text("systemd")
    assert 'ExecStart=/x/deskgrid --run-as task-%% "a b" "c\\"d" $$e ""\n' in unit


def test_launchd_and_windows_get_what_they_can_read() -> None:
    command = ["/x/deskgrid", "worker", "--site", "a & b"]
    facts = plistlib.loads(Service("worker", command, False).text("launchd").encode())
    assert facts["ProgramArguments"] == command
    root = ElementTree.fromstring(Service("worker", command, False).text("windows").partition("?>")[2])
    texts = {element.tag.partition("}")[2]: element.text for element in root.iter()}
    assert (texts["Command"], texts["Arguments"]) == ("/x/deskgrid", 'worker --site "a & b"')
    printed = deskgrid("service", "install", "--print", "--kind", "windows", "--user").stdout
    assert "LogonTrigger" in printed


def test_a_service_says_that_it_is_ready_and_then_that_it_is_alive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.setblocking(False)
        notify = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "0"})
        notify()
        notify()
        notify.stopping()
        assert [heard.recv(99) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]
        slow = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000000"})
        slow()
        slow()
        assert heard.recv(99) == b"READY=1"
        with pytest.raises(BlockingIOError):
            heard.recv(99)
        other = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "0", "WATCHDOG_PID": "1"}
        child = Notifier(other)
        child()
        child()
        assert heard.recv(99) == b"READY=1"
        with pytest.raises(BlockingIOError):
            heard.recv(99)


def test_without_systemd_nothing_is_said(tmp_path: Path) -> None:
    Notifier({})()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})()
    Notifier({}).stopping()
