"""``deskgrid broker --web`` and ``deskgrid web``: real processes, from the link that is printed to the end of all."""

import io
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import Grid
from deskgrid.cli import web as cli
from deskgrid.cli.web import beside
from deskgrid.sleepbench.processes import COMMAND, Processes
from tests.cli.fakes import deskgrid
from tests.waiting import PATIENCE_S, eventually

LINK = re.compile(r"(http://127\.0\.0\.1:\d+/)\?token=(\S+)")
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(link: re.Match[str], path: str) -> Any:
    """What the web server answers to whoever has the link."""
    asked = urllib.request.Request(link[1] + path, headers={"Authorization": f"Bearer {link[2]}"})
    with NO_PROXY.open(asked, timeout=PATIENCE_S) as answer:
        body = answer.read().decode()
        return json.loads(body) if answer.headers["Content-Type"] == "application/json" else body


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(more=["--web", "127.0.0.1:0"]) as found:
        found.start_worker("pc1")
        yield found


@pytest.fixture(scope="module")
def link(processes: Processes) -> re.Match[str]:
    log = processes.folder / "broker.log"
    assert eventually(lambda: LINK.search(log.read_text()) is not None), log.read_text()
    found = LINK.search(log.read_text())
    assert found is not None
    return found


def test_the_output_of_a_running_task_is_shown_to_an_admin(processes: Processes, link: re.Match[str]) -> None:
    with Grid(processes.client_line) as grid:
        bag = grid.command(["sh", "-c", "echo step {}; sleep 60"], ["1"], runtime=60)
        assert eventually(lambda: get(link, f"ask/logs?bag={bag.id}&item=0")["stdout"] == "step 1\n")
        assert get(link, "ask/worker?name=pc1")["slots"][0]["running"]["bag"] == bag.id
        bag.cancel()


def test_metrics_are_of_this_grid(link: re.Match[str]) -> None:
    assert eventually(lambda: 'deskgrid_workers{state="up"} 1.0' in get(link, "metrics"), 3 * PATIENCE_S)


def test_people_see_what_their_key_may_see(processes: Processes, link: re.Match[str], tmp_path: Path) -> None:
    added = [*COMMAND, "keys", "add", "submitter", "ada", "--join", f"@{processes.home / 'admin.join'}"]
    told = subprocess.run(added, capture_output=True, text=True, check=True)
    line = next(word for word in told.stdout.replace("=", " ").split() if word.startswith("client@"))
    with Grid(processes.client_line) as grid:
        bag = grid.command(["echo"], ["secret"], runtime=1)
        bag.wait()
    command = [*COMMAND, "web", "--listen", "127.0.0.1:0", "--home", str(tmp_path), "--until-stdin-closes"]
    (tmp_path / "ada.join").touch(mode=0o600)
    (tmp_path / "ada.join").write_text(line)
    process = subprocess.Popen(
        [*command, "--join", f"@{tmp_path / 'ada.join'}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdout.readline()
        hers = LINK.match(process.stdout.readline())
        assert hers is not None
        assert get(hers, "ask/bags")["bags"][-1]["bag"] == bag.id
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(hers, f"ask/logs?bag={bag.id}&item=0")
        with refused.value as answer:
            assert b"you are connected as ada" in answer.read()
        assert get(link, f"ask/logs?bag={bag.id}&item=0")["stdout"] == "secret\n"
    finally:
        process.stdin.close()
        process.wait(PATIENCE_S)
        process.stdout.close()
    assert process.returncode == 0


def test_the_web_server_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    with Processes(more=["--web", "127.0.0.1:0"]) as processes:
        log = processes.folder / "broker.log"
        assert eventually(lambda: LINK.search(log.read_text()) is not None)
        found = LINK.search(log.read_text())
        assert found is not None
        processes.kill("broker")

        def gone() -> bool:
            try:
                get(found, "metrics")
            except OSError:
                return True
            return False

        assert eventually(gone)


def test_a_web_server_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Fake:
        def __init__(self, command: list[str], stdin: int, env: dict[str, str]) -> None:
            started.append(command)
            self.stdin = io.BytesIO()

        def wait(self) -> int:
            return 1

    monkeypatch.setattr(cli, "AGAIN_S", 0.01)
    monkeypatch.setattr(subprocess, "Popen", Fake)
    with beside(tmp_path, "127.0.0.1:0", ["grid.example"], "info") as start:
        assert not started
        start()
        assert eventually(lambda: len(started) > 2)
    assert f"@{tmp_path / 'admin.join'}" in started[0]
    assert "grid.example" in started[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("web", "--listen", "nonsense"), "--listen: an address is HOST:PORT"),
        (("broker", "--web", "nonsense"), "--web: an address is HOST:PORT"),
        (("broker", "--web", "ipc:/tmp/x"), "--web: a browser needs HOST:PORT"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_starts(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    result = deskgrid(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_token_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))
    (tmp_path / "web.token").write_text("t" * 43)
    (tmp_path / "web.token").chmod(0o644)
    result = deskgrid("web")
    assert result.exit_code == 2
    assert "can be read by others" in result.stderr
