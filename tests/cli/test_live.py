"""The real processes: a broker and a worker started from the command line, a bag, and a clean end."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live import WORKER
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-P", "-m", "deskgrid.cli"]
ECHO = [sys.executable, "-c", "import sys; print('item', sys.argv[1]); sys.exit(sys.argv[1] == 'bad')", "{}"]

Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a machine with a home of its own and no other broker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DESKGRID")}
    return kept | {"DESKGRID_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Run a command to its end."""

    def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    return run


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Start a command that goes on; it is ended with the test, if not before."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*COMMAND, *arguments], env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:  # closes its pipes and waits for it
            process.kill()


@pytest.fixture
def broker(start: Start) -> "subprocess.Popen[str]":
    """A broker that listens, on a free port."""
    process = start("broker", "--listen", "127.0.0.1:0", "--until-stdin-closes")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("deskgrid broker at 127.0.0.1:")
    return process


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_output_for_which_there_is_no_room_is_one_line_on_stderr_and_exit_code_2(environment: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*COMMAND, "--help"],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=50,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (2, "deskgrid: the output cannot be written: No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="it is closed with a shell of Unix")
@pytest.mark.parametrize(
    ("arguments", "closed", "code", "said"),
    [
        (["--help"], ">&-", 0, ""),
        (["submit", "--each", "-", "--", "true"], "<&-", 2, "deskgrid: no broker "),
        (["nonsense"], "2>&-", 2, ""),
    ],
)
def test_a_command_whose_streams_are_closed_says_no_more_than_with_empty_ones(
    arguments: list[str], closed: str, code: int, said: str, environment: dict[str, str]
) -> None:
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    ran = subprocess.run(
        [*shell, *COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert ran.returncode == code
    assert ran.stderr.startswith(said)
    assert len(ran.stderr.splitlines()) == bool(said)


def address(environment: dict[str, str]) -> str:
    """Where the broker of that home listens."""
    line = (Path(environment["DESKGRID_HOME"]) / "worker.join").read_text(encoding="utf-8")
    return line.split("@")[1].split("/")[0]


def test_a_bag_goes_from_the_command_line_to_a_worker_and_back(
    broker: "subprocess.Popen[str]", start: Start, run: Run, environment: dict[str, str]
) -> None:
    worker = start(*WORKER, "--broker", address(environment), "--slots", "1", "--until", "60", "--until-stdin-closes")
    submitted = run("submit", "--runtime", "1", "--each", "-", "--", *ECHO, stdin="good\nbad\n")
    bag = submitted.stdout.strip()
    assert (submitted.returncode, len(bag)) == (0, 12), submitted.stderr
    waited = run("wait", "--timeout", "40", bag)
    assert (waited.returncode, waited.stdout) == (1, "")
    assert waited.stderr.endswith("deskgrid: 1 of 2 tasks done, 1 failed\n")
    results = run("results", bag)
    assert (results.returncode, results.stdout) == (1, "item good\n")
    said, hint = results.stderr.splitlines()
    assert said.startswith(f"deskgrid: task 1 of bag {bag} on ")
    assert said.endswith(" s: CommandFailed: exit code 1")
    assert hint == f"deskgrid: 1 of 2 failed; see deskgrid logs {bag} 1"
    assert run("logs", bag, "1").stdout == "item bad\n"
    assert bag in run("status").stdout
    for process in (worker, broker):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_broker_whose_port_is_taken_is_refused_with_one_line(
    broker: "subprocess.Popen[str]", run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    second = run("broker", "--listen", address(environment), "--home", str(tmp_path / "other"))
    assert (second.returncode, second.stdout) == (2, "")
    (line,) = second.stderr.splitlines()
    assert line.startswith("deskgrid: cannot listen on 127.0.0.1:")


@pytest.mark.skipif(sys.platform == "win32", reason="there a process cannot be sent these signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_broker_and_worker_cleanly(
    broker: "subprocess.Popen[str]", start: Start, run: Run, environment: dict[str, str], number: signal.Signals
) -> None:
    worker = start(*WORKER, "--broker", address(environment), "--name", "pc", "--slots", "1")
    assert eventually(lambda: "1 up" in run("status").stdout, 40)
    for process in (worker, broker):
        process.send_signal(number)
        assert process.wait(20) == 0
