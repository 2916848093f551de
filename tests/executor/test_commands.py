"""Tasks that are commands."""

import os
import signal
import sys
from collections.abc import Callable

import msgpack
import pytest

from deskgrid.errors import RemoteError
from deskgrid.raised import put_together
from deskgrid.wire import Outcome
from tests.executor.rig import NAME, Rig, command_template, error, value

SHOW = (sys.executable, "-c", "import sys; print(sys.argv[1:])")


@pytest.mark.parametrize(
    ("argv", "item", "seen"),
    [
        (("{}",), b"a b", ["a b"]),
        (("--in={}.txt", "-v", "{}{}"), b"7", ["--in=7.txt", "-v", "77"]),
        (("-v",), b"last", ["-v", "last"]),
        (("-v",), b"", ["-v"]),
        (("{}",), b"", [""]),
        (("$HOME; {}",), "é".encode(), ["$HOME; é"]),
    ],
)
def test_the_item_goes_where_the_braces_are(rig: Rig, argv: tuple[str, ...], item: bytes, seen: list[str]) -> None:
    (ended,) = rig.run(rig.know(command_template(*SHOW, *argv)), item)
    assert value(ended) == f"{seen}{os.linesep}"
    assert ended.stdout == f"{seen}{os.linesep}".encode()


@pytest.mark.skipif(sys.platform == "win32", reason="there a command gets text")
@pytest.mark.parametrize("locale", ["C.UTF-8", "POSIX"])
def test_a_command_gets_the_very_bytes_of_its_words_and_its_item(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, locale: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    template = msgpack.packb({"kind": "command", "argv": ["printf", "%s %s", b"caf\xe9", "{}"]})
    (ended,) = rig.run(rig.know(template), b"\xff\xc3\xa9")
    assert ended.stdout == b"caf\xe9 \xff\xc3\xa9"


def test_each_command_of_a_batch_has_its_own_output(rig: Rig) -> None:
    ended = rig.run(rig.know(command_template(*SHOW)), b"1", b"2", b"3")
    assert [value(one) for one in ended] == ["['1']\n", "['2']\n", "['3']\n"]


def test_another_exit_code_than_0_is_an_error_with_the_end_of_stderr(rig: Rig) -> None:
    code = "import sys; print('some'); print('x' * 9000, 'the reason', file=sys.stderr); sys.exit(3)"
    (ended,) = rig.run(rig.know(command_template(sys.executable, "-c", code)), b"")
    kind, message, trace, pickled = error(ended)
    assert (ended.outcome, kind, message, pickled) == (Outcome.ERROR, "CommandFailed", "exit code 3", b"")
    assert trace.endswith("x the reason\n")
    assert len(trace) < 5000
    assert ended.stdout == b"some\n"


def test_a_command_that_dies_by_a_signal_is_an_error_that_names_it(rig: Rig) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    (ended,) = rig.run(rig.know(command_template(sys.executable, "-c", code)), b"")
    assert error(ended)[1] == f"exit code {-signal.SIGTERM} (SIGTERM)"


def test_a_command_that_is_not_there_is_an_error_that_names_the_worker(rig: Rig) -> None:
    (ended,) = rig.run(rig.know(command_template("no-such-program", "{}")), b"x")
    kind, message, _, pickled = error(ended)
    assert kind == "CommandFailed"
    assert message == f"cannot run 'no-such-program' on {NAME}: No such file or directory"
    assert isinstance(put_together(pickled, RemoteError, message), FileNotFoundError)


def test_the_value_is_the_whole_output_though_the_log_is_cut(rigs: Callable[..., Rig]) -> None:
    rig = rigs(capture_limit=1000)
    (ended,) = rig.run(rig.know(command_template(sys.executable, "-c", "print('x' * 50_000)")), b"")
    assert value(ended) == "x" * 50_000 + "\n"
    assert len(ended.stdout) < 1100


def test_output_over_the_limit_is_too_large_a_result(rigs: Callable[..., Rig]) -> None:
    rig = rigs(result_limit=1000)
    long, short = rig.run(rig.know(command_template(sys.executable, "-c", "print('x' * {})")), b"2000", b"20")
    assert error(long)[:2] == ("ResultTooLarge", "the result has 2,001 bytes; the limit is 1,000")
    assert value(short) == "x" * 20 + "\n"


def test_the_input_of_a_command_is_empty(rig: Rig) -> None:
    code = "import sys; print(repr(sys.stdin.read()))"
    assert value(rig.run(rig.know(command_template(sys.executable, "-c", code)), b"")[0]) == "''\n"
