"""``deskgrid broker`` and ``deskgrid worker``: how they interpret their options, and what they print."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from deskgrid.broker.server import BrokerError, BrokerOptions, Ready
from deskgrid.cli.base import is_loopback
from deskgrid.cli.working import _wait_for_line
from deskgrid.wire.joinline import JoinLine, Keys
from deskgrid.worker.agent import WorkerError, WorkerOptions
from deskgrid.worker.owner.policy import Courtesy
from deskgrid.worker.pc.hardware import cores
from deskgrid.worker.windows.uptime import Cycle, Until, Weekly
from tests.cli.fakes import deskgrid

KEYS = Keys(b"s" * 32, b"p" * 32, b"x" * 32)
LINE = JoinLine("worker", "lab-server.example", 7077, KEYS)
CLIENT_LINE = JoinLine("client", "lab-server.example", 7077, KEYS)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("deskgrid")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:], root.level, level = before
    ours.setLevel(level)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of this machine's broker."""
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


# --- broker ----------------------------------------------------------------------------------------------------------


class Broker:
    """Stands in for `deskgrid.broker.server.serve`."""

    def __init__(self) -> None:
        self.options = BrokerOptions(Path())
        self.error: BrokerError | None = None
        self.stopping = False

    def __call__(
        self,
        options: BrokerOptions,
        ready: Callable[[Ready], None],
        stopping: Callable[[], bool],
    ) -> None:
        self.options, self.stopping = options, stopping()
        if self.error is not None:
            raise self.error
        ready(Ready("lab-server.example:7077", str(LINE), str(CLIENT_LINE), options.home))
        logging.getLogger("deskgrid.broker").info("started address=%s", "lab-server.example:7077")


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """What `deskgrid broker` starts."""
    broker = Broker()
    monkeypatch.setattr("deskgrid.broker.server.serve", broker)
    return broker


def test_the_broker_prints_whole_lines_to_copy_on_stdout_and_logs_to_stderr(serve: Broker) -> None:
    result = deskgrid("broker")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert f"deskgrid worker --join {LINE}" in lines
    assert f"export DESKGRID_JOIN={CLIENT_LINE}" in lines
    assert result.stderr.endswith("INFO started address=lab-server.example:7077\n")


def test_every_option_of_the_broker_arrives(serve: Broker, tmp_path: Path) -> None:
    words = "--listen 10.0.0.1:99 --policy fcfs --advertise lab --policy-option margin=0.5 --policy-option order=fifo"
    assert deskgrid("broker", "--home", str(tmp_path), "--keep", "7.5", *words.split()).exit_code == 0
    assert serve.options == BrokerOptions(
        home=tmp_path,
        listen="10.0.0.1:99",
        advertise="lab",
        policy="fcfs",
        policy_options={"margin": 0.5, "order": "fifo"},
        keep_days=7.5,
    )


def test_without_options_the_broker_listens_everywhere_and_lives_in_its_home(serve: Broker, home: Path) -> None:
    deskgrid("broker")
    assert serve.options == BrokerOptions(home=home, listen="0.0.0.0:7077", keep_days=90.0)


def test_a_time_to_keep_bags_may_have_a_unit(serve: Broker) -> None:
    assert deskgrid("broker", "--keep", "36h").exit_code == 0
    assert serve.options.keep_days == 1.5


def test_bags_can_be_kept_for_ever(serve: Broker) -> None:
    assert deskgrid("broker", "--keep", "forever").exit_code == 0
    assert serve.options.keep_days is None


@pytest.mark.parametrize("days", ["0", "-1", "nan", "inf", "1e30", "soon", ""])
def test_a_time_to_keep_bags_that_is_none_is_refused(serve: Broker, days: str) -> None:
    result = deskgrid("broker", "--keep", days)
    assert (result.exit_code, result.stdout) == (2, "")
    assert 'is not a number of days, more than 0, nor a duration like 36h, nor "forever"' in result.stderr


def test_an_insecure_broker_listens_on_this_machine_only(serve: Broker) -> None:
    assert deskgrid("broker", "--insecure").exit_code == 0
    assert (serve.options.listen, serve.options.insecure) == ("127.0.0.1:7077", True)


@pytest.mark.parametrize("listen", ["0.0.0.0:7077", "10.0.0.1:7077", "lab-server:7077", "[::]:7077"])
def test_an_insecure_broker_that_others_could_reach_is_refused(serve: Broker, listen: str) -> None:
    result = deskgrid("broker", "--insecure", "--listen", listen)
    assert result.exit_code == 2
    assert result.stderr.startswith("deskgrid: --insecure is for this machine only")


@pytest.mark.parametrize("listen", ["7077", "host", "host:port", ":7077", "host:70777"])
def test_a_listen_address_that_is_none_is_refused(serve: Broker, listen: str) -> None:
    result = deskgrid("broker", "--listen", listen)
    assert result.exit_code == 2
    assert result.stderr.startswith("deskgrid: --listen: an address is HOST:PORT")


def test_what_the_broker_refuses_is_one_line_and_exit_code_2(serve: Broker) -> None:
    serve.error = BrokerError("cannot listen on 127.0.0.1:7077: address in use")
    result = deskgrid("broker")
    assert result.exit_code == 2
    assert result.stderr == "deskgrid: cannot listen on 127.0.0.1:7077: address in use\n"
    assert result.stdout == ""


def test_the_log_level_says_which_events_are_logged(serve: Broker) -> None:
    assert "started" not in deskgrid("broker", "--log-level", "warning").stderr


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("lab", False),
    ],
)
def test_what_is_loopback(host: str, is_one: bool) -> None:
    assert is_loopback(host) == is_one


# --- worker ----------------------------------------------------------------------------------------------------------


class Worker:
    """Stands in for `deskgrid.worker.agent.run_worker`."""

    def __init__(self) -> None:
        self.options = WorkerOptions(LINE, 1, "", Path())
        self.error: WorkerError | None = None

    def __call__(self, options: WorkerOptions, stopping: Callable[[], bool], say: Callable[[str], None]) -> None:
        self.options = options
        if self.error is not None:
            raise self.error
        say(f"joined {options.join.host} 100% as {options.name}")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """What `deskgrid worker` starts."""
    worker = Worker()
    monkeypatch.setattr("deskgrid.worker.agent.run_worker", worker)
    return worker


def test_every_option_of_the_worker_arrives(agent: Worker, tmp_path: Path) -> None:
    where = ["--name", "lab3-01", "--site", "lab3", "--home", str(tmp_path)]
    result = deskgrid("worker", "--join", str(LINE), "--slots", "3", *where)
    assert result.exit_code == 0
    assert agent.options == WorkerOptions(
        LINE, 3, "lab3-01", tmp_path, "lab3", None, find_gpus=True, courtesy=Courtesy("auto"), checks=True
    )


@pytest.mark.parametrize("option", ["--name", "--site"])
def test_a_name_that_is_too_long_is_one_line_and_exit_code_2(agent: Worker, option: str) -> None:
    result = deskgrid("worker", "--join", str(LINE), option, "9" * 5000)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"deskgrid: the {option.removeprefix('--')} has more than 255 bytes: '999")
    assert len(result.stderr) < 160


def test_more_slots_than_a_worker_may_have_are_refused(agent: Worker) -> None:
    result = deskgrid("worker", "--join", str(LINE), "--slots", "1025")
    assert result.exit_code == 2
    assert "1025 is not in the range 1<=x<=1024" in result.stderr


def test_what_the_worker_says_is_logged(agent: Worker) -> None:
    result = deskgrid("worker", "--join", str(LINE), "--name", "lab3-01")
    assert result.stderr.endswith("INFO joined lab-server.example 100% as lab3-01\n")
    assert result.stdout == ""


def test_a_worker_has_the_hosts_name_and_a_slot_for_each_core(agent: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "lab3-07")
    deskgrid("worker", "--join", str(LINE))
    assert (agent.options.name, agent.options.slots) == ("lab3-07", cores())
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_each_sort_of_planned_uptime_arrives(agent: Worker, tmp_path: Path) -> None:
    windows, cycle = tmp_path / "windows.toml", tmp_path / "cycle"
    windows.write_text('windows = ["daily 18:00-08:00"]\n', encoding="utf-8")
    cycle.write_text("84 1\n", encoding="utf-8")
    kinds = {"--windows": (str(windows), Weekly), "--until": ("60", Until), "--cycle": (str(cycle), Cycle)}
    for option, (value, kind) in kinds.items():
        assert deskgrid("worker", "--join", str(LINE), option, value).exit_code == 0
        assert isinstance(agent.options.plan, kind)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--until", "25:00", "until '25:00'"),
        ("--until", "0", "more than 0"),
        ("--cycle", "84\n", "cycle:1: expected two numbers"),
        ("--windows", 'windows = ["mon 08:00-08:00 x"]', "windows.toml"),
    ],
)
def test_planned_uptime_that_cannot_be_is_one_line_and_exit_code_2(
    agent: Worker, tmp_path: Path, option: str, text: str, said: str
) -> None:
    value = text
    if option != "--until":
        file = tmp_path / {"--cycle": "cycle", "--windows": "windows.toml"}[option]
        file.write_text(text, encoding="utf-8")
        value = str(file)
    result = deskgrid("worker", "--join", str(LINE), option, value)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("deskgrid: ")
    assert said in line


@pytest.mark.parametrize("join", [str(CLIENT_LINE), "nonsense", f"{str(LINE)[:60]}"])
def test_a_wrong_join_line_is_one_line_and_exit_code_2(agent: Worker, join: str) -> None:
    result = deskgrid("worker", "--join", join)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_what_the_broker_refuses_the_worker_is_one_line_and_exit_code_2(agent: Worker) -> None:
    agent.error = WorkerError("the broker refuses this worker: it is too old")
    result = deskgrid("worker", "--join", str(LINE))
    assert (result.exit_code, result.stderr) == (2, "deskgrid: the broker refuses this worker: it is too old\n")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "lab-server.example"])
def test_the_address_of_this_machines_broker_is_enough(agent: Worker, home: Path, host: str) -> None:
    (home / "worker.join").write_text(f"{LINE}\n", encoding="utf-8")
    assert deskgrid("worker", "--broker", f"{host}:7077").exit_code == 0
    assert agent.options.join == JoinLine("worker", host, 7077, KEYS)


def test_another_port_on_this_machine_is_a_broker_without_keys(agent: Worker, home: Path) -> None:
    (home / "worker.join").write_text(f"{LINE}\n", encoding="utf-8")
    deskgrid("worker", "--broker", "127.0.0.1:7078")
    assert agent.options.join == JoinLine("worker", "127.0.0.1", 7078, None)


def test_a_worker_that_is_started_with_its_broker_waits_for_the_line_or_until_it_is_to_stop(tmp_path: Path) -> None:
    line, looks = tmp_path / "worker.join", 0

    def stopping() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            line.touch()
        return False

    _wait_for_line(f"@{line}", stopping)
    assert looks == 3
    _wait_for_line(f"@{tmp_path / 'nothing'}", lambda: True)


@pytest.mark.parametrize("address", ["lab-server.example:7078", "10.0.0.1:7077"])
def test_for_a_broker_of_another_machine_the_join_line_is_asked_for(agent: Worker, home: Path, address: str) -> None:
    (home / "worker.join").write_text(f"{LINE}\n", encoding="utf-8")
    result = deskgrid("worker", "--broker", address)
    assert result.exit_code == 2
    assert "use --join with the line that its broker printed" in result.stderr


def test_on_windows_the_line_for_clients_comes_in_the_forms_of_its_shells(
    serve: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskgrid.cli.broker.sys", SimpleNamespace(platform="win32", stdout=sys.stdout))
    lines = deskgrid("broker").stdout.splitlines()
    assert f"set DESKGRID_JOIN={CLIENT_LINE}" in lines
    assert f"$env:DESKGRID_JOIN = '{CLIENT_LINE}'" in lines
