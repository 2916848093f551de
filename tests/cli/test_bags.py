"""``deskgrid submit`` and the commands for bags: their requests to the grid, their output, their exit codes."""

import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from deskgrid.cli.bags import LAST_WORDS
from deskgrid.cli.base import show
from deskgrid.client.eta import Eta
from deskgrid.client.following import LogPiece
from deskgrid.client.logs import TaskLog
from deskgrid.client.payload import RAISED_BY
from deskgrid.errors import (
    BagRejected,
    GridUnreachable,
    RemoteError,
    RemoteTraceback,
    RequestFailed,
    TaskCancelled,
)
from tests.cli.fakes import ADMIN, LOG, FakeBag, FakeGrid, deskgrid, use, warned
from tests.screen.builders import BAG


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> FakeGrid:
    """The grid that the command line finds."""
    return use(monkeypatch, FakeGrid())


COMMANDS = [
    ["submit", "--", "true"],
    ["wait", BAG],
    ["results", BAG],
    ["logs", BAG, "0"],
    ["explain", BAG],
    ["eta", BAG],
    ["cancel", BAG],
    ["pause", BAG],
    ["resume", BAG],
    ["forget", BAG],
    ["bags"],
    ["status", "--json"],
    ["policy", "pgs"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_without_a_broker_every_command_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    use(monkeypatch, FakeGrid(error=GridUnreachable("no broker answers at lab:7077")))
    result = deskgrid(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "deskgrid: no broker answers at lab:7077\n"


@pytest.mark.parametrize("arguments", COMMANDS[1:7], ids=lambda arguments: arguments[0])
def test_a_bag_that_is_not_there_is_one_line_and_exit_code_2(grid: FakeGrid, arguments: list[str]) -> None:
    result = deskgrid(*(word if word != BAG else "nonsense" for word in arguments))
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "deskgrid: no bag nonsense\n")


def test_the_broker_is_that_of_join_or_the_one_that_the_grid_finds_by_itself(grid: FakeGrid) -> None:
    deskgrid("cancel", BAG, "--join", "client@lab:1")
    deskgrid("cancel", BAG)
    assert grid.joins == ["client@lab:1", ADMIN]


def test_a_bag_is_also_named_by_its_name_and_the_newest_by_last(grid: FakeGrid) -> None:
    row = {"bag": BAG, "name": "sweep"}
    grid.rows = [{"bag": "f" * 12, "name": "sweep"}, {"bag": "e" * 12, "name": "other"}, row]
    result = deskgrid("cancel", "sweep")
    assert result.stdout.endswith(f" of {BAG}\n")
    assert result.stderr == f"deskgrid: sweep is bag {BAG}, the newest of 2 with this name\n"
    assert deskgrid("cancel", "last").stderr == f"deskgrid: last is bag {BAG}\n"
    assert deskgrid("cancel", BAG).stderr == ""
    result = deskgrid("cancel", "sweeep")
    assert (result.exit_code, result.stderr) == (2, "deskgrid: no bag sweeep\n")


# --- submit ----------------------------------------------------------------------------------------------------------


def test_submit_prints_the_bags_id_alone_on_stdout(grid: FakeGrid) -> None:
    result = deskgrid("submit", "--", "true")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{BAG}\n", "")


def test_durations_may_have_units(grid: FakeGrid) -> None:
    deskgrid("submit", "--runtime", "1h30min", "--timeout", "2h", "--", "true")
    assert (grid.submitted["runtime"], grid.submitted["timeout"]) == (5400.0, 7200.0)


def test_what_the_broker_has_to_say_about_a_bag_goes_to_stderr(grid: FakeGrid) -> None:
    grid.bag.note = "1 of 1 tasks are longer than any window known"
    result = deskgrid("submit", "--runtime", "5000", "--", "true")
    assert (result.stdout, result.stderr) == (f"{BAG}\n", f"deskgrid: {grid.bag.note}\n")


def test_everything_about_a_bag_arrives(grid: FakeGrid) -> None:
    words = "--runtime 20 --name thumbs --timeout 60 --retries 2 --copies --explore --each -"
    saves = "--checkpoint state/* --checkpoint log --checkpoint-signal TERM --checkpoint-exit 9 --min-piece 30"
    files = "--input a --input b=c --output *.jpg"
    command = "-- convert -x {} {}.jpg"
    deskgrid("submit", *f"{words} {saves} {files} {command}".split(), stdin="a.png\n\nb b.png\r\n \nc.png")
    assert grid.submitted == {
        "argv": ["convert", "-x", "{}", "{}.jpg"],
        "items": ["a.png", "b b.png", "c.png"],
        "runtime": 20.0,
        "name": "thumbs",
        "timeout": 60.0,
        "retries": 2,
        "checkpoint": ("state/*", "log"),
        "checkpoint_signal": "TERM",
        "checkpoint_exit": 9,
        "min_piece": 30.0,
        "copies": True,
        "inputs": ("a", "b=c"),
        "outputs": ("*.jpg",),
        "env": None,
        "priority": 0,
        "limit": None,
        "licences": {},
        "after": (),
        "when": "ok",
        "explore": True,
        "gang": None,
        "speedup": None,
        "mpi": False,
        "slots": None,
        "memory": None,
        "labels": (),
        "resources": {},
    }


@pytest.mark.parametrize(
    ("words", "env"),
    [
        ("--env mine", ["mine"]),
        ("--env script --with rich", ["script", "rich"]),
        ("--env requirements.txt", [Path("requirements.txt")]),
        ("--with numpy --with scipy<2", ["numpy", "scipy<2"]),
    ],
)
def test_the_libraries_of_a_bag_arrive(
    grid: FakeGrid, words: str, env: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").touch()
    deskgrid("submit", *words.split(), "--", "python", "run.py")
    assert grid.submitted["env"] == env


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--env nothing.txt", "'nothing.txt' is not mine or script, and there is no such file"),
        ("--checkpoint-signal TERM", "--checkpoint-signal needs --checkpoint"),
        ("--checkpoint-exit 9", "--checkpoint-exit needs --checkpoint"),
        ("--min-piece 30", "--min-piece needs --checkpoint"),
        ("--when ended", "--when needs --after"),
        ("--explore", "--explore needs --each"),
        ("--with=", "--with: a requirement is a name such as numpy, not nothing"),
    ],
)
def test_an_option_that_would_mean_nothing_is_refused(grid: FakeGrid, words: str, said: str) -> None:
    result = deskgrid("submit", *words.split(), "--", "true")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_the_commands_own_options_are_left_to_it_also_without_a_double_dash(grid: FakeGrid) -> None:
    deskgrid("submit", "--runtime", "1", "sort", "--name", "--help", "-n")
    assert grid.submitted["argv"] == ["sort", "--name", "--help", "-n"]


def test_a_bag_is_called_after_its_command_unless_it_is_given_a_name(grid: FakeGrid) -> None:
    deskgrid("submit", "--", "/usr/bin/convert", "x")
    assert grid.submitted["name"] == "convert"


@pytest.mark.parametrize(("command", "item"), [(["true"], ""), (["find", "-exec", "rm", "{}", ";"], "{}")])
def test_without_lines_there_is_one_task_with_the_command_as_it_is(
    grid: FakeGrid, command: list[str], item: str
) -> None:
    deskgrid("submit", "--", *command)
    assert (grid.submitted["argv"], grid.submitted["items"]) == (command, [item])


def test_a_file_of_lines_may_be_named(grid: FakeGrid, tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_bytes("\ufeffé.png\r\nb.png\r\n".encode())
    deskgrid("submit", "--each", str(file), "--", "convert")
    assert grid.submitted["items"] == ["é.png", "b.png"]


def test_a_line_without_an_end_is_refused_as_soon_as_it_is_too_long(grid: FakeGrid, tmp_path: Path) -> None:
    file = tmp_path / "list"
    with file.open("wb") as made:
        made.write(b"a\n")
        made.truncate(2**40)
    result = deskgrid("submit", "--each", str(file), "--", "convert")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "deskgrid: line 2 of --each has more than 67,108,864 bytes, which is the limit\n"


def test_a_line_that_is_not_utf_8_keeps_its_bytes(grid: FakeGrid) -> None:
    deskgrid("submit", "--each", "-", "--", "convert", stdin=b"a\ncaf\xe9\n")
    assert grid.submitted["items"] == ["a", "caf\udce9"]


def test_a_file_that_is_not_there_is_one_line_and_exit_code_2(grid: FakeGrid) -> None:
    result = deskgrid("submit", "--each", "nowhere", "--", "convert")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_what_the_client_warns_of_goes_to_stderr(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(*_: object, **__: object) -> FakeBag:
        logging.getLogger("deskgrid.client").warning("bag %s: 3 tasks are longer than any window", BAG)
        return grid.bag

    monkeypatch.setattr(grid, "command", noted)
    result = deskgrid("submit", "--", "true")
    assert result.stdout == f"{BAG}\n"
    assert result.stderr == f"deskgrid: bag {BAG}: 3 tasks are longer than any window\n"
    assert logging.getLogger("deskgrid.client").handlers == []


def test_a_bag_that_is_rejected_is_one_line_and_exit_code_2(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    def rejected(*_: object, **__: object) -> FakeBag:
        raise BagRejected("the bag has too many items")

    monkeypatch.setattr(grid, "command", rejected)
    result = deskgrid("submit", "--each", "-", "--", "convert", stdin="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "deskgrid: the bag has too many items\n"


# --- wait ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bag", "code", "said"),
    [
        (FakeBag([(0, "a"), (1, "b")]), 0, "2 of 2 tasks done"),
        (FakeBag([(0, "a"), (1, ValueError())]), 1, "1 of 2 tasks done, 1 failed"),
        (FakeBag([(0, "a")], in_time=False), 1, "1 of 1 task done; the bag has not ended"),
    ],
    ids=["done", "failed", "too late"],
)
def test_waiting_ends_with_1_when_a_task_failed_or_it_took_too_long(
    monkeypatch: pytest.MonkeyPatch, bag: FakeBag, code: int, said: str
) -> None:
    use(monkeypatch, FakeGrid(bag))
    result = deskgrid("wait", BAG)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"deskgrid: {said}\n")


def test_waiting_for_several_bags_names_each_and_has_one_timeout(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid.bag.ended = [(0, "a")]
    clock, waited = iter([0.0, 10.0, 70.0]), list[float]()

    def wait(timeout: float) -> bool:
        waited.append(timeout)
        return len(waited) == 1

    monkeypatch.setattr("deskgrid.cli.bags.time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(grid.bag, "wait", wait)
    result = deskgrid("wait", "--timeout", "60", BAG, BAG)
    assert waited == [50.0, 0.0]
    assert result.stderr.splitlines() == [
        f"deskgrid: bag {BAG}: 1 of 1 task done",
        f"deskgrid: bag {BAG}: 1 of 1 task done; the bag has not ended",
    ]
    assert result.exit_code == 1


def test_nothing_is_waited_for_if_one_of_several_bags_is_refused(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.bag, "wait", lambda timeout: pytest.fail("it waited"))
    result = deskgrid("wait", BAG, "nope")
    assert (result.exit_code, result.stderr) == (2, "deskgrid: no bag nope\n")


# --- results ---------------------------------------------------------------------------------------------------------


def test_results_come_in_the_order_of_the_tasks_and_each_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [(2, "third\n"), (0, "first"), (1, ""), (3, [4]), (4, "fifth\nits second line\n")]
    use(monkeypatch, FakeGrid(FakeBag(ended)))
    result = deskgrid("results", BAG)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "first\nthird\n[4]\nfifth\nits second line\n"


@pytest.mark.parametrize("data", [b"caf\xe9\n", b"no end of line", b"\0\r\n\xff", b""])
def test_results_of_commands_are_the_very_bytes(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    use(monkeypatch, FakeGrid(FakeBag([(0, text), (1, text)], kind="command")))
    result = deskgrid("results", BAG)
    assert (result.exit_code, result.stdout_bytes) == (0, data * 2)


def test_a_text_that_no_encoding_has_is_printed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGrid(FakeBag([(0, "half \ud800")])))
    assert deskgrid("results", BAG).stdout == "half \\ud800\n"


def test_a_failed_task_is_one_line_on_stderr_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = RemoteError("CommandFailed: exit code 3")
    remote.add_note(f"{RAISED_BY}task 1 of bag x on lab3-07 after 2 s")
    ended: list[tuple[int, object]] = [
        (3, TaskCancelled("task 3 of bag x was cancelled")),
        (1, remote),
        (2, ZeroDivisionError("division\nby zero")),
        (0, "first"),
    ]
    use(monkeypatch, FakeGrid(FakeBag(ended)))
    result = deskgrid("results", BAG)
    assert (result.exit_code, result.stdout) == (1, "first\n")
    assert result.stderr.splitlines() == [
        "deskgrid: task 1 of bag x on lab3-07 after 2 s: CommandFailed: exit code 3",
        "deskgrid: task 2: ZeroDivisionError: division by zero",
        "deskgrid: task 3 of bag x was cancelled",
        f"deskgrid: 2 of 4 failed; see deskgrid logs {BAG} 1",
        "deskgrid: 1 of 4 cancelled",
    ]


def test_why_a_bag_cannot_run_is_told_also_when_that_turns_out_while_its_results_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note = "cannot run: it comes after bag b, which has 1 failed task"
    bag = FakeBag([(0, TaskCancelled("task 0 of bag x was cancelled"))])
    grid = use(monkeypatch, FakeGrid(bag))
    attached = iter([bag, replace(bag, note=note)])
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(grid, "attach", lambda bag_id: warned(next(attached)))
        assert deskgrid("results", BAG).stderr.count(note) == 1
    bag.note = note
    assert deskgrid("results", BAG).stderr.count(note) == 1


@pytest.mark.parametrize("command", ["wait", "results", "fetch"])
def test_the_note_of_a_bag_is_printed_once_in_one_line(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    use(monkeypatch, FakeGrid(FakeBag([], note="no PC has 900 G of memory\n\x1b[2J")))
    said = deskgrid(command, BAG).stderr
    assert said.count("no PC has 900 G of memory") == 1
    assert all(line.isprintable() for line in said.splitlines())


def test_a_failed_command_is_shown_with_the_last_line_of_its_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    command, silent, python = (RemoteError(text) for text in ("CommandFailed: exit code 3", "exit code 1", "Odd: 7"))
    command.__cause__ = RemoteTraceback(f"a warning\n{'x' * 300}\n\n")
    python.__cause__ = RemoteTraceback("Traceback (most recent call last):\n  ...\nmy.Odd: 7")
    use(monkeypatch, FakeGrid(FakeBag([(0, command), (1, silent), (2, python)])))
    first, second, third, _ = deskgrid("results", BAG).stderr.splitlines()
    assert first == f"deskgrid: task 0: CommandFailed: exit code 3: {'x' * LAST_WORDS}"
    assert second == "deskgrid: task 1: exit code 1"
    assert third == "deskgrid: task 2: Odd: 7"


# --- the rest --------------------------------------------------------------------------------------------------------


def test_a_tasks_log_keeps_stdout_and_stderr_apart(grid: FakeGrid) -> None:
    result = deskgrid("logs", BAG, "3")
    assert result.exit_code == 0
    assert result.stdout == "out\n"
    assert result.stderr == "deskgrid: task 3: done on lab3-01 after 4.2 s\nerr\n"


def test_a_log_has_the_very_bytes_and_on_stderr_a_line_of_ours_begins_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"caf\xe9".decode("utf-8", "surrogateescape")
    failed = TaskLog("error", "pc", 1.0, text, text, "exit code 3")
    use(monkeypatch, FakeGrid(FakeBag(logged={0: failed})))
    result = deskgrid("logs", BAG, "0")
    assert result.stdout_bytes == b"caf\xe9"
    assert result.stderr_bytes.splitlines()[1:] == [b"caf\xe9", b"exit code 3"]


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_is_followed_comes_as_it_was_written_and_ctrl_c_ends_it_well(
    monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    pieces = [
        LogPiece(0, None, "pc1", b"caf\xc3", b"err"),
        LogPiece(0, None, "pc1", b"\xa9\n"),
        LogPiece(1, 2, "pc2", b"\xff\n", missed=1234),
        LogPiece(1, 2, "pc2", b"half \xc3"),
        LogPiece(1, None, "pc2", note="error on pc2 after 2 s\nValueError: 7"),
    ]
    use(monkeypatch, FakeGrid(FakeBag(pieces=pieces, interrupted=interrupted)))
    result = deskgrid("logs", "--follow", BAG)
    assert result.exit_code == 0
    assert result.stdout_bytes == b"caf\xc3\xa9\n\xff\nhalf \xc3"
    assert result.stderr.splitlines() == [
        "deskgrid: task 0 on pc1:",
        "err",
        "deskgrid: task 1, rank 2 on pc2:",
        "deskgrid: task 1, rank 2: 1,234 bytes are left out here",
        "deskgrid: task 1: error on pc2 after 2 s",
        "ValueError: 7",
    ]


@pytest.mark.parametrize(
    ("count", "item", "said"),
    [
        (1, [], []),
        (2, [], [f"deskgrid: 1 more task ended before, or too fast to be shown; see deskgrid logs {BAG}"]),
        (2001, [], [f"deskgrid: 2,000 more tasks ended before, or too fast to be shown; see deskgrid logs {BAG}"]),
        (2001, ["7"], []),
    ],
)
def test_who_follows_a_bag_is_told_how_many_tasks_were_not_shown(
    monkeypatch: pytest.MonkeyPatch, count: int, item: list[str], said: list[str]
) -> None:
    pieces = [LogPiece(7, None, "pc1", b"out\n"), LogPiece(7, None, "pc1", note="done on pc1 after 2 s")]
    use(monkeypatch, FakeGrid(FakeBag([(number, "") for number in range(count)], pieces=pieces)))
    result = deskgrid("logs", "--follow", BAG, *item)
    assert (result.exit_code, result.stdout) == (0, "out\n")
    assert result.stderr.splitlines()[2:] == said


def test_without_an_item_the_log_of_every_task_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = TaskLog("waiting", None, 0.0, "", "", None)
    sent = TaskLog("sent", None, 0.0, "", "", None)
    use(monkeypatch, FakeGrid(FakeBag([(0, ""), (1, ""), (2, "")], logged={0: LOG, 1: waiting, 2: sent})))
    result = deskgrid("logs", BAG)
    assert result.stdout == "out\n"
    assert result.stderr.splitlines()[-2:] == [
        "deskgrid: task 1: waiting",
        "deskgrid: task 2: sent to a PC; its output is shown when it ends",
    ]


def test_the_log_of_a_task_that_is_tried_again_says_how_it_failed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    again = TaskLog("sent", "lab3-01", 3600.0, "", "", "ValueError: 7")
    use(monkeypatch, FakeGrid(FakeBag(logged={0: again})))
    assert deskgrid("logs", BAG, "0").stderr.splitlines() == [
        "deskgrid: task 0: sent to a PC; its output is shown when it ends; its last attempt failed on lab3-01 after "
        "1 h 00 min",
        "ValueError: 7",
    ]


def test_a_traceback_is_printed_but_the_end_of_stderr_not_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = TaskLog("error", "pc", 1.0, "", "cannot open a\n", "cannot open a\n")
    raised = TaskLog("error", "pc", 1.0, "", "", "Traceback: division by zero")
    use(monkeypatch, FakeGrid(FakeBag(logged={0: failed, 1: raised})))
    assert deskgrid("logs", BAG, "0").stderr.count("cannot open a") == 1
    assert "Traceback: division by zero\n" in deskgrid("logs", BAG, "1").stderr


def test_explain_prints_what_the_broker_says(grid: FakeGrid) -> None:
    assert deskgrid("explain", BAG, "7").stdout == "task 7 waits\n"
    assert deskgrid("explain", BAG).stdout == "task None waits\n"


def test_eta_says_when_a_bag_will_be_done(grid: FakeGrid) -> None:
    assert deskgrid("eta", BAG).stdout == "done in 1 min 30 s, at the latest in 2 min 30 s\n"
    values = {"median_s": 90.0, "low_s": 60.0, "high_s": 150.0, "confidence": 0.9, "why": ""}
    assert json.loads(deskgrid("eta", BAG, "--json").stdout) == values


def test_eta_fails_if_nobody_knows(grid: FakeGrid) -> None:
    grid.bag.told = Eta(None, None, None, why="no PC is up or announced")
    result = deskgrid("eta", BAG)
    assert (result.stdout, result.exit_code) == ("unknown: no PC is up or announced\n", 1)


def test_without_a_place_for_the_line_it_is_said_where_it_goes(grid: FakeGrid) -> None:
    result = deskgrid("submit", "--each", "-", "--", "sleep", "3", stdin="1\n")
    assert result.stderr == "deskgrid: the command has no {}, so each line was added at its end: sleep 3 LINE\n"
    assert result.stdout == f"{BAG}\n"
    assert deskgrid("submit", "--each", "-", "--", "sleep", "{}", stdin="1\n").stderr == ""


def test_cancel_says_how_many_it_cancelled(grid: FakeGrid) -> None:
    assert deskgrid("cancel", BAG).stdout == f"cancelled 1,234 tasks of {BAG}\n"


def test_when_one_bag_is_refused_no_bag_is_cancelled_or_forgotten(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach(bag_id: str) -> FakeBag:
        if bag_id == "nope":
            raise RequestFailed("no bag nope")
        return grid.bag

    monkeypatch.setattr(grid, "attach", attach)
    for command, what in (("cancel", "cancelled"), ("forget", "forgotten")):
        result = deskgrid(command, BAG, "nope")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"deskgrid: no bag nope; no bag was {what}\n"
    assert not grid.bag.forgotten


def test_forget_forgets(grid: FakeGrid) -> None:
    assert deskgrid("forget", BAG).stdout == f"forgot {BAG}\n"
    assert grid.bag.forgotten


def test_forget_forgets_what_was_learned_as_an_admin(grid: FakeGrid) -> None:
    assert deskgrid("forget", BAG, "--join", "client@lab:1").exit_code == 0
    before = grid.forgot_learned
    assert deskgrid("forget", "--learned").stdout == "forgot what was learned\n"
    assert (before, grid.forgot_learned) == (False, True)
    assert grid.joins == ["client@lab:1", ADMIN]


def test_forget_deletes_no_bag_if_it_may_not_forget_what_was_learned(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RequestFailed("'forget learned' is for admins")

    monkeypatch.setattr(grid, "forget_learned", refuse)
    assert deskgrid("forget", "--learned", BAG).exit_code == 2
    assert not grid.bag.forgotten


def test_forget_without_anything_to_forget_is_a_wrong_command_line(grid: FakeGrid) -> None:
    result = deskgrid("forget")
    assert (result.exit_code, result.stderr) == (
        2,
        "deskgrid: name a bag, or give --learned (see deskgrid forget --help)\n",
    )
    assert not grid.joins


@pytest.mark.parametrize("command", ["cancel", "forget"])
def test_several_bags_are_found_before_the_first_is_changed(
    command: str, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = list[str]()

    def change() -> int:
        changed.append(command)
        return 1

    monkeypatch.setattr(grid.bag, command, change)
    assert deskgrid(command, BAG, BAG).exit_code == 0
    assert changed == [command, command]
    assert deskgrid(command, BAG, "nosuch").exit_code == 2
    assert changed == [command, command]


@pytest.mark.parametrize(
    ("command", "method", "said"),
    [
        ("wait", "wait", f"you stopped waiting; bag {BAG} continues"),
        ("results", "as_completed", f"you stopped waiting; bag {BAG} continues"),
        ("fetch", "fetch", "you stopped fetching; run it again to continue"),
    ],
)
def test_ctrl_c_says_what_goes_on(
    command: str, method: str, said: str, grid: FakeGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(grid.bag, method, interrupted)
    result = deskgrid(command, BAG)
    assert result.exit_code == 130
    assert result.stderr.strip() == f"deskgrid: {said}"


@pytest.mark.parametrize("note", ["", "the tasks that were already sent are cancelled"])
def test_ctrl_c_in_a_submission_says_whether_tasks_were_sent_and_what_happens_to_them(
    grid: FakeGrid, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        stopped = KeyboardInterrupt()
        if note:
            stopped.add_note(note)
        raise stopped

    monkeypatch.setattr(grid, "command", interrupted)
    result = deskgrid("submit", "--", "echo")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr.strip() == f"deskgrid: you stopped submitting; {note or 'no task was sent'}"


def test_ctrl_c_says_that_several_bags_go_on(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(timeout: float | None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(grid.bag, "wait", interrupted)
    result = deskgrid("wait", BAG, BAG)
    assert (result.exit_code, result.stderr.strip()) == (130, "deskgrid: you stopped waiting; the bags continue")


# --- what a terminal might obey --------------------------------------------------------------------------------------

HARM = "\x1b[2J\x9b1m\u202e\x07"


def test_names_are_printed_without_what_a_terminal_might_obey(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = TaskLog("failed", f"pc{HARM}", 4.2, "", "", None)
    ended = [(0, TaskCancelled(f"task 0 of bag {HARM} on pc{HARM} was cancelled")), (1, ValueError(HARM))]
    fake = use(monkeypatch, FakeGrid(FakeBag(ended, logged={0: log}, note=f"longer than{HARM}")))
    monkeypatch.setattr(fake.bag, "explain", lambda item: f"task 0 waits\npc{HARM} slot 0: fits")
    said = [deskgrid("logs", BAG, "0"), deskgrid("results", BAG), deskgrid("submit", "true"), deskgrid("explain", BAG)]
    said.append(deskgrid("forget", f"no{HARM}"))
    for result in said:
        for line in (result.stdout + result.stderr).splitlines():
            assert line.isprintable(), line
    assert said[3].stdout == "task 0 waits\npc?[2J?1m?? slot 0: fits\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_a_task_wrote_is_clean_on_a_terminal_and_as_it_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGrid(FakeBag([(0, f"a\tb\n{HARM}")])))
    assert deskgrid("results", BAG).stdout == f"a\tb\n{HARM}\n"
    for stream, shown in ((Terminal(), "a\tb\n?[2J?1m??\n"), (io.StringIO(), f"a\tb\n{HARM}\n")):
        monkeypatch.setattr("sys.stdout", stream)
        show(f"a\tb\n{HARM}\n")
        assert stream.getvalue() == shown


class Resisting(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise ValueError


def test_an_exception_that_cannot_be_shown_is_told_by_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGrid(FakeBag([(0, Resisting()), (1, "fine")])))
    result = deskgrid("results", BAG)
    assert result.stdout == "fine\n"
    assert result.stderr.startswith("deskgrid: task 0: Resisting()\n")


# --- fetch -----------------------------------------------------------------------------------------------------------


def test_the_files_that_were_fetched_are_named(grid: FakeGrid) -> None:
    grid.bag.ended = [(0, "a"), (1, "b")]
    result = deskgrid("fetch", BAG, "--to", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{Path('x/0/out')}\n{Path('x/1/out')}\n", "")
    assert deskgrid("fetch", BAG, "0").stdout == "out\n"


def test_a_fetch_of_a_bag_of_which_tasks_failed_says_so(grid: FakeGrid) -> None:
    grid.bag.ended = [(0, "a"), (1, RemoteError("no such star"))]
    result = deskgrid("fetch", BAG)
    assert (result.exit_code, result.stdout) == (1, f"{Path('0/out')}\n")
    assert result.stderr == "deskgrid: 1 of 2 tasks done, 1 failed; only tasks that are done have files\n"
    assert deskgrid("fetch", BAG, "0").exit_code == 0


@pytest.mark.parametrize("item", [(), ("0",)])
def test_a_fetch_of_tasks_without_files_says_how_they_get_some(
    grid: FakeGrid, item: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.bag, "fetch", lambda to, item: [])
    grid.bag.ended = [(0, "a")]
    result = deskgrid("fetch", BAG, *item)
    whose = f"task 0 of bag {BAG}" if item else f"bag {BAG}"
    why = f"deskgrid: {whose} has no files: submit a command with --output, or return a File from a function\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", why)


@pytest.mark.parametrize("error", [RemoteError("no such star"), ValueError("no such star")])
def test_a_task_that_failed_has_no_files_but_a_reason(grid: FakeGrid, error: Exception) -> None:
    grid.bag.ended = [(0, error)]
    result = deskgrid("fetch", BAG, "0")
    assert (result.exit_code, result.stdout, "no such star" in result.stderr) == (1, "", True)


def test_bags_are_paused_and_resumed(grid: FakeGrid) -> None:
    assert (deskgrid("pause", BAG).stdout, grid.bag.paused) == (f"paused {BAG}\n", True)
    assert (deskgrid("resume", BAG).stdout, grid.bag.paused) == (f"resumed {BAG}\n", False)


def test_what_a_bag_needs_and_comes_after_arrives(grid: FakeGrid) -> None:
    words = "--priority -3 --limit 5 --licence matlab --licence spss=2 --after one --after two --when ended -- true"
    deskgrid("submit", *words.split())
    gates = {name: grid.submitted[name] for name in ("priority", "limit", "licences", "after", "when")}
    licences = {"matlab": 1, "spss": 2}
    assert gates == {"priority": -3, "limit": 5, "licences": licences, "after": ("one", "two"), "when": "ended"}


@pytest.mark.parametrize("words", ["=1", "m=", "m=x", "m=0", "a&b", "m --licence m=2"])
def test_a_licence_that_makes_no_sense_is_refused(grid: FakeGrid, words: str) -> None:
    result = deskgrid("submit", "--licence", *words.split(), "--", "true")
    assert result.exit_code == 2
    assert "a licence is NAME or NAME=N" in result.stderr


def test_shares_are_a_table(grid: FakeGrid) -> None:
    titles, row = deskgrid("shares").stdout.splitlines()
    assert titles.split() == ["SHARE", "WEIGHT", "USED", "PROMISED", "ON", "PCS", "WAITS", "KEYS"]
    assert row.split() == ["ann", "2", "1", "h", "10", "min", "0", "s", "3", "yes", "ann,", "ann-laptop"]


def test_a_file_without_lines_makes_no_bag_and_is_no_error(grid: FakeGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "command", lambda *_, **__: FakeBag(id=""))
    result = deskgrid("submit", "--each", "-", "--", "convert", stdin="")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "deskgrid: there are no lines, so there is no bag\n"
