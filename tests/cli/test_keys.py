"""``deskgrid keys``: the line that it prints, its requests to the broker, and the line with which it connects."""

import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from deskgrid.client.discovery import admin_line, client_line
from deskgrid.errors import GridRefused, GridUnreachable
from deskgrid.wire.joinline import JoinLine, Keys, parse_join_line
from tests.cli.fakes import deskgrid
from tests.live import LiveGrid, live_grid
from tests.peers import Client

KEYS = Keys(b"s" * 32, b"p" * 32, b"x" * 32)
OTHER = Keys(b"o" * 32, b"q" * 32, b"y" * 32)
LINE = JoinLine("client", "lab", 7077, KEYS)
ADMIN = JoinLine("client", "lab", 7077, Keys(b"s" * 32, b"a" * 32, b"z" * 32))


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveGrid]:
    """A broker whose home is that of this machine."""
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    with live_grid(tmp_path / "home") as started:
        yield started


@pytest.mark.parametrize("role", ["submitter", "admin"])
def test_an_added_client_is_let_in_by_the_line_that_is_printed(grid: LiveGrid, role: str) -> None:
    result = deskgrid("keys", "add", role, "ann")
    assert result.exit_code == 0, result.stderr
    line = parse_join_line(result.stdout, "client")
    assert f"{line.host}:{line.port}" == grid.broker.ready.address
    assert result.stderr.startswith("deskgrid: ann can ")
    assert result.stderr.endswith(" with this line: export DESKGRID_JOIN=LINE\n")
    client = grid.peer(line)
    assert Client(client.line).ask("bags") == {"bags": [], "after": None}


def test_an_added_worker_is_let_in_by_the_line_that_is_printed_under_its_name_alone(grid: LiveGrid) -> None:
    deskgrid("keys", "enrol", "off")
    result = deskgrid("keys", "add", "worker", "lab3-07")
    assert result.stderr.endswith("with this line: run deskgrid worker --join LINE --name lab3-07 there\n")
    line = parse_join_line(result.stdout, "worker")
    assert "this line is for the PC lab3-07 alone" in str(grid.start_worker("pc1", line=line).failure())
    for _ in range(2):
        worker = grid.start_worker("lab3-07", line=line)
        assert grid.joined(worker)
        worker.stop()


def test_by_the_line_of_another_lab_its_pcs_enrol(grid: LiveGrid) -> None:
    line = parse_join_line(deskgrid("keys", "add", "lab", "lab4").stdout, "worker")
    workers = [grid.start_worker(f"lab4-0{number}", line=line) for number in range(2)]
    assert all(map(grid.joined, workers))
    assert deskgrid("keys", "revoke", "lab4").exit_code == 0
    assert grid.joined(grid.start_worker("lab4-01", line=line))  # it is known by its own key
    assert "does not know this join line's key" in str(grid.start_worker("lab4-02", line=line).failure())


def test_the_secret_that_is_printed_is_nowhere_in_the_home(grid: LiveGrid) -> None:
    line = parse_join_line(deskgrid("keys", "add", "submitter", "ann").stdout, "client")
    assert line.keys is not None
    files = [path for path in grid.home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if line.keys.secret in path.read_bytes()]


def test_the_list_has_names_connections_and_roles(grid: LiveGrid) -> None:
    deskgrid("keys", "add", "submitter", "ann")
    clients = [grid.client() for _ in range(2)]
    assert [client.ask("bags") for client in clients]
    grid.bare_worker("lab3-07").join()
    grid.bare_worker("lab3-08").join()
    deskgrid("keys", "revoke", "lab3-08")
    today = datetime.now().astimezone().strftime("%Y-%m-%d")
    result = deskgrid("keys", "list")
    assert result.stdout.splitlines() == [
        "NAME     CONNECTED       SINCE  ROLE",
        "admin            1           -  admin",
        "ann              0           -  submitter",
        "client           2           -  submitter",
        f"lab3-07          1  {today}  worker",
        f"lab3-08          0  {today}  worker, revoked",
        "worker           0           -  lab",
    ]
    assert result.stderr == "deskgrid: new PCs can enrol; to prevent this, run: deskgrid keys enrol off\n"


def test_a_forgotten_pc_is_cut_off_and_its_name_is_free(grid: LiveGrid) -> None:
    for name in ("lab3-07", "lab3-08"):
        grid.bare_worker(name).join()
    result = deskgrid("keys", "forget", "lab3-07", "lab3-08")
    assert result.stdout.splitlines() == [
        "forgot lab3-07; connections closed: 1",
        "forgot lab3-08; connections closed: 1",
    ]
    assert "lab3" not in deskgrid("keys", "list").stdout
    grid.pcs.clear()
    assert grid.bare_worker("lab3-07").join().name == "lab3-07"


def test_enrolment_is_off_until_it_is_on_again_and_the_list_says_so(grid: LiveGrid) -> None:
    assert deskgrid("keys", "enrol", "off").stdout == "enrolment is off\n"
    assert "no new PCs may enrol" in str(grid.start_worker("pc1").failure())
    listed = deskgrid("keys", "list")
    assert listed.stderr == "deskgrid: new PCs cannot enrol; to allow this, run: deskgrid keys enrol on\n"
    assert deskgrid("keys", "enrol", "on").stdout == "enrolment is on\n"
    assert grid.joined(grid.start_worker("pc1"))


def test_a_revoked_name_is_gone_from_the_list(grid: LiveGrid) -> None:
    deskgrid("keys", "add", "submitter", "ann")
    result = deskgrid("keys", "revoke", "ann")
    assert result.stdout == "revoked ann; connections closed: 0\n"
    assert "ann" not in deskgrid("keys", "list").stdout


def test_revoking_a_key_of_the_home_says_where_the_new_line_is(grid: LiveGrid) -> None:
    before = client_line(None)
    result = deskgrid("keys", "revoke", "client")
    assert f"the new line is in {grid.home / 'client.join'} on the broker's machine" in result.stdout
    after = client_line(None)
    assert after != before
    assert Client(grid.peer(after).line).ask("bags") == {"bags": [], "after": None}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["add", "king", "ann"], "'king' is not one of"),
        (["add", "admin", "a n"], "a name is 1 to 64 letters"),
        (["add", "admin", "worker"], "there is a key 'worker' already; revoke it first"),
        (["revoke", "ann"], "there is no key 'ann'"),
        (["forget", "ann"], "there is no PC 'ann'"),
        (["forget", "worker"], "there is no PC 'worker'"),
        (["forget"], "Missing argument 'NAME...'"),
        (["enrol", "perhaps"], "'perhaps' is not one of"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(grid: LiveGrid, arguments: list[str], reason: str) -> None:
    result = deskgrid("keys", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (said,) = result.stderr.splitlines()
    assert reason in said


def test_a_submitter_who_asks_for_keys_is_told_that_it_is_for_admins(grid: LiveGrid) -> None:
    line = str(grid.broker.line("client"))
    for arguments in (["list"], ["add", "submitter", "eve"], ["revoke", "worker"], ["forget", "pc1"], ["enrol", "off"]):
        result = deskgrid("keys", *arguments, "--join", line)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.endswith("is for admins; you are connected as client, a submitter\n")


def test_a_broker_without_keys_has_none_to_add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    with live_grid(tmp_path / "home", insecure=True):
        for arguments in (
            ["list"],
            ["add", "submitter", "ann"],
            ["revoke", "worker"],
            ["forget", "pc1"],
            ["enrol", "off"],
        ):
            result = deskgrid("keys", *arguments)
            assert (result.exit_code, result.stdout) == (2, "")
            assert "--insecure" in result.stderr


# --- which broker is meant -------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of this machine's broker, with its lines."""
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    monkeypatch.delenv("DESKGRID_JOIN", raising=False)
    (tmp_path / "client.join").write_text(f"{LINE}\n")
    (tmp_path / "admin.join").write_text(f"{ADMIN}\n")
    return tmp_path


def test_on_the_brokers_machine_one_submits_as_a_client_and_administers_as_admin(home: Path) -> None:
    assert (client_line(None), admin_line(None)) == (LINE, ADMIN)


def test_the_homes_admin_is_also_found_when_the_environment_means_the_same_broker(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESKGRID_JOIN", str(LINE))
    assert admin_line(None) == ADMIN
    other = JoinLine("client", "elsewhere", 7077, OTHER)
    monkeypatch.setenv("DESKGRID_JOIN", str(other))
    assert admin_line(None) == other
    assert admin_line(str(LINE)) == LINE


def test_without_a_home_the_environment_is_what_there_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "admin.join").unlink()
    with pytest.raises(GridUnreachable, match="no broker is known"):
        admin_line(None)
    monkeypatch.setenv("DESKGRID_JOIN", str(LINE))
    assert admin_line(None) == LINE


@pytest.mark.skipif(sys.platform == "win32", reason="the pattern has the path as it is")
@pytest.mark.parametrize("find", [client_line, admin_line])
def test_a_line_may_be_in_a_file(home: Path, find: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(find)
    path = home / "ann.join"
    path.write_text(f"{LINE}\n")
    path.chmod(0o600)
    assert find(f"@{path}") == LINE
    monkeypatch.setenv("DESKGRID_JOIN", f"@{path}")
    assert client_line(None) == LINE
    path.chmod(0o644)
    with pytest.raises(GridRefused, match=f"can be read by others: chmod 600 {path}"):
        find(f"@{path}")
    with pytest.raises(GridRefused, match="cannot be read"):
        find(f"@{home / 'none'}")
