"""The command line as a whole: help, exit codes, and commands that are imported late."""

import subprocess
import sys
import types
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from deskgrid.cli.front import COMMANDS, main
from deskgrid.lazy_commands import LazyCommand
from deskgrid.wire import VERSION
from tests.cli.fakes import deskgrid

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = [entry for entries in COMMANDS.values() for entry in entries]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_with_a_line(arguments: list[str]) -> None:
    result = deskgrid(*arguments)
    assert result.exit_code == 0
    for name, _, short_help in ENTRIES:
        assert f"  {name} " in result.stdout
        assert short_help in result.stdout


@pytest.mark.parametrize("name", [name for name, _, _ in ENTRIES])
def test_every_command_has_its_own_help(name: str) -> None:
    result = deskgrid(name, "--help")
    assert result.exit_code == 0
    assert f"Usage: deskgrid {name}" in result.stdout


def test_help_loads_nothing_but_itself() -> None:
    program = "import sys; from deskgrid.cli.front import main; sys.argv[1:] = ['--help']; import atexit; \
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr)); main()"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    ours = {name for name in ran.stderr.split() if name.startswith("deskgrid")}
    assert ours == {"deskgrid", "deskgrid.cli", "deskgrid.cli.front", "deskgrid.lazy_commands"}
    assert not {"zmq", "rich", "msgpack", "apscheduler"} & set(ran.stderr.split())


def test_the_version_is_that_of_the_protocol() -> None:
    result = deskgrid("--version")
    assert (result.exit_code, result.stdout) == (0, f"deskgrid {VERSION}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["wait"],
        ["wait", "--timeout", "soon", "a1"],
        ["submit", "--runtime", "nan", "--", "true"],
        ["submit", "--runtime", "-1", "--", "true"],
        ["submit", "--runtime", "inf", "--", "true"],
        ["submit", "--timeout", "0", "--", "true"],
        ["submit", "--retries", "-1", "--", "true"],
        ["submit"],
        ["worker"],
        ["worker", "--join", "x", "--broker", "y"],
        ["worker", "--broker", "127.0.0.1:1", "--slots", "0"],
        ["worker", "--broker", "127.0.0.1:1", "--until", "60", "--cycle", "file"],
        ["broker", "--policy-option", "order"],
        ["logs", "a1", "-1"],
    ],
)
def test_a_wrong_command_line_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path))  # the developer's own may have an identity
    result = deskgrid(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("deskgrid: ")
    assert line.endswith("--help)")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["--nonsense"], "deskgrid"),
        (["worker", "--join"], "deskgrid worker"),
        (["wait", "--timeout"], "deskgrid wait"),
        (["logs", "--follow=yes", "a1"], "deskgrid logs"),
        (["keys", "add", "--join"], "deskgrid keys add"),
        (["env", "list", "--join"], "deskgrid env list"),
        (["sleepbench", "simulate", "--policy"], "deskgrid sleepbench simulate"),
    ],
)
def test_a_wrong_command_line_names_the_command_whose_help_says_more(arguments: list[str], command: str) -> None:
    result = deskgrid(*arguments)
    assert result.exit_code == 2
    assert result.stderr.endswith(f" (see {command} --help)\n")


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module with a command and a group, mounted late as "stub" and "stubs"."""
    module = types.ModuleType("stub_of_a_command")

    @click.command()
    @click.argument("how")
    def command(how: str) -> None:
        """Do as told."""
        if how == "interrupted":
            raise KeyboardInterrupt
        if how == "refused":
            raise click.ClickException("it will\nnot do")
        if how == "exit":
            click.get_current_context().exit(1)
        click.echo(how)

    group = click.Group("stubs", commands={"one": command}, help="Several.")
    vars(module).update(command=command, group=group)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, attribute in (("stub", "command"), ("stubs", "group")):
        later = LazyCommand(name, f"{module.__name__}:{attribute}", "A stub.")
        monkeypatch.setitem(main.commands, name, later)
    return module


@pytest.mark.usefixtures("mounted")
def test_a_command_of_another_module_is_imported_when_it_is_called() -> None:
    assert deskgrid("stub", "hello").stdout == "hello\n"
    assert deskgrid("stubs", "one", "hello").stdout == "hello\n"
    assert "Do as told." in deskgrid("stub", "--help").stdout


@pytest.mark.usefixtures("mounted")
def test_a_group_without_a_command_shows_its_help() -> None:
    result = deskgrid("stubs")
    assert result.exit_code == 2
    assert result.output.startswith("Usage: deskgrid stubs")
    assert "Commands:\n  one" in result.output


def test_what_looks_like_a_pattern_in_an_argument_is_left_alone_also_on_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, object] = {}
    monkeypatch.setattr(click.Command, "main", lambda self, *args, **extra: told.update(extra))
    with pytest.raises(SystemExit):
        main()
    assert told["windows_expand_args"] is False


@pytest.mark.usefixtures("mounted")
def test_ctrl_c_in_any_command_is_one_sentence_and_exit_code_130() -> None:
    result = deskgrid("stub", "interrupted")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "\ndeskgrid: you stopped it\n")


@pytest.mark.usefixtures("mounted")
def test_an_error_of_a_command_is_one_line() -> None:
    result = deskgrid("stub", "refused")
    assert (result.exit_code, result.stderr) == (1, "deskgrid: it will not do\n")


@pytest.mark.usefixtures("mounted")
def test_a_commands_own_exit_code_is_kept() -> None:
    assert deskgrid("stub", "exit").exit_code == 1


# Presses Ctrl-C when click is about to be imported, which `deskgrid.cli.front` does first.
PRESSED = """
import os, signal, sys
{before}
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Press())
from {script} import main
sys.argv[1:] = ["--version"]
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signal to a single process")
@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_while_the_command_line_is_imported_prints_no_traceback(ignored: bool) -> None:
    (script,) = entry_points(group="console_scripts", name="deskgrid")
    before = "signal.signal(signal.SIGINT, signal.SIG_IGN)" if ignored else ""
    program = PRESSED.format(before=before, script=script.module)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    told = f"deskgrid {VERSION}\n" if ignored else ""
    assert (ended.returncode, ended.stdout, ended.stderr) == (0 if ignored else 130, told, "")
