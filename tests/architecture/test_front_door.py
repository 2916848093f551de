"""``import deskgrid`` in a user's project that has its own worker.py and scheduler.py."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.reading import ROOT
from tests.architecture.test_imports import FILES, PLACES, kind_of

# The user's program: first our front door, then the modules of its own.
PROGRAM = """
import json, sys
import deskgrid
loaded = list(sys.modules)
import scheduler, worker
print(json.dumps([loaded, [scheduler.WHOSE, worker.WHOSE]]))
"""


class Told(NamedTuple):
    """What PROGRAM prints: all modules loaded by the import, and whose scheduler and worker it then got."""

    loaded: list[str]
    whose: list[str]


def run_program(project: Path) -> "subprocess.CompletedProcess[str]":
    """Run the program.py of a project; PYTHONPATH comes after its own folder, as an installed deskgrid does."""
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What PROGRAM printed, run as a script of a project with its own worker.py and scheduler.py."""
    project: Path = tmp_path_factory.mktemp("project")
    for name in ("worker", "scheduler"):
        (project / f"{name}.py").write_text("WHOSE = 'the user'\n", encoding="utf-8")
    (project / "program.py").write_text(PROGRAM, encoding="utf-8")
    ran = run_program(project)
    assert ran.returncode == 0, ran.stderr
    return Told(*json.loads(ran.stdout))


def test_the_front_door_lets_in_the_client_and_the_messages_only(told: Told) -> None:
    ours = {path.split("/")[0].removesuffix(".py") for path in PLACES}
    loaded = {name for name in told.loaded if name.split(".")[0] in ours}
    kinds = {
        kind_of(file)
        for file in FILES
        if file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") in loaded
    }
    assert {"deskgrid", "broker.client.grid", "broker.protocol"} <= loaded
    assert kinds <= {"front door", "client", "line", "common", "empty"}


@pytest.mark.parametrize("file", ["broker.py", "broker/__init__.py"])
@pytest.mark.parametrize("before", ["", "import broker; "])
def test_a_users_own_broker_is_named_as_the_cause(tmp_path: Path, file: str, before: str) -> None:
    own = tmp_path / file
    own.parent.mkdir(exist_ok=True)
    own.write_text("WHOSE = 'the user'\n", encoding="utf-8")
    (tmp_path / "program.py").write_text(f"{before}import deskgrid\n", encoding="utf-8")
    ran = run_program(tmp_path)
    assert ran.returncode == 1
    said = ran.stderr.splitlines()[-1]
    assert said == (
        f"ImportError: {own} hides a package of deskgrid that is called broker, too: rename yours to import deskgrid"
    )


def test_another_import_that_fails_is_not_blamed_on_the_user(tmp_path: Path) -> None:
    (tmp_path / "msgpack.py").write_text("raise ImportError('this one is broken')\n", encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", "import deskgrid"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.stderr.splitlines()[-1] == "ImportError: this one is broken"


def test_a_users_own_worker_and_scheduler_stay_the_users(told: Told) -> None:
    assert told.whose == ["the user", "the user"]
