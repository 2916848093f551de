"""`deskgrid status` in a pseudo-terminal, with a real broker and real tasks behind it."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

import termios

from deskgrid import wire
from deskgrid.wire.joinline import JoinLine
from tests.live import LiveGrid, live_grid
from tests.peers import BareWorker, Client
from tests.screen.terminal import Terminal

ENTER, ESC = "\r", "\x1b"

Opened = Callable[..., Terminal]


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[LiveGrid]:
    with live_grid(tmp_path / "home") as found:
        yield found


@pytest.fixture
def opened(grid: LiveGrid, tmp_path: Path) -> Iterator[Opened]:
    """Opens `deskgrid status` of the grid on a terminal."""
    terminals: list[Terminal] = []

    def open_one(line: JoinLine | None = None, size: tuple[int, int] = (24, 80), **environment: str) -> Terminal:
        path = tmp_path / f"{len(terminals)}.join"
        path.touch(0o600)
        path.write_text(str(line or grid.broker.line("client")), encoding="ascii")
        arguments = ["-m", "deskgrid.cli", "status", "--join", f"@{path}"]
        terminals.append(Terminal(arguments, size, **environment))
        return terminals[-1]

    yield open_one
    for terminal in terminals:
        terminal.close()


def joined(grid: LiveGrid, name: str) -> BareWorker:
    worker = grid.bare_worker(name)
    worker.join()
    return worker


def submitted(client: Client, name: str, count: int = 3) -> str:
    return client.submit([b"0"] * count, name=name, runtime=600.0)


def assert_left_clean(terminal: Terminal, code: int = 0) -> None:
    assert terminal.process.wait(30) == code
    assert terminal.shows("\x1b[?1049l")
    assert terminal.shows("\x1b[?25h")
    assert termios.tcgetattr(terminal.its) == terminal.before
    assert "Traceback" not in terminal.text


def test_a_bag_is_found_opened_and_cancelled(grid: LiveGrid, opened: Opened) -> None:
    pc, client = joined(grid, "pc1"), grid.client()
    bag = submitted(client, "sweep", 1204)
    submitted(client, "other")
    pc.work()
    terminal = opened()
    assert terminal.shows("2 PCs")
    terminal.type("3")
    assert terminal.shows("[3 bags]")
    assert terminal.shows("other")
    terminal.type("/sweep" + ENTER)
    assert terminal.shows("1-1 of 1")
    terminal.type(ENTER)
    assert terminal.shows("Why it waits")
    assert terminal.shows("on pc1")
    terminal.type("c")
    assert terminal.shows("cancel bag sweep (1,204 tasks)? y/n")
    terminal.type("n")
    assert terminal.shows("nothing was done")
    assert client.ask("progress", bag=bag)["cancelled"] == 0
    terminal.type("cy")
    assert terminal.shows("1,204 cancelled")
    assert client.ask("progress", bag=bag)["cancelled"] == 1204
    terminal.type("q")
    assert_left_clean(terminal)


def test_a_task_shows_its_output_while_it_runs_and_when_it_ends(grid: LiveGrid, opened: Opened) -> None:
    pc = joined(grid, "pc1")
    submitted(grid.client(), "sweep", 1)
    (work,) = pc.work()
    terminal = opened()
    assert terminal.shows("2 PCs")
    terminal.type("2" + ENTER)
    assert terminal.shows("slot 0")
    assert terminal.shows("sweep #0")
    terminal.type(ENTER)
    assert terminal.shows("it has printed nothing so far")
    pc.send(wire.OutputShown((wire.Shown(work.task, work.number, 0, 6, b"so far", 0, b""),)))
    assert terminal.shows("so far")
    pc.finish(work, elapsed=2.0)
    assert terminal.shows("stdout")
    assert terminal.shows("done on pc1")
    terminal.type(ESC)
    assert terminal.shows("idle")
    terminal.type("3l")
    assert terminal.shows("#0  done on pc1")
    terminal.type("q")
    assert_left_clean(terminal)


def test_people_see_their_shares_as_the_brokers_file_says(grid: LiveGrid, opened: Opened, tmp_path: Path) -> None:
    submitted(grid.client(), "sweep", 1)
    terminal = opened(size=(24, 120))
    assert terminal.shows("2 PCs")
    terminal.type("4")
    assert terminal.shows("weight         used")
    (tmp_path / "home" / "shares.toml").write_text('[team]\nweight = 2.5\nkeys = ["client"]\n')
    assert terminal.shows("team")
    assert terminal.shows(" 2.5 ")
    terminal.type("q")
    assert_left_clean(terminal)


def test_somebody_elses_bag_cannot_be_cancelled_and_the_broker_says_why(grid: LiveGrid, opened: Opened) -> None:
    submitted(grid.admin(), "private")
    terminal = opened()
    assert terminal.shows("2 PCs")
    terminal.type("3")
    assert terminal.shows("private")
    terminal.type("cy")
    assert terminal.shows("belongs to admin")
    terminal.type(ENTER)
    assert terminal.shows("belongs to admin")
    terminal.process.send_signal(signal.SIGINT)
    assert_left_clean(terminal, 130)


def test_events_and_the_broker_that_goes_away_and_comes_back(grid: LiveGrid, opened: Opened) -> None:
    terminal = opened()
    assert terminal.shows("2 PCs")
    terminal.type("6")
    assert terminal.shows("none yet")
    joined(grid, "pc1")
    assert terminal.shows("worker joined")
    grid.restart(lambda: terminal.shows("broker away"))
    joined(grid, "pc2")
    terminal.type("5")
    assert terminal.shows("> pc2")
    terminal.type("6")
    assert terminal.shows("worker joined       pc2")
    terminal.type("q")
    assert_left_clean(terminal)


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "vt100"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}], ids=str
)
def test_it_needs_no_colour_and_no_glyphs(grid: LiveGrid, opened: Opened, environment: dict[str, str]) -> None:
    joined(grid, "pc1")
    terminal = opened(**environment)
    assert terminal.shows("2 PCs")
    terminal.type("2")
    assert terminal.shows("> pc1")
    assert "\x1b[31" not in terminal.text
    if "LC_ALL" in environment:
        assert terminal.text.isascii()
    terminal.type("q")
    assert_left_clean(terminal)


def test_a_terminal_of_any_size_is_used_and_one_without_or_too_small_says_so(grid: LiveGrid, opened: Opened) -> None:
    terminal = opened(size=(0, 0))
    assert terminal.shows("does not say its size")
    joined(grid, "pc1")
    terminal.resize((60, 200))
    terminal.type("2")
    assert terminal.shows("plan")
    terminal.resize((5, 20))
    assert terminal.shows("20x5 is too small")
    terminal.type("q")
    assert_left_clean(terminal)
