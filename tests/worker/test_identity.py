"""A PC's identity, with real processes: what it needs to come back, who is turned away, and what nobody else sees."""

import os
import pickle
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from deskgrid.broker.auth.keys import KeyRing
from deskgrid.cli.hiding import without
from deskgrid.worker import agent
from deskgrid.worker.identities import Identities
from deskgrid.worker.windows.uptime import Until
from tests.executor.rig import call, command_template, python_template
from tests.live import LiveGrid, live_grid
from tests.waiting import PATIENCE_S
from tests.worker.machine import worker_process

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of processes")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path / "broker") as started:
        yield started


def options(place: Path, name: str = "lab3-07") -> list[str]:
    return ["--home", str(place / "pc"), "--name", name, "--slots", "1"]


def value_of(live: LiveGrid, template: bytes, *payloads: bytes) -> Any:
    """What a task returns."""
    client = live.client()
    (result,) = client.results(client.submit(payloads or [call()], template, runtime=0.1))
    assert result.outcome == 0, result
    return pickle.loads(bytes(result.payload))


# --- coming back -----------------------------------------------------------------------------------------------------


def test_after_its_first_join_a_worker_needs_no_line(live: LiveGrid, tmp_path: Path) -> None:
    log, line = tmp_path / "log", live.broker.ready.worker_line
    with worker_process(log, "--join", line, *options(tmp_path)) as first:
        assert first.joined()
    live.admin().ask("keys enrol", on=False)
    live.admin().ask("keys revoke", name="worker")
    live.restart()
    with worker_process(log, "--home", str(tmp_path / "pc"), "--slots", "1") as again:
        assert again.joined(2)
        assert value_of(live, python_template(lambda: 42)) == 42
    assert live.client().ask("status")["workers"] == []


def test_a_line_that_was_replaced_is_no_reason_to_stay_away(live: LiveGrid, tmp_path: Path) -> None:
    log, line = tmp_path / "log", live.broker.ready.worker_line
    with worker_process(log, "--join", line, *options(tmp_path)) as first:
        assert first.joined()
    live.admin().ask("keys revoke", name="worker")
    with worker_process(log, "--join", line, *options(tmp_path)) as again:
        assert again.joined(2)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no permission bits")
def test_its_identity_is_its_users_only(live: LiveGrid, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with worker_process(tmp_path / "log", "--join", live.broker.ready.worker_line, *options(tmp_path)) as worker:
            assert worker.joined()
    finally:
        os.umask(before)
    (file,) = (tmp_path / "pc").rglob("*.join")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pc").rglob("*") if path.is_file()} == {0o600}
    folders = [file.parent, file.parent.parent, tmp_path / "pc"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, *folders)] == [0o600, 0o700, 0o700, 0o700]
    file.chmod(0o640)
    with worker_process(tmp_path / "log2", *options(tmp_path)) as again:
        assert again.ends() == 2
        assert f"{file} can be read by others: chmod 600 {file}" in again.said


def test_a_worker_of_two_grids_asks_which_and_is_told_by_the_address(live: LiveGrid, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with live_grid(tmp_path / "other") as other:
        for grid in (live, other):
            with worker_process(log, "--join", grid.broker.ready.worker_line, *options(tmp_path)) as worker:
                assert worker.joined(1 + (grid is other))
        with worker_process(tmp_path / "log2", "--home", str(tmp_path / "pc")) as asks:
            assert asks.ends() == 2
        (line,) = asks.said.splitlines()
        addresses = [grid.broker.ready.address for grid in (live, other)]
        assert all(f"lab3-07 at {address}" in line for address in addresses)
        with worker_process(log, "--home", str(tmp_path / "pc"), "--broker", addresses[1]) as told:
            assert told.joined(3)
            assert [row["state"] for row in other.client().ask("status")["workers"]] == ["up"]


def test_without_an_identity_a_worker_asks_for_the_line(tmp_path: Path) -> None:
    with worker_process(tmp_path / "log", "--home", str(tmp_path / "pc")) as worker:
        assert worker.ends() == 2
        (line,) = worker.said.splitlines()
        assert "the first time, give --join with the line that the broker printed" in line


def test_without_an_identity_a_worker_on_the_brokers_machine_hears_that_it_needs_no_line(
    live: LiveGrid, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "worker.join").write_text(live.broker.ready.worker_line, encoding="utf-8")
    with worker_process(tmp_path / "log", "--home", str(tmp_path / "pc"), DESKGRID_HOME=str(home)) as worker:
        assert worker.ends() == 2
        (line,) = worker.said.splitlines()
        assert f"for this machine's own broker, give --broker {live.broker.ready.address}" in line


# --- being turned away -----------------------------------------------------------------------------------------------


def test_another_pc_with_the_labs_line_cannot_take_its_name(live: LiveGrid, tmp_path: Path) -> None:
    line = live.broker.ready.worker_line
    with worker_process(tmp_path / "log", "--join", line, *options(tmp_path)) as worker:
        assert worker.joined()
    live.restart()
    with worker_process(tmp_path / "log2", "--join", line, *options(tmp_path / "thief")) as thief:
        assert thief.ends() == 2
        assert "lab3-07 is enrolled with another key: `deskgrid keys forget lab3-07`" in thief.said
    assert not [path for path in (tmp_path / "thief").rglob("*") if path.is_file()]
    live.admin().ask("keys forget", name="lab3-07")
    with worker_process(tmp_path / "log2", "--join", line, *options(tmp_path / "thief")) as reinstalled:
        assert reinstalled.joined()


def test_a_revoked_pc_ends_and_cannot_enrol_again_until_it_is_forgotten(live: LiveGrid, tmp_path: Path) -> None:
    log, line = tmp_path / "log", live.broker.ready.worker_line
    with worker_process(log, "--join", line, *options(tmp_path)) as worker:
        assert worker.joined()
        live.admin().ask("keys revoke", name="lab3-07")
        assert worker.ends() == 2
        assert "revoked" in worker.said  # the broker says so, or does not let it in again, whichever comes first
    with worker_process(tmp_path / "log2", *options(tmp_path)) as again:
        assert again.ends() == 2
        assert "does not know this PC's key: was it revoked or forgotten?" in again.said
    with worker_process(tmp_path / "log3", "--join", line, *options(tmp_path)) as again:
        assert again.ends() == 2
        assert "lab3-07 was revoked: only `deskgrid keys forget lab3-07` frees the name" in again.said
    live.admin().ask("keys forget", name="lab3-07")
    with worker_process(log, "--join", line, *options(tmp_path)) as again:
        assert again.joined(2)


def test_a_closed_line_lets_no_new_pc_in_and_says_so(live: LiveGrid, tmp_path: Path) -> None:
    live.admin().ask("keys enrol", on=False)
    live.restart()
    with worker_process(tmp_path / "log", "--join", live.broker.ready.worker_line, *options(tmp_path)) as worker:
        assert worker.ends() == 2
        assert "no new PCs may enrol: an admin can change that with `deskgrid keys enrol on`" in worker.said


@pytest.mark.parametrize("name", ["a b", "../x", "x" * 65, "pc~2"])
def test_a_name_that_cannot_be_enrolled_is_refused_before_anybody_is_asked(
    live: LiveGrid, tmp_path: Path, name: str
) -> None:
    with worker_process(tmp_path / "log", "--join", live.broker.ready.worker_line, *options(tmp_path, name)) as worker:
        assert worker.ends() == 2
        assert "a name is 1 to 64 letters" in worker.said
    assert not (tmp_path / "pc").exists()


# --- what others see -------------------------------------------------------------------------------------------------


@linux_only
@pytest.mark.parametrize("form", ["--join {}", "--join={}"])
def test_the_line_that_was_typed_is_not_in_the_list_of_processes(live: LiveGrid, tmp_path: Path, form: str) -> None:
    line = live.broker.ready.worker_line
    with worker_process(tmp_path / "log", *form.format(line).split(), *options(tmp_path)) as worker:
        assert worker.joined()
        arguments = Path(f"/proc/{worker.process.pid}/cmdline").read_text().split("\0")
        assert "lab3-07" in arguments
        assert not [word for word in arguments if line.rpartition("/")[2] in word]
        children = Path(f"/proc/{worker.process.pid}/task/{worker.process.pid}/children").read_text().split()
        assert children
        for pid in children:
            assert line.rpartition("/")[2] not in Path(f"/proc/{pid}/cmdline").read_text()


def test_the_line_is_replaced_wherever_it_stands() -> None:
    words = ["python", "-m", "deskgrid.cli", "worker", "--join=LINE", "--join", "LINE"]
    assert without(words, "LINE", "@x") == ["python", "-m", "deskgrid.cli", "worker", "--join=@x", "--join", "@x"]


def _seen() -> dict[str, Any]:
    """What a task finds in its process."""
    import os
    from contextlib import suppress

    files = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing itself
            files[int(number)] = os.readlink(f"/proc/self/fd/{number}")
    with open("/proc/self/environ", encoding="utf-8") as file:
        return {"environ": file.read(), "variables": dict(os.environ), "files": files}


def _is_ours(name: str) -> bool:
    """Whether an open file is one that a task's process has to have: two are its folders, to which it comes back.

    One says how much of its output was read. libffi, which ctypes needs, opens itself on some systems.
    """
    begins = name.startswith(("pipe:", "/memfd:deskgrid-counts")) or Path(name).name.startswith("libffi.so")
    return begins or name in ("/dev/null", os.getcwd()) or name.endswith(".tmp")


@linux_only
def test_a_task_inherits_no_credential_and_no_file(live: LiveGrid, tmp_path: Path) -> None:
    secrets = {"DESKGRID_JOIN": live.broker.ready.client_line, "DESKGRID_HOME": str(tmp_path / "pc")}
    line = live.broker.ready.worker_line
    with worker_process(tmp_path / "log", "--join", line, *options(tmp_path), MINE="kept", **secrets) as worker:
        assert worker.joined()
        seen = value_of(live, python_template(_seen))
        assert seen["variables"]["MINE"] == "kept"
        for name, secret in secrets.items():
            assert name not in seen["variables"]
            assert name not in seen["environ"]
            assert secret not in seen["environ"]
        assert seen["files"]
        assert not [name for name in seen["files"].values() if not _is_ours(name)]
        listing = "env; for file in /proc/self/fd/*; do readlink $file; done; tr '\\0' '\\n' < /proc/$$/environ"
        said = value_of(live, command_template("sh", "-c", listing), b"")
    assert "MINE=kept" in said
    assert "DESKGRID_JOIN" not in said
    assert "DESKGRID_HOME" not in said
    assert "socket:" not in said
    assert "identities" not in said
    assert "journal" not in said


# --- files -----------------------------------------------------------------------------------------------------------


@contextmanager
def _silent_broker(keys: KeyRing, address: str) -> Iterator[zmq.Socket[bytes]]:
    """A socket with a broker's key at its address, which answers nothing."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger, router.curve_server = 0, 1
        router.curve_publickey, router.curve_secretkey = map(z85.encode, keys.server)
        router.bind(f"tcp://{address}")
        yield router


def test_an_identity_whose_answer_was_lost_is_used_again(live: LiveGrid, tmp_path: Path) -> None:
    """A worker that was killed between asking and hearing comes again with the same key."""
    log, line, address = tmp_path / "log", live.broker.ready.worker_line, live.broker.ready.address
    live.broker.stop()
    keys = KeyRing(live.home)
    with _silent_broker(keys, address) as silent, worker_process(log, "--join", line, *options(tmp_path)) as waiting:
        assert silent.poll(int(PATIENCE_S * 1000))
        waiting.kill()
    before = Identities(tmp_path / "pc").find(keys.server[0], "lab3-07")
    assert before is not None
    live.broker = live._broker(address)
    with worker_process(log, "--join", line, *options(tmp_path)) as again:
        assert again.joined()
    assert Identities(tmp_path / "pc").find(keys.server[0], "lab3-07") == before


def test_a_pc_that_reaches_no_broker_in_time_ends_and_keeps_no_identity(
    live: LiveGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "ENROL_S", 0.0)
    live.broker.stop()
    over = Until(0.0, on_wall=False, text="over")
    options = agent.WorkerOptions(live.broker.line("worker"), 1, "lab3-07", tmp_path / "pc", plan=over)
    with pytest.raises(agent.WorkerError, match="this PC is not enrolled: no broker at"):
        agent.run_worker(options, lambda: False, lambda line: None)
    assert not (tmp_path / "pc").exists()


def test_a_pc_may_enrol_for_longer_than_its_plan_lasts(live: LiveGrid, tmp_path: Path) -> None:
    said: list[str] = []
    over = Until(0.0, on_wall=False, text="over")
    options = agent.WorkerOptions(live.broker.line("worker"), 1, "lab3-07", tmp_path / "pc", plan=over)
    agent.run_worker(options, lambda: False, said.append)
    assert any(line.startswith("enrolled at") for line in said)
    assert Identities(tmp_path / "pc").choose(None, None) is not None
