"""Environments on a PC whose tasks run as another user: a third one makes them. By root only."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deskgrid import Grid
from deskgrid.homes import this_host
from deskgrid.worker.environments import installer
from deskgrid.worker.environments.installer import NUMBERS, find_installer
from deskgrid.worker.run.accounts import AccountError
from tests.live import LiveGrid
from tests.wheels import installed_wheel, make_wheel
from tests.worker.test_run_as import by_root, live, names, place, start, user

if sys.platform != "win32":
    import grp
    import pwd

__all__ = ["live", "names", "place", "start", "user"]


@pytest.fixture
def grid(live: LiveGrid, start: Callable[[], Any], index: Path) -> Iterator[Grid]:
    """A grid whose only worker runs tasks as another user."""
    for name in ("cloudpickle", "msgpack"):
        (index / f"{name}-99.0-py3-none-any.whl").unlink()
        installed_wheel(index, name)
    make_wheel(index, "labtools", files={"labtools.py": "METRE = 100\n"}, scripts={"tool": "labtools:main"})
    with start() as worker, Grid(live.broker.ready.client_line) as made:
        assert worker.joined()
        yield made


def owners() -> Callable[[list[str]], dict[str, Any]]:
    """A function that is no module's: it travels by value."""

    def seen(folders: list[str]) -> dict[str, Any]:
        import os
        import sys

        import labtools  # type: ignore[import-not-found]

        reached = []
        for folder in folders:
            for what in (os.listdir, os.stat):
                try:
                    what(os.path.join(folder, "."))
                    reached.append(folder)
                except OSError:
                    pass
        writable = [root for root, _, _ in os.walk(sys.prefix) if os.access(root, os.W_OK)]
        files = [os.path.join(root, name) for root, _, names in os.walk(sys.prefix) for name in names]
        return {
            "metre": labtools.METRE,
            "uid": os.getuid(),
            "owners": {os.lstat(path).st_uid for path in files} | {os.stat(sys.prefix).st_uid},
            "writable": [*writable, *(path for path in files if os.access(path, os.W_OK))],
            "reached": reached,
        }

    return seen


@by_root
def test_wheels_are_unpacked_and_environments_made_by_neither_root_nor_the_account_of_tasks(
    grid: Grid, place: Path, user: str
) -> None:
    files = place / "files" / this_host()
    folders = [str(files / "cache"), str(files / "wheels")]
    (found,) = grid.bag(owners(), [folders], runtime=1, env=["labtools"]).results()
    assert found["metre"] == 100
    assert found["uid"] == pwd.getpwnam(user).pw_uid
    (owner,) = found["owners"]
    assert owner in NUMBERS
    assert found["writable"] == []
    assert found["reached"] == [], "whoever knows what a file is called there cannot have it"
    wheels = [*(files / "wheels").iterdir()]
    assert {path.stat().st_uid for path in [*wheels, files / "wheels"]} == {0}
    assert {(path / "about.json").stat().st_uid for path in wheels} == {0}
    assert {path.lstat().st_uid for wheel in wheels for path in (wheel / "files").rglob("*")} == {owner}
    assert not [path for wheel in wheels for path in wheel.rglob("*") if stat.S_IMODE(path.lstat().st_mode) & 0o22]


@pytest.mark.skipif(sys.platform == "win32", reason="accounts of Windows have no numbers")
def test_the_account_that_unpacks_wheels_has_a_number_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_installer() == find_installer()
    known = {NUMBERS[0]: pwd.getpwuid(os.getuid())}
    monkeypatch.setattr(pwd, "getpwuid", known.__getitem__)
    groups = {NUMBERS[1]: grp.getgrgid(0)}
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    assert find_installer().number == NUMBERS[2]
    monkeypatch.setattr(installer, "NUMBERS", NUMBERS[:2])
    with pytest.raises(AccountError, match="users or groups of this machine have all numbers from 65520 to 65521"):
        find_installer()
