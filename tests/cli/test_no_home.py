"""Accounts without a home folder, as in containers: they are told what to set, and see no traceback."""

import os
import sys
from pathlib import Path

import pytest

from deskgrid import Grid
from deskgrid.client.environments.asked import _local
from deskgrid.client.environments.store import cache_folder
from deskgrid.errors import BagRejected, GridUnreachable
from deskgrid.wire.joinline import JoinLineError, read_join_line
from tests.cli.fakes import deskgrid

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere every account has one")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """This account is in no list of accounts."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("HOME", "DESKGRID_HOME", "DESKGRID_JOIN", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


@pytest.mark.parametrize("command", ["broker", "worker"])
def test_a_command_that_keeps_something_says_what_to_set(command: str) -> None:
    result = deskgrid(command)
    assert result.exit_code == 2
    assert "this account has no home folder: set HOME, or DESKGRID_HOME" in result.output


def test_a_program_is_told_to_name_the_broker() -> None:
    with pytest.raises(GridUnreachable, match=r"DESKGRID_JOIN is not set, and this account has no home folder"):
        Grid()


@pytest.mark.skipif(sys.platform == "darwin", reason="there the folder of caches is another")
def test_environments_say_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BagRejected, match="set HOME, or XDG_CACHE_HOME"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/deskgrid")


@pytest.mark.parametrize("options", [("--home", "~/x"), ("--home", "~no-such-account/x")])
def test_a_path_below_a_home_folder_that_is_not_there_is_refused(options: tuple[str, ...]) -> None:
    result = deskgrid("broker", *options)
    assert result.exit_code == 2
    assert f"{options[1]}: there is no such home folder" in result.output


def test_a_join_line_in_such_a_folder_cannot_be_read_and_there_is_no_project() -> None:
    with pytest.raises(JoinLineError, match="~/line, which should hold a join line, cannot be read"):
        read_join_line("@~/line", "client")
    with pytest.raises(BagRejected, match="there is no project or wheel at"):
        _local("~no-such-account/project", Path())


# --- a home folder that is none ---------------------------------------------------------------------------------------


@pytest.fixture(params=["/", "", "there-is-none"])
def bad(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """$HOME of an account of a service, or in a container."""
    home = str(tmp_path / request.param) if "none" in request.param else request.param
    monkeypatch.setenv("HOME", home)
    return home or "/"


@pytest.mark.parametrize("command", ["broker", "worker"])
def test_a_command_keeps_nothing_in_such_a_folder(command: str, bad: str) -> None:
    result = deskgrid(command)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "home folder" in said
    assert bad in said
    assert "set HOME, or DESKGRID_HOME" in said
    assert not Path(bad, ".deskgrid").exists()


def test_a_program_hears_that_such_a_folder_is_none(bad: str) -> None:
    with pytest.raises(GridUnreachable, match=r"home folder .* set DESKGRID_JOIN to the line"):
        Grid()


@pytest.mark.skipif(sys.platform == "darwin", reason="there the folder of caches is another")
def test_environments_are_kept_in_no_such_folder(bad: str) -> None:
    with pytest.raises(BagRejected, match=r"home folder .*: set HOME, or XDG_CACHE_HOME"):
        cache_folder()


def test_a_worker_with_a_folder_that_is_named_asks_for_the_line(bad: str, tmp_path: Path) -> None:
    result = deskgrid("worker", "--home", str(tmp_path / "mine"))
    assert result.exit_code == 2
    assert "the first time, give --join with the line that the broker printed" in " ".join(result.output.split())


def test_a_folder_that_is_named_needs_no_home(bad: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DESKGRID_HOME", str(tmp_path / "mine"))
    with pytest.raises(GridUnreachable, match=f"{tmp_path}/mine/client.join is not there"):
        Grid()
