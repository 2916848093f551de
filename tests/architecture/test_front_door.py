"""``import deskgrid``: what it loads and when, beside a user's modules with the names of our folders."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import deskgrid
from tests.architecture.reading import ROOT
from tests.architecture.test_imports import FILES, kind_of

# The user's program: first our front door, then all that is behind it, then the modules of its own.
PROGRAM = """
import json, sys
import deskgrid
at_once = list(sys.modules)
from deskgrid import *
loaded = list(sys.modules)
import broker, client, scheduler, wire, worker
print(json.dumps([at_once, loaded, [module.WHOSE for module in (broker, client, scheduler, wire, worker)]]))
"""


class Told(NamedTuple):
    """What PROGRAM prints: all modules loaded at once, and by all public names; and whose its own five modules are."""

    at_once: list[str]
    loaded: list[str]
    whose: list[str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What PROGRAM printed, run as a script of a project with such modules."""
    project: Path = tmp_path_factory.mktemp("project")
    for name in ("broker", "client", "scheduler", "wire", "worker"):
        (project / f"{name}.py").write_text("WHOSE = 'the user'\n", encoding="utf-8")
    (project / "program.py").write_text(PROGRAM, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "program.py"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},  # after its own folder, as an installed deskgrid
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return Told(*json.loads(ran.stdout))


def ours(loaded: list[str]) -> set[str]:
    return {name for name in loaded if name.split(".")[0] == "deskgrid"}


def test_nothing_is_loaded_before_it_is_used(told: Told) -> None:
    assert ours(told.at_once) == {"deskgrid"}
    assert not {"zmq", "msgpack", "rich"} & {*told.at_once}


def test_the_front_door_lets_in_the_client_and_the_messages_only(told: Told) -> None:
    stems = {file: file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in FILES}
    loaded = ours(told.loaded)
    kinds = {kind_of(file) for file, stem in stems.items() if {stem, f"deskgrid.{stem}"} & loaded}
    assert {"deskgrid", "deskgrid.client.grid", "deskgrid.wire"} <= loaded
    assert kinds <= {"front door", "client", "lent", "pickler", "line", "common", "empty"}


def test_every_public_name_is_there_and_listed() -> None:
    for name in deskgrid.__all__:
        assert getattr(deskgrid, name).__doc__, name
    assert dir(deskgrid) == sorted(deskgrid.__all__)


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="module 'deskgrid' has no attribute 'Gird'"):
        deskgrid.Gird  # type: ignore[attr-defined]  # noqa: B018


def test_a_users_own_modules_with_the_names_of_our_folders_stay_the_users(told: Told) -> None:
    assert told.whose == ["the user"] * 5
