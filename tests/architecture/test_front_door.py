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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What PROGRAM printed, run as a script of a project with its own worker.py and scheduler.py."""
    project: Path = tmp_path_factory.mktemp("project")
    for name in ("worker", "scheduler"):
        (project / f"{name}.py").write_text("WHOSE = 'the user'\n", encoding="utf-8")
    (project / "program.py").write_text(PROGRAM, encoding="utf-8")
    # PYTHONPATH comes after the script's own folder, as an installed deskgrid does.
    ran = subprocess.run(
        [sys.executable, "program.py"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
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
    assert kinds <= {"front door", "client", "common", "empty"}


def test_a_users_own_worker_and_scheduler_stay_the_users(told: Told) -> None:
    assert told.whose == ["the user", "the user"]
