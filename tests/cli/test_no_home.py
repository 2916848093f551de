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
