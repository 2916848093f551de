"""A broker with a low limit of open files says how many connections it can take, or refuses to start."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from deskgrid import wire
from deskgrid.broker.port.allowed import FEWEST_CONNECTIONS, OTHER_FILES
from deskgrid.wire.joinline import parse_join_line
from tests.live import ROOT
from tests.peers import Client, SocketLine
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has no such limit")

FEWEST_FILES = OTHER_FILES + 2 * FEWEST_CONNECTIONS


def broker(home: Path, files: int) -> "subprocess.Popen[str]":
    """The command, with a limit that it cannot raise."""
    program = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))"
    program += "; from deskgrid.cli.front import main; main()"
    command = ["broker", "--home", str(home), "--listen", "127.0.0.1:0", "--until-stdin-closes"]
    return subprocess.Popen(
        [sys.executable, "-c", program, *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("files", [64, FEWEST_FILES - 1])
def test_a_broker_that_may_open_too_few_files_refuses_to_start_and_says_what_to_do(tmp_path: Path, files: int) -> None:
    with broker(tmp_path, files) as process:
        said, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert said == ""
    (line,) = told.splitlines()
    assert f"may open only {files} files and needs at least {FEWEST_FILES}" in line
    assert "ulimit -n 10100" in line
    assert "LimitNOFILE=10100" in line


def test_with_just_enough_it_says_how_many_connections_it_takes_and_takes_them(tmp_path: Path) -> None:
    with broker(tmp_path, FEWEST_FILES) as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stderr is not None
        assert "deskgrid broker at" in process.stdout.readline()
        assert f"connections={FEWEST_CONNECTIONS} by-one-key={FEWEST_CONNECTIONS // 2}" in process.stderr.readline()
        line = parse_join_line((tmp_path / "client.join").read_text(encoding="utf-8"), "client")
        clients = [Client(SocketLine(line)) for _ in range(FEWEST_CONNECTIONS // 2)]
        for client in clients:
            stack.callback(client.close)
        bags = [client.submit([b"x" * wire.CHUNK_BYTES]) for client in clients]
        assert [row["bag"] for row in clients[0].ask("bags")["bags"]] == bags
